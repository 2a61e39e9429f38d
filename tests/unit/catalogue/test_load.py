"""A mistake in the catalogue's TOML is an error that names the file, the entry and the key."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.catalogue.load import load_step

STEP = """\
number = 1
slug = "latency"
title = "Latency"
question = "How long?"
how = "By the clock."
remedy = "Warm up."
cost = "3 s"
devices = { cpu = "Everything." }

[metrics."latency.low"]
title = "fast-path latency"
unit = "s"
better = "lower"
explanation = "The time of a call."
source = "over {dispatch}"

[rules."latency.saturated"]
message = "the queue grows"
advice = "none"
"""


def load(folder: Path, text: str) -> None:
    path = folder / "s01_latency.toml"
    path.write_text(text, encoding="utf-8")
    card = load_step(path, {"dispatch": "single calls"})
    assert (card.metrics[0].name, card.metrics[0].step) == ("latency.low", 1)
    assert card.metrics[0].source == "over single calls"


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        ("", "", None),
        ('slug = "latency"', "slug = latency", r"s01_latency\.toml: Invalid value \(at line 2"),
        (
            'remedy = "Warm up."',
            'remedies = "Warm up."',
            r"s01_latency\.toml: Object (contains unknown|missing required)",
        ),
        (
            'unit = "s"',
            'units = "s"',
            r's01_latency\.toml: \[metrics\."latency\.low"\] Object (contains unknown|missing)',
        ),
        ('"lower"', '"smaller"', r'\[metrics\."latency\.low"\] Invalid enum value .smaller. - at `\$\.better`'),
        ("{dispatch}", "{traces}", r'\[metrics\."latency\.low"\] there is no source .traces.; the names are dispatch'),
        ('advice = "none"', "", r'\[rules\."latency\.saturated"\] Object missing required field `advice`'),
        (
            'advice = "none"',
            'advice = "no"',
            r'\[rules\."latency\.saturated"\] Invalid enum value .no. - at `\$\.advice`',
        ),
    ],
)
def test_load_step__mistake__file_entry_and_key_are_named(
    right: str, wrong: str, message: str | None, tmp_path: Path
) -> None:
    if message is None:
        load(tmp_path, STEP)
        return
    with pytest.raises(ValueError, match=message):
        load(tmp_path, STEP.replace(right, wrong))

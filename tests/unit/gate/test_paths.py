from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.config import PathSettings, parse_config
from perfgate.document.decision import Policy
from perfgate.document.message import Message
from perfgate.document.run import Source
from perfgate.judging.gate.paths import always_relevant, skipped, skipped_because
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.text.messages import word
from perfgate.locale import speaking
from tests.wording import text_of

CONFIG = parse_config('project = "a"\nworkload = "perf/w.py:w"\n', Path("/project/perfgate.toml"))


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        (["README.md"], "nothing relevant changed: 1 file, by the rule *.md"),
        (
            ["README.md", "docs/conf.py", "models/a/NOTES.rst", "LICENSE.txt"],
            "nothing relevant changed: 4 files, by the rule *.md, /docs/**, *.rst, LICENSE*",
        ),
        (["README.md", "model.py"], None),
        (["models/docs/table.json"], None),  # the pattern is anchored
        (["data.csv"], None),
        ([".github/workflows/ci.yml"], None),
        ([], None),  # nothing changed at all: whoever asks wants it measured
    ],
)
def test_skipped_because__defaults__prose_alone(changed: list[str], because: str) -> None:
    assert text_of(skipped_because(changed, PathSettings())) == (because or "")


@pytest.mark.parametrize(
    ("changed", "because"),
    [
        (["model.py"], "nothing relevant changed: 1 file, by the rule same syntax tree"),
        (["model.py", "README.md"], "nothing relevant changed: 2 files, by the rule *.md, same syntax tree"),
        (["model.py", "data.csv"], None),
        (["model.py", "perf/w.py"], None),
    ],
)
def test_skipped_because__same_code__skipped_unless_it_says_what_is_measured(changed: list[str], because: str) -> None:
    same = {"model.py", "perf/w.py"}
    assert text_of(skipped_because(changed, PathSettings(), always={"perf/w.py"}, same_code=same.issuperset)) == (
        because or ""
    )


@pytest.mark.parametrize(
    ("relevant", "ignore", "changed", "because"),
    [
        (["*.py"], [], ["weights.bin"], "nothing relevant changed: 1 file, by the rule [paths] relevant"),
        (["*.py"], ["tests/"], ["tests/test_a.py"], "nothing relevant changed: 1 file, by the rule tests/"),
        (["*.py"], ["tests/"], ["src/tests.py"], None),
        (["*"], ["docs/**", "!docs/*.py"], ["docs/conf.py"], None),
        (["*"], [], ["README.md"], None),
    ],
)
def test_skipped_because__own_patterns__as_git_reads_them(
    relevant: list[str], ignore: list[str], changed: list[str], because: str
) -> None:
    assert text_of(skipped_because(changed, PathSettings(relevant=relevant, ignore=ignore))) == (because or "")


def test_skipped_because__what_says_what_is_measured__always_counts() -> None:
    everything = PathSettings(ignore=["*"])
    always = always_relevant(CONFIG, "models/a")
    assert always == {"models/a/perfgate.toml", "models/a/perf/w.py"}
    assert skipped_because(["models/a/perf/w.py"], everything, always=always) is None
    assert skipped_because(["models/a/perfgate.toml"], everything, always=always) is None
    assert skipped_because(["perfgate.toml"], everything, always=always) is not None


def test_skipped__decision__exit_0_the_rule_in_the_reasons_and_in_chinese() -> None:
    because = Message("gate.nothing-changed", {"count": 2, "rules": ["*.md"]})
    decision = skipped(
        because,
        config=CONFIG,
        policy=Policy(),
        base=Source(commit="a" * 40, branch="main"),
        head=Source(commit="b" * 40),
        chosen_because=Message("gate.base-ancestor", {"revision": "main"}),
    )
    assert (decision.verdict, decision.reasons, exit_code(decision)) == ("SKIPPED", [because], 0)
    assert (text_of(decision.base.chosen_because), decision.base.branch) == (
        "main, an ancestor of head",
        "main",
    )
    with speaking("zh"):
        assert word(because) == "没有相关改动：2 个文件，依据规则 *.md"

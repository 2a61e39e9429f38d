"""What `perfgate doctor` prints."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from perfgate.document.doctor import FitnessCheck, PlantedResult, Resolution
from perfgate.judging.report.render.doctor import render_fitness, render_planted, render_resolutions


def _console() -> Console:
    return Console(file=io.StringIO(), width=100)


def _text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def _result(**fields: Any) -> PlantedResult:
    values: dict[str, Any] = {
        "name": "extra-copy", "title": "one copy more", "expected": "FAIL", "metric": "counters.copies",
        "verdict": "FAIL", "exit_code": 1, "fired": ["counters.copies"], "line": "scorer.py:29", "outcome": "agrees",
        "reason": None, "seconds": 83.0,
    }  # fmt: skip
    return PlantedResult(**{**values, **fields})


def test_render_fitness__unfit__word_and_remedy_and_nothing_a_terminal_obeys() -> None:
    console = _console()
    unfit = FitnessCheck(name="git", status="unfit", seen="none\x1b[2J here", remedy="install git")
    unknown = FitnessCheck(name="governor", status="unavailable", seen="not shown")
    render_fitness([unfit, unknown], console)
    text = _text(console)
    assert "UNFIT" in text
    assert "→ install git" in text
    assert "not available" in text
    assert "\x1b" not in text


def test_render_planted__agrees__metric_and_line() -> None:
    console = _console()
    render_planted([_result()], console)
    text = _text(console)
    for words in ("extra-copy", "counters.copies", "at scorer.py:29", "agrees", "83 s"):
        assert words in text


def test_render_planted__many_fired__the_expected_one_first_and_how_many_more() -> None:
    console = _console()
    fired = ["counters.allocations", "counters.copies", "counters.copy_bytes", "memory.peak"]
    render_planted([_result(fired=fired)], console)
    text = _text(console)
    assert "and 3 more" in text
    assert "counters.allocations" not in text


def test_render_planted__80_columns__every_name_and_metric_whole() -> None:
    console = Console(file=io.StringIO(), width=80)
    longest = _result(name="work-5-percent", metric="counters.graph_breaks", fired=["counters.graph_breaks"])
    busy = _result(name="work-3-percent", outcome="too_busy")
    render_planted([longest, busy, _result(seconds=251.4, outcome="differs")], console)
    text = _text(console)
    assert "…" not in text
    assert "251 s" in text
    assert text.count("counters.graph_breaks") == 2


def test_render_planted__differs__says_why_below_the_table() -> None:
    console = _console()
    render_planted(
        [_result(verdict=None, exit_code=4, fired=[], line=None, outcome="differs", reason="no decision")], console
    )
    text = _text(console)
    assert "DIFFERS" in text
    assert "exit code 4" in text
    assert "extra-copy: no decision" in text


def test_render_planted__machine_too_busy__neither_agrees_nor_differs() -> None:
    console = _console()
    render_planted(
        [_result(verdict="INCONCLUSIVE", exit_code=3, fired=[], outcome="too_busy", reason="noise")], console
    )
    text = _text(console)
    assert "BUSY" in text
    assert "extra-copy: too busy to decide: noise" in text
    assert "DIFFERS" not in text


def test_render_resolutions__one_metric__sentence_with_share_and_seconds() -> None:
    console = _console()
    seen = Resolution(
        workload="scorer", shape="default", metric="latency.low", pairs=12, spread=0.009, smallest=0.0104,
        seconds=61.0, timed=20.0,
    )  # fmt: skip
    render_resolutions([seen], console)
    said = " ".join(_text(console).split())
    assert "this machine detects a slowdown of 1.0 % in latency.low within 1 m 1 s" in said
    assert "12 pairs of spread 0.9 %" in said


def test_render_resolutions__too_few_pairs_for_any_slowdown__no_number() -> None:
    console = _console()
    few = Resolution(
        workload="scorer",
        shape="default",
        metric="latency.low",
        pairs=8,
        spread=0.001,
        smallest=None,
        seconds=9.0,
        timed=2.0,
    )
    render_resolutions([few], console)
    assert "8 pairs are too few to detect any slowdown of latency.low" in " ".join(_text(console).split())

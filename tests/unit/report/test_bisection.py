"""What `perfgate upgrade --bisect` prints."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from perfgate.document.bisection import BisectionDocument, BisectionTrial, EnvironmentChange, PackageChange
from perfgate.judging.report.render.bisection import BisectionWords, render_bisection
from tests.fakes.records import built

PACKAGES = [
    PackageChange(package="torch", before="2.12.0", after="2.13.0"),
    PackageChange(package="attrs", before="23.1", after="26.1"),
    PackageChange(package="new", before=None, after="1.0"),
]
RELEASES = [
    PackageChange(package="attrs", before=before, after=after)
    for before, after in (("23.1", "24.1"), ("24.1", "25.1"), ("25.1", "26.1"))
]

TOOLKITS = [EnvironmentChange(before=before, after=after) for before, after in (("8.0", "8.1"), ("8.1", "8.2"))]


def make_bisection(outcome: Any = "found", **fields: Any) -> BisectionDocument:
    values: dict[str, Any] = {
        "commit": "a" * 40, "perfgate_version": "0.1.0", "changes": PACKAGES, "cumulative": False, "culprits": [],
        "suspects": [], "followed": [], "tried": [], "deciding": None, "duration": 372.0,
    }  # fmt: skip
    return built(BisectionDocument, {"outcome": outcome, **values, **fields})


@pytest.mark.parametrize(
    ("document", "line"),
    [
        (make_bisection(culprits=[[0]]), "torch 2.12.0 → 2.13.0 makes it slower, alone"),
        (make_bisection(culprits=[[2], [0]]), "Slower only together: new none → 1.0 + torch 2.12.0 → 2.13.0"),
        (
            make_bisection(culprits=[[0, 1]]),
            "One of these makes it slower, which cannot be tried apart: torch 2.12.0 → 2.13.0, attrs 23.1 → 26.1",
        ),
        (make_bisection("none"), "Nothing gets slower with 3 changes together"),
        (
            make_bisection(
                "impossible", tried=[BisectionTrial(changes=[0, 1, 2], answer="impossible", reason="no wheel")]
            ),
            "The new stack cannot be measured: no wheel",
        ),
        (
            make_bisection("undecided", suspects=[0, 1]),
            "Undecided: a gate stayed inconclusive; the culprit is among torch 2.12.0 → 2.13.0, attrs 23.1 → 26.1",
        ),
        (
            make_bisection("undecided", culprits=[[1]], suspects=[0]),
            "Undecided: attrs 23.1 → 26.1 makes it slower together with others, and a gate on torch 2.12.0 → 2.13.0 "
            "stayed inconclusive",
        ),
        (
            make_bisection(changes=RELEASES, cumulative=True, culprits=[[1]]),
            "Slower since attrs 25.1; 24.1 is not",
        ),
        (
            make_bisection(changes=RELEASES, cumulative=True, culprits=[[1, 2]]),
            "attrs 26.1 is slower and 24.1 is not; those between cannot be tried",
        ),
        (make_bisection(changes=TOOLKITS, cumulative=True, culprits=[[1]]), "Slower since 8.2; 8.1 is not"),
        (
            make_bisection(changes=TOOLKITS, cumulative=True, culprits=[[0, 1]]),
            "8.2 is slower and 8.0 is not; those between cannot be tried",
        ),
        (make_bisection("none", changes=TOOLKITS, cumulative=True), "8.2 is not slower than 8.0"),
        (
            make_bisection("undecided", changes=TOOLKITS, cumulative=True, suspects=[0, 1]),
            "Undecided: a gate stayed inconclusive; the culprit is among 8.1, 8.2",
        ),
    ],
)
def test_result_line__each_outcome__one_sentence(document: BisectionDocument, line: str) -> None:
    assert BisectionWords(document).result == line


def test_render_bisection__tried_stacks__each_with_its_answer_and_nothing_a_terminal_obeys() -> None:
    tried = [
        BisectionTrial(changes=[0, 1, 2], answer="slow", answered_by="gate", folder="gates/01", repeated=True),
        BisectionTrial(changes=[0], answer="impossible", reason="needs \x1b[2Jattrs 26"),
        BisectionTrial(changes=[1], answer="fast", answered_by="gate", folder="gates/03"),
        BisectionTrial(changes=[2], answer="fast", answered_by="count"),
    ]
    console = Console(file=io.StringIO(), width=140)
    render_bisection(make_bisection(culprits=[[0]], tried=tried), console, language="en")
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "3 gates · in 6 m 12 s · 1 answer by counters alone · 1 stack could not be tried" in text
    assert "not slower (counted)" in text
    assert "slower (measured twice)" in text
    assert "cannot be tried: needs" in text
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("slow", "confirmed by a gate against the preceding commit"),
        (
            "fast",
            "a gate of this commit alone, against the preceding one, shows no regression: "
            "earlier commits may be needed as well",
        ),
        ("undecided", "a gate of this commit alone, against the preceding one, was inconclusive"),
        ("impossible", "a gate of this commit alone, against the preceding one, was inconclusive"),
    ],
)
def test_certainty__gate_of_the_culprit_alone__an_undecided_one_neither_confirms_nor_denies(
    answer: Any, line: str
) -> None:
    document = make_bisection(culprits=[[0]], confirmation=BisectionTrial(changes=[0], answer=answer))
    assert BisectionWords(document).certainty == [line]


def test_certainty__culprit_alone_cannot_be_gated__said_with_the_reason() -> None:
    trial = BisectionTrial(changes=[0], answer="impossible", reason="the old state cannot be measured")
    document = make_bisection(culprits=[[0]], confirmation=trial)
    assert BisectionWords(document).certainty == [
        "this commit alone, against the preceding one, cannot be measured: the old state cannot be measured"
    ]

"""A regression that somebody accepted is shown and does not fail the gate; a wrong output cannot be accepted."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import Acceptance, History
from perfgate.document.run import CorrectnessResult, RunDocument
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.fakes.records import changed
from tests.unit.gate.builders import sides
from tests.wording import worded

SLOWER = [1.10 + 0.0005 * (-1) ** pair for pair in range(14)]


def judged(base: RunDocument, head: RunDocument, **fields: str) -> DecisionDocument:
    said = Acceptance(
        **{
            "commit": head.source.commit or "",
            "metric": "*",
            "reason": "the new layer costs this",
            "accepted_by": "Li Wei",
            "accepted_at": "2026-03-01",
            **fields,
        }
    )
    return decide(base, head, policy=Policy(), history=History(accepted=[said]))


def test_accepted__every_metric__warns_and_says_who_and_why() -> None:
    base, head = sides(SLOWER)
    decision = judged(base, head)
    assert decision.verdict == "WARN"
    assert all(reason.startswith("accepted: encoder/long") for reason in worded(decision.reasons))
    slower = [found for found in decision.comparisons if found.outcome == "regressed"]
    assert slower
    assert {found.accepted for found in slower} == {"Li Wei: the new layer costs this"}
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate:v1:demo -->"))
    assert "ms), accepted by Li Wei: the new layer costs this" in comment
    assert "| **accepted** |" in comment


@pytest.mark.parametrize(
    "fields",
    [{"commit": "0" * 40}, {"metric": "memory.*"}, {"metric": "*@decoder"}, {"metric": "latency.low"}],
    ids=["another commit", "another metric", "another workload", "one of several metrics"],
)
def test_accepted__not_all_of_it__still_fails(fields: dict[str, str]) -> None:
    assert judged(*sides(SLOWER), **fields).verdict == "FAIL"


def test_accepted__uncommitted_changes__are_not_what_was_accepted() -> None:
    base, head = sides(SLOWER)
    dirty = msgspec.structs.replace(head, source=msgspec.structs.replace(head.source, dirty=True))
    assert judged(base, dirty).verdict == "FAIL"


def test_accepted__wrong_output__fails_all_the_same() -> None:
    base, head = sides([1.0] * 14)
    wrong = CorrectnessResult(workload="encoder", shape="long", status="failed", message="off by 3")
    assert judged(base, changed(head, correctness=[wrong])).verdict == "FAIL"

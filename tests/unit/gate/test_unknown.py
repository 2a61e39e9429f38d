"""Documents of a newer perfgate, and values that are no measurements: they are named, and never end the judging by a crash."""

from __future__ import annotations

import msgspec
import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import canonical_bytes, parse_run
from perfgate.document.history import History
from perfgate.document.job import Turn
from perfgate.document.run import Finding, RunDocument, StepResult
from perfgate.errors import DocumentError
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from tests.each import each
from tests.fakes.records import changed
from tests.unit.gate import test_turns
from tests.unit.gate.builders import counters, sides

COUNTERS = [name for name, entry in METRICS.items() if name.startswith("counters.") and entry.origin.counted]


def judged(base: RunDocument, head: RunDocument) -> DecisionDocument:
    decision = decide(base, head, policy=Policy(), history=History())
    render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    return decision


def checked() -> tuple[RunDocument, RunDocument]:
    base, head = sides([1.0 + 0.0005 * (-1) ** pair for pair in range(14)])
    return tuple(changed(run, counters=[counters({"aten::mm": 40})]) for run in (base, head))  # type: ignore[return-value]


def counting(run: RunDocument, name: str, count: int) -> RunDocument:
    (found,) = run.checklist.counters
    return changed(
        run, counters=[msgspec.structs.replace(found, values={**found.values, f"{name}_of_tomorrow": count})]
    )


def test_decide__no_counter_of_a_newer_perfgate__pass() -> None:
    assert judged(*checked()).verdict == "PASS"


@pytest.mark.parametrize(("after", "verdict"), [(3, "PASS"), (4, "INCONCLUSIVE"), (2, "INCONCLUSIVE")])
@each("name", COUNTERS)
def test_decide__counter_of_a_newer_perfgate__named_and_not_judged(name: str, after: int, verdict: str) -> None:
    base, head = checked()
    decision = judged(counting(base, name, 3), counting(head, name, after))
    assert decision.verdict == verdict
    (note,) = [note for note in decision.warnings if note.code == "gate.not-judged-by-this-version"]
    assert f"{name}_of_tomorrow" in note.values["names"]


def test_decide__rule_of_a_newer_perfgate__named() -> None:
    base, head = checked()
    finding = Finding(rule="tomorrow.rule", severity="warning")
    step = StepResult(number=4, slug="census", workload="", status="ok", findings=[finding])
    decision = judged(base, changed(head, steps=[*head.checklist.steps, step]))
    assert "tomorrow.rule" in decision.warnings[0].values["names"]


@pytest.mark.parametrize("times", [("2026-11-20T10:00:00Z", "2026-11-20T10:05:00"), ("2026-11-20T10:00:00Z", "soon")])
def test_decide__times_that_cannot_be_subtracted__refused(times: tuple[str, str]) -> None:
    base, head = checked()
    session = msgspec.structs.replace(head.session, started_at=times[0], finished_at=times[1])
    with pytest.raises(DocumentError, match="not ISO 8601 with a time zone"):
        judged(base, msgspec.structs.replace(head, session=session))


def scaled(run: RunDocument, value: float) -> RunDocument:
    def scaled_turn(turn: Turn) -> Turn:
        return msgspec.structs.replace(turn, values={**turn.values, test_turns.TPOT: value}) if turn.quad else turn

    return changed(run, turns=[scaled_turn(turn) for turn in run.jobs.turns])


@pytest.mark.parametrize("value", [1e308, -1e308, 1e-300])
def test_parse_run__number_of_a_job_that_nothing_measures__refused(value: float) -> None:
    run = scaled(test_turns.runs(0.0)[1], value)
    with pytest.raises(DocumentError, match="outside what is measured"):
        parse_run(canonical_bytes(run, name="run.json"), name="run.json")


@pytest.mark.parametrize(("value", "outcome"), [(1e30, "regressed"), (1e-30, "improved")])
def test_decide__largest_and_smallest_numbers_of_a_job__judged(value: float, outcome: str) -> None:
    base, head = test_turns.runs(0.0)
    assert test_turns.outcome(test_turns.judged(base, scaled(head, value))) in (outcome, "inconclusive")

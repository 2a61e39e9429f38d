"""Whether a gate's verdicts justify letting it block."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.document.history import Acceptance, GateRecord
from perfgate.judging.report.view.trend_rows import gates_line
from perfgate.judging.trend.gates import gate_history
from perfgate.locale import speaking
from tests.fakes.trends import make_trend, make_triage


def record(
    number: int, verdict: Any = "PASS", *, change: int = 0, testbed: str = "", gate: str = "default"
) -> GateRecord:
    """Return the verdict on the commit of a day."""
    return GateRecord(
        gate=gate,
        commit=f"{number:040x}",
        testbed=testbed,
        change=change or number,
        verdict=verdict,
        judged_at=f"2026-11-{number:02}T10:00:00+00:00",
    )


def accepted(number: int) -> Acceptance:
    return Acceptance(
        commit=f"{number:040x}", metric="*", reason="meant", accepted_by="ann", accepted_at="2026-11-30T10:00:00+00:00"
    )


def told(*records: GateRecord, acceptances: tuple[Acceptance, ...] = ()) -> str:
    with speaking("en"):
        return str(gates_line(make_trend(gates=gate_history(records, acceptances, triages=()))))


def test_gate_history__no_verdict_kept__none() -> None:
    assert gate_history([], [], triages=()) is None
    assert told() == "None"


def test_gate_history__a_failure_that_a_later_commit_mended__is_withdrawn() -> None:
    records = [record(1, "FAIL", change=7), record(2, "PASS", change=7), record(3, "INCONCLUSIVE")]
    history = gate_history(records, [], triages=())
    assert history is not None
    assert (history.gates, history.failed, history.withdrawn, history.accepted, history.undecided) == (3, 1, 1, 0, 1)
    assert (history.standing, history.proven) == ([], False)


@pytest.mark.parametrize(
    "other",
    [
        record(1, "PASS", change=7),  # an earlier commit
        record(3, "PASS", change=8),  # another change
        record(3, "INCONCLUSIVE", change=7),  # nothing decided
        record(3, "PASS", change=7, gate="gpu"),  # another gate
    ],
)
def test_gate_history__a_failure_that_nothing_mended__stands(other: GateRecord) -> None:
    history = gate_history([record(2, "FAIL", change=7), other], [], triages=())
    assert history is not None
    assert (history.failed, history.withdrawn) == (1, 0)
    assert [one.commit for one in history.standing] == [f"{2:040x}"]


def test_gate_history__several_testbeds__are_one_gate_that_fails_if_one_of_them_does() -> None:
    history = gate_history([record(1, "PASS", testbed="a3"), record(1, "FAIL", testbed="910b")], [], triages=())
    assert history is not None
    assert (history.gates, history.failed) == (1, 1)


def test_gate_history__accepted_and_judged_again__has_failed_before() -> None:
    history = gate_history([record(1, "WARN"), record(2, "PASS")], [accepted(1)], triages=())
    assert history is not None
    assert (history.failed, history.accepted, history.withdrawn, history.standing) == (1, 1, 0, [])


def test_gate_history__triaged_commits__expected_is_accepted_and_others_keep_their_state() -> None:
    states = [make_triage(commit=f"{1:040x}", state="expected"), make_triage(commit=f"{2:040x}")]
    history = gate_history([record(1, "FAIL"), record(2, "FAIL")], [], states)
    assert history is not None
    assert (history.failed, history.accepted) == (2, 1)
    assert history.triages == states[1:]


def test_gates_line__few_gates__names_how_many_it_takes() -> None:
    assert told(record(1), record(2, "FAIL", change=1)) == (
        "2 gates: 1 would have failed, 0 of them withdrawn or accepted. Look at 000000000 before the gate blocks."
    )
    assert told(record(1)) == (
        "1 gate: 0 would have failed, 0 of them withdrawn or accepted. Let the gate block after 20 gates."
    )


def test_gates_line__twenty_gates_and_every_failure_settled__the_gate_may_block() -> None:
    records = [*(record(day) for day in range(1, 21)), record(21, "FAIL"), record(22, "FAIL", change=23), record(23)]
    assert told(*records, acceptances=(accepted(21),)) == (
        "23 gates: 2 would have failed, 2 of them withdrawn or accepted. Let the gate block: set fail-on to regression."
    )
    assert "Look at" in told(*records)

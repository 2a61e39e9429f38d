"""Steps that base and head measure in turns, on real processes. What is named without time for turns: test_check.py."""

from __future__ import annotations

import pytest

from perfgate.catalogue.names import HOST_UTILIZATION
from perfgate.document.decision import StepComparison, TurnDifference
from perfgate.document.files import read_decision, read_run
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import TimedLane, deciding_clocks
from perfgate.judging.gate.evidence.sampled import SAMPLED
from tests.end_to_end.conftest import Clone, Perfgate

OF_STRETCHES = {"latency.p90", "latency.tail", "latency.std"}


def unit_of(row: StepComparison) -> str | None:
    return row.difference.unit if isinstance(row.difference, TurnDifference) else None


@pytest.mark.slow
def test_check__time_for_turns__differences_have_intervals_of_six_turns_and_no_other_number_has_one(
    perfgate: Perfgate, clone: Clone
) -> None:
    settings = clone.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("checklist_budget = 0", "checklist_budget = 600"))
    clone.git("checkout", "-q", "main")
    clone.commit("time for turns")
    clone.git("checkout", "-q", "-B", "feature")
    (clone.root / "model.py").write_text((clone.root / "model.py").read_text() + "\nUNUSED = 1\n")
    clone.commit("nothing slower")
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "1,4,12,17", cwd=clone.root)
    assert done.returncode in (0, 3, 4), done.stderr
    decision = read_decision(clone.root / "out" / "decision.json")
    rows = {(row.metric, unit_of(row)) for row in decision.checklist.numbers}
    assert ("memory.resident", "turn") in rows
    of_calls = SAMPLED - {HOST_UTILIZATION}
    assert {metric for metric, _ in rows} >= of_calls
    # Where workers had to wait for a CPU, no clock that sees single calls may be fair to both sides. Long stretches leave the
    # waits out.
    sides = [read_run(clone.root / "out" / side / "run.json") for side in ("base", "head")]
    clocks = deciding_clocks(*(side.pairs.replicates for side in sides))
    set_aside = {entry.workload for entry in decision.gaps.invalid}
    has_stretches = any(replicate.arm == "stretch" for replicate in sides[1].pairs.replicates)
    for row in [row for row in decision.checklist.numbers if row.metric in of_calls]:
        clock = clocks.get(TimedLane(ShapePlace(row.workload, row.shape), preprocess=False), "wall")
        is_fair = clock is not None and clock != "awake"
        is_of_stretches = has_stretches and row.metric in OF_STRETCHES
        is_compared = (is_fair or is_of_stretches) and row.workload not in set_aside
        assert unit_of(row) == ("pair" if is_compared else None), (row, clock)
    for row in decision.checklist.numbers:
        if isinstance(row.difference, TurnDifference):
            assert (row.difference.delta is None) == (row.difference.interval is None), row
        if unit_of(row) == "turn":
            assert row.difference.count == 6, row
    for side in sides:
        turns = {value.labels.get("repeat") for step in side.checklist.steps for value in step.values}
        assert turns >= {None, "2", "3", "4", "5", "6"}

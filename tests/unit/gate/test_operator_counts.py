"""How often base and head run their operators, by each side's own trace."""

from __future__ import annotations

from perfgate.document.run import OperatorRow, RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.operators import operator_changes
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides


def traced(run: RunDocument, **ops: tuple[float, float]) -> RunDocument:
    """Return a side whose trace has these operators: calls a call, and share of the time."""
    rows = [
        OperatorRow(workload=WORKLOAD, shape=SHAPE, op=op, kind="host", self_time=share / 100, count=count, share=share)
        for op, (count, share) in ops.items()
    ]
    return changed(run, operators=rows)


def both(base: dict[str, tuple[float, float]], head: dict[str, tuple[float, float]]) -> tuple[RunDocument, RunDocument]:
    before, after = sides([1.0] * 8)
    return traced(before, **base), traced(after, **head)


def test_operator_changes__times_of_two_traces_differ__only_counts_are_a_change() -> None:
    runs = both({"mm": (8, 0.9), "relu": (8, 0.1)}, {"mm": (8, 0.2), "relu": (8, 0.8)})
    assert operator_changes(WorkTable(Evidence(*runs)).listed) == []
    assert WorkTable(Evidence(*runs)).changed_operators(ShapePlace(WORKLOAD, SHAPE)) == set()


def test_operator_changes__came_went_and_more__those_whose_other_runs_weigh_most_first() -> None:
    runs = both(
        {"sdpa": (2, 0.3), "copy": (9, 0.1), "mm": (8, 0.5), "view": (4, 0.001)},
        {"bmm": (16, 0.2), "copy": (25, 0.1), "mm": (8, 0.5), "view": (8, 0.001), "to": (1, 0.0)},
    )
    changes = operator_changes(WorkTable(Evidence(*runs)).listed)
    assert [(change.op, change.base_count, change.head_count) for change in changes] == [
        ("sdpa", 2, 0),
        ("bmm", 0, 16),
        ("copy", 9, 25),
        ("to", 0, 1),
    ]
    assert WorkTable(Evidence(*runs)).changed_operators(ShapePlace(WORKLOAD, SHAPE)) == {
        "sdpa",
        "bmm",
        "copy",
        "to",
        "view",
    }


def test_operator_changes__counts_that_no_trace_has__no_error() -> None:
    work = WorkTable(Evidence(*both({"mm": (-3, 0.5)}, {"mm": (0, 0.5)})))
    assert [change.op for change in operator_changes(work.listed)] == ["mm"]

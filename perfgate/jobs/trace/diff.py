"""``perfgate trace diff``: what two recordings do differently, operator by operator."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from perfgate.document.alignment import AlignedRow, TimedRow, align
from perfgate.document.trace import DiffCost, DiffDocument, DiffRow, DiffTimeline, DiffTotals, TopKind
from perfgate.errors import UsageError
from perfgate.jobs.trace.job import Choice, ChosenTimeline, choose
from perfgate.trace.rows import UnitWork, unit_work

_NS = 1e9
# Two recordings of one program differ by this much in the time of an operator on a machine that others use too.
TOLERANCE = 0.05


def trace_diff(base: Path, head: Path, choice: Choice, *, tolerance: float = TOLERANCE) -> DiffDocument:
    """Return the differences of every timeline that both recordings have; times whose ratio is near 1 are the same.

    Raises UsageError where they have none in common, or one counts by steps and the other cannot.
    """
    before, after = _labelled(choose(base, choice)), _labelled(choose(head, choice))
    if len(before) == len(after) == 1:
        before = dict(zip(after, before.values()))
    shared = [label for label in after if label in before]
    if not shared:
        raise UsageError(
            f"{base} holds {', '.join(before)} and {head} holds {', '.join(after)}; choose with --rank and --device"
        )
    return DiffDocument(
        base=str(base),
        head=str(head),
        tolerance=tolerance,
        timelines=[_diff(label, before[label], after[label], choice, tolerance) for label in shared],
        unmatched=sorted(before.keys() ^ after.keys()),
    )


def _labelled(chosen: Sequence[ChosenTimeline]) -> dict[str, ChosenTimeline]:
    several = len({one.recording.path for one in chosen}) > 1
    return {
        f"{one.recording.path.name}, {one.timeline.label}" if several else one.timeline.label: one for one in chosen
    }


def _diff(label: str, base: ChosenTimeline, head: ChosenTimeline, choice: Choice, tolerance: float) -> DiffTimeline:
    before, after = unit_work(base.timeline), unit_work(head.timeline)
    if before.unit != after.unit:
        raise UsageError(
            f"{label}: base was recorded by {before.unit} and head by {after.unit}, so their times are of different "
            "amounts of work; record both alike"
        )
    pairs = align(before.rows, after.rows)
    changed = [pair for pair in pairs if pair.change(tolerance=tolerance) != "same"]
    return DiffTimeline(
        label=label,
        unit=before.unit,
        units=(before.units, after.units),
        base=_totals(before),
        head=_totals(after),
        rows_in_all=len(changed),
        same=len(pairs) - len(changed),
        rows=[_row(pair, tolerance) for pair in changed[: choice.limit]],
    )


def _row(pair: AlignedRow, tolerance: float) -> DiffRow:
    return DiffRow(
        name=pair.row.op,
        kind=cast(TopKind, pair.row.kind),
        change=pair.change(tolerance=tolerance),
        base=_cost(pair.base),
        head=_cost(pair.head),
        delta=pair.delta / _NS,
        by_count=pair.by_count / _NS,
        by_speed=pair.by_speed / _NS,
    )


def _cost(row: TimedRow | None) -> DiffCost | None:
    return None if row is None else DiffCost(time=row.time / _NS, count=row.count, shapes=row.shape, line=row.line)


def _totals(work: UnitWork) -> DiffTotals:
    return DiffTotals(
        kernel=_seconds(work.kernel_ns),
        copy=_seconds(work.copy_ns),
        communication=_seconds(work.communication_ns),
        gap=_seconds(work.gap_ns),
        host=_seconds(work.host_ns),
    )


def _seconds(nanoseconds: float | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / _NS

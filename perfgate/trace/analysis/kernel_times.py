"""Durations, counters and clocks of the kernels of each step: times that repeat."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.run import KernelTimes, KernelWork
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    Codes,
    FloatColumn,
    IntColumn,
    Intervals,
    Positions,
    group_rows,
)
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.readings import Readings
from perfgate.trace.model.spans import OUTSIDE

# Columns of AiCMetrics.PipeUtilization, in microseconds; without a prefix on chips with
# one kind of core (310P, 910A).
_MAC = ("aic_mac_time(us)", "mac_time(us)")
_VEC = ("aiv_vec_time(us)", "vec_time(us)")


# Units of the column Accelerator Core that do not run at the core clock: the device's
# CPU and its random number generator.
_OTHER_CLOCKS = ("AI_CPU", "DSA_SQE")


def kernel_times(summary: DeviceSummary, workload: str) -> KernelTimes | None:
    """The times of the kernels in each step; None if the recording marks no steps or
    shows no kernel.
    """
    if summary.on_host or not summary.work or summary.unit == "whole recording":
        return None
    events, owners = summary.work[0]
    runs = np.flatnonzero((owners != OUTSIDE) & events.is_kind("compute"))
    if not runs.size:
        return None
    steps = np.bincount(
        owners[runs], weights=events.duration[runs] / 1e9, minlength=summary.spans
    )
    rows = sorted(_rows(runs, summary), key=lambda row: (row.op, row.inputs))
    return KernelTimes(
        workload=workload,
        shape=summary.shape,
        steps=summary.spans,
        seconds=[round(step, 12) for step in steps.tolist()],
        mac=_sum([row.mac for row in rows]),
        vec=_sum([row.vec for row in rows]),
        rows=rows,
    )


def _operators(
    runs: Positions, summary: DeviceSummary
) -> tuple[list[tuple[str, str]], Codes]:
    """The operators with their inputs, and the position of the operator of each run."""
    if not summary.timeline.kernels:
        events = summary.work[0].events
        group = events.group[runs]
        first, number = group_rows(group)
        return [(events.names[code], "") for code in group[first].tolist()], number
    # The events match the rows of the table one to one.
    kernels = summary.timeline.kernel_columns
    operators = []
    for kernel, _, _ in kernels.alike():
        operators.append(
            (kernel.type or type_by_name(kernel.name), kernel.inputs.notation)
        )
    numbers = Numbering[tuple[str, str]]()
    number_of = numbers.codes(operators)
    return list(numbers), number_of[kernels.alike_number[runs]]


def _rows(runs: Positions, summary: DeviceSummary) -> Iterator[KernelWork]:
    """The medians over the steps for each operator; ``runs`` are the kernels that
    belong to a step, without collectives.
    """
    events, owners = summary.work[0]
    operators, number = _operators(runs, summary)
    shape = len(operators), summary.spans
    cell = number.astype(np.int64) * summary.spans + owners[runs]
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    sums = np.bincount(cell, weights=events.duration[runs] / 1e9, minlength=counts.size)
    times = np.median(sums.reshape(shape), axis=1)
    counters = summary.timeline.kernel_columns.counters
    mac = _of_units(counters.columns(*_MAC).values(), runs, cell, shape)
    vec = _of_units(counters.columns(*_VEC).values(), runs, cell, shape)
    for place, (op, inputs) in enumerate(operators):
        if counts[place].any():
            yield KernelWork(
                op=op,
                inputs=inputs,
                count=statistics.median(counts[place].tolist()),
                seconds=round(float(times[place]), 12),
                mac=mac[place],
                vec=vec[place],
            )


def _of_units(
    counters: Iterable[FloatColumn],
    runs: Positions,
    cell: IntColumn,
    shape: tuple[int, int],
) -> list[float | None]:
    """The median seconds over the steps for each operator, None for one without counts.

    Of several counters, in microseconds, the first with a number counts.
    """
    first: FloatColumn | None = None
    for column in counters:
        first = column if first is None else np.where(np.isnan(first), column, first)
    if first is None:
        return [None] * shape[0]
    times = first[runs] / 1e6
    present = ~np.isnan(times)
    operators, steps = shape
    counted = np.bincount(cell[present] // steps, minlength=operators)
    sums = np.bincount(
        cell, weights=np.where(present, times, 0.0), minlength=operators * steps
    )
    medians = np.median(np.round(sums.reshape(shape), 12), axis=1)
    seconds = []
    for median, count in zip(medians.tolist(), counted.tolist()):
        seconds.append(round(median, 12) if count else None)
    return seconds


def _sum(values: Sequence[float | None]) -> float | None:
    """None if no value is known."""
    if values.count(None) == len(values):
        return None
    return round(sum(value or 0.0 for value in values), 12)


class KernelClock(NamedTuple):
    """All kernels of one type: their nanoseconds, and their clock in hertz: the mean
    over that time, and the lowest.
    """

    op: str
    time_ns: int
    hertz: float
    lowest: float


def kernel_clocks(table: KernelTable, clock: Readings) -> list[KernelClock]:
    """The types that run on the cores, most time first; empty if the table has no start
    times of kernels.
    """
    other_units = [
        code for code, text in enumerate(table.texts) if text.upper() in _OTHER_CLOCKS
    ]
    on_cores = ~np.isin(table.codes["core"], other_units)
    rows = table.select(on_cores & (table.start != NO_NUMBER) & (table.duration > 0))
    if not len(rows):
        return []
    hertz = clock.lowest_during(Intervals(rows.start, rows.start + rows.duration))
    codes, place = np.unique(rows.group, return_inverse=True)
    times = np.bincount(place, weights=rows.duration)
    means = np.bincount(place, weights=rows.duration * hertz) / times
    lowest = np.full(codes.size, np.inf)
    np.minimum.at(lowest, place, hertz)
    clocks = []
    for code, time, mean, least in zip(
        codes.tolist(), times.tolist(), means.tolist(), lowest.tolist()
    ):
        clocks.append(KernelClock(rows.texts[code], round(time), mean, least))
    return sorted(clocks, key=lambda row: (-row.time_ns, row.op))

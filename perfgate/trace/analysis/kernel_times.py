"""Durations and hardware counters of the kernels of each recorded step: times that repeat."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.document.run import KernelTimes, KernelWork
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.arithmetic import Codes, FloatColumn, IntColumn, group_rows
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.spans import OUTSIDE

# Columns of AiCMetrics.PipeUtilization, in microseconds; without a prefix on chips with one kind of core (310P, 910A).
_MAC = ("aic_mac_time(us)", "mac_time(us)")
_VEC = ("aiv_vec_time(us)", "vec_time(us)")


class _Runs(NamedTuple):
    """The kernels that belong to a step, without collectives, as ``rows`` of a recording's work.

    ``key`` indexes ``keys``, operator and inputs; ``owner`` is the step.
    """

    rows: npt.NDArray[np.intp]
    keys: Sequence[tuple[str, str]]
    key: Codes
    owner: Codes


def kernel_times(summary: DeviceSummary, workload: str) -> KernelTimes | None:
    """The times of the kernels in each step; None if the recording marks no steps or shows no kernel."""
    if summary.on_host or not summary.work or summary.unit == "whole recording":
        return None
    runs = _runs(summary)
    if not runs.rows.size:
        return None
    seconds = summary.work[0].events.duration[runs.rows] / 1e9
    steps = np.bincount(runs.owner, weights=seconds, minlength=summary.spans)
    rows = sorted(_rows(runs, seconds, summary), key=lambda row: (row.op, row.inputs))
    return KernelTimes(
        workload=workload,
        shape=summary.shape,
        steps=summary.spans,
        seconds=[round(step, 12) for step in steps.tolist()],
        mac=_sum(row.mac for row in rows),
        vec=_sum(row.vec for row in rows),
        rows=rows,
    )


def _runs(summary: DeviceSummary) -> _Runs:
    events, owners = summary.work[0]
    rows = np.flatnonzero((owners != OUTSIDE) & events.is_kind("compute"))
    if not summary.timeline.kernels:
        first, key = group_rows(events.group[rows])
        names = events.group[rows[first]].tolist()
        return _Runs(rows, [(events.names[code], "") for code in names], key, owners[rows])
    # The events match the rows of the table one to one.
    kernels = KernelTable.of(summary.timeline.kernels)
    keys: dict[tuple[str, str], int] = {}
    key_of = [
        keys.setdefault((kernel.type or type_by_name(kernel.name), kernel.inputs), len(keys))
        for kernel, _, _ in kernels.alike()
    ]
    return _Runs(rows, list(keys), np.array(key_of, dtype=np.int32)[kernels.alike_number[rows]], owners[rows])


def _rows(runs: _Runs, seconds: FloatColumn, summary: DeviceSummary) -> Iterator[KernelWork]:
    """The medians over the steps for each key."""
    shape = len(runs.keys), summary.spans
    cell = runs.key.astype(np.int64) * summary.spans + runs.owner
    counts = np.bincount(cell, minlength=shape[0] * shape[1]).reshape(shape)
    times = np.median(np.bincount(cell, weights=seconds, minlength=counts.size).reshape(shape), axis=1)
    kernels = KernelTable.of(summary.timeline.kernels or ())
    mac, vec = (_of_units(_first(kernels, names, runs.rows), cell, shape) for names in (_MAC, _VEC))
    for (op, inputs), count, time, *units in zip(runs.keys, counts.tolist(), times.tolist(), mac, vec):
        if any(count):
            median = statistics.median(count)
            yield KernelWork(op=op, inputs=inputs, count=median, seconds=round(time, 12), mac=units[0], vec=units[1])


def _of_units(times: FloatColumn | None, cell: IntColumn, shape: tuple[int, int]) -> list[float | None]:
    """The median over the steps for each key, None for a key without counts."""
    if times is None:
        return [None] * shape[0]
    known = ~np.isnan(times)
    told = np.bincount(cell[known] // shape[1], minlength=shape[0]) > 0
    sums = np.bincount(cell, weights=np.where(known, times, 0.0), minlength=shape[0] * shape[1]).reshape(shape)
    medians = np.median(np.round(sums, 12), axis=1)
    return [round(median, 12) if any_told else None for median, any_told in zip(medians.tolist(), told.tolist())]


def _first(kernels: KernelTable, names: Sequence[str], rows: npt.NDArray[np.intp]) -> FloatColumn | None:
    """Seconds of the first of some counters, in microseconds, that has a number; None if there is no such counter."""
    times: FloatColumn | None = None
    for column in kernels.counters.columns(*names).values():
        times = column if times is None else np.where(np.isnan(times), column, times)
    return None if times is None else times[rows] / 1e6


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(sum(numbers), 12) if numbers else None

"""How long the kernels of each recorded step took, and what the hardware counted of them: times that repeat."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from perfgate.document.run import KernelTimes, KernelWork
from perfgate.trace.ascend.kinds import type_by_name
from perfgate.trace.events import KIND_CODES
from perfgate.trace.recording import Kernel
from perfgate.trace.spans import OUTSIDE
from perfgate.trace.summary import DeviceSummary

# Columns of AiCMetrics.PipeUtilization, in microseconds; without a prefix on chips with one kind of core (310P, 910A).
_MAC = ("aic_mac_time(us)", "mac_time(us)")
_VEC = ("aiv_vec_time(us)", "vec_time(us)")


class _Key(NamedTuple):
    op: str
    inputs: str


class _Run(NamedTuple):
    """One run of a kernel: which step it belongs to, and seconds."""

    key: _Key
    owner: int
    seconds: float
    mac: float | None = None
    vec: float | None = None


def kernel_times(summary: DeviceSummary, workload: str) -> KernelTimes | None:
    """The times of the kernels in each step; None where the recording marks no steps or shows no kernel."""
    if summary.on_host or not summary.work or summary.unit == "whole recording":
        return None
    runs = list(_runs(summary))
    if not runs:
        return None
    seconds = [0.0] * summary.spans
    by_key: dict[_Key, list[list[_Run]]] = defaultdict(lambda: [[] for _ in range(summary.spans)])
    for run in runs:
        seconds[run.owner] += run.seconds
        by_key[run.key][run.owner].append(run)
    rows = [_row(key, by_step) for key, by_step in sorted(by_key.items())]
    return KernelTimes(
        workload=workload,
        shape=summary.shape,
        steps=summary.spans,
        seconds=[round(step, 12) for step in seconds],
        mac=_sum(row.mac for row in rows),
        vec=_sum(row.vec for row in rows),
        rows=rows,
    )


def _runs(summary: DeviceSummary) -> Iterator[_Run]:
    """The kernels that belong to a step, those of collectives apart: by their table where there is one."""
    events, owners = summary.work[0]
    if summary.timeline.kernels:
        for kernel, owner in zip(summary.timeline.kernels, owners.tolist()):
            if owner != OUTSIDE and not kernel.is_collective:
                key = _Key(kernel.type or type_by_name(kernel.name), kernel.inputs)
                yield _Run(key, owner, kernel.duration_ns / 1e9, _seconds(kernel, _MAC), _seconds(kernel, _VEC))
        return
    columns = zip(events.group.tolist(), events.kind.tolist(), events.duration.tolist(), owners.tolist())
    for group, kind, duration, owner in columns:
        if owner != OUTSIDE and kind == KIND_CODES["compute"]:
            yield _Run(_Key(events.names[group], ""), owner, duration / 1e9)


def _row(key: _Key, by_step: Sequence[Sequence[_Run]]) -> KernelWork:
    return KernelWork(
        op=key.op,
        inputs=key.inputs,
        count=statistics.median(len(step) for step in by_step),
        seconds=round(statistics.median(sum(run.seconds for run in step) for step in by_step), 12),
        mac=_median([[run.mac for run in step] for step in by_step]),
        vec=_median([[run.vec for run in step] for step in by_step]),
    )


def _median(by_step: Sequence[Sequence[float | None]]) -> float | None:
    sums = [_sum(step) for step in by_step]
    if all(step is None for step in sums):
        return None
    return round(statistics.median(step or 0.0 for step in sums), 12)


def _sum(values: Iterable[float | None]) -> float | None:
    numbers = [value for value in values if value is not None]
    return round(sum(numbers), 12) if numbers else None


def _seconds(kernel: Kernel, columns: Iterable[str]) -> float | None:
    return next((kernel.counters[name] / 1e6 for name in columns if name in kernel.counters), None)

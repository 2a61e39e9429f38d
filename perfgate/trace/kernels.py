"""Count what ran on a device in each of several spans: the calls of a measured trace, or the steps of a recording."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount
from perfgate.trace.analysis import IntColumn, Intervals
from perfgate.trace.events import DEVICE_KINDS, KINDS, EventKind, EventTable
from perfgate.trace.launches import launch_starts, launched_or_began
from perfgate.trace.tally import COLLECTIVES

KERNELS = "counters.kernels"
FORMAT_CONVERSIONS = "counters.format_conversions"
DEVICE_COPIES = "counters.device_copies"
RECORDED_OPS = "counters.recorded_ops"
KERNEL_METRICS = (KERNELS, FORMAT_CONVERSIONS, DEVICE_COPIES, COLLECTIVES)
OUTSIDE = -1

_METRIC_OF_KIND = {"copy": DEVICE_COPIES, "comm": COLLECTIVES, "host_op": RECORDED_OPS}

# TransData on Ascend (also as trans_TransData_3 where the profiler knows no types; sample msinsight-910B-alexnet-2501), and
# cuDNN's nchwToNhwcKernel and nhwcToNchwKernel.
_FORMAT_CONVERSION = re.compile(r"transdata|nchwtonhwc|nhwctonchw", re.IGNORECASE)


class WorkItem(NamedTuple):
    """Something that runs: ``compute``, ``copy`` or ``comm`` on a device, ``host_op`` on a CPU; and its type, or its name."""

    kind: EventKind
    name: str


Work = Counter[WorkItem]


def work_by_span(events: EventTable, spans: Intervals) -> list[Work]:
    """Return what the device ran for each span, in the order of the spans, which must be sorted and not overlap."""
    device = events.of_kind(*DEVICE_KINDS)
    owners = span_of(device, spans, launches=events.of_kind("runtime"))
    return count_work(device, owners, spans=spans.start.size)


def count_work(events: EventTable, owners: IntColumn, *, spans: int) -> list[Work]:
    """Return what ran in each of so many spans; ``owners`` are the numbers of their spans, event by event."""
    works = [Work() for _ in range(spans)]
    for owner, kind, group in zip(owners.tolist(), events.kind.tolist(), events.group.tolist()):
        if owner != OUTSIDE:
            works[owner][WorkItem(KINDS[kind], events.names[group])] += 1
    return works


def span_of(events: EventTable, spans: Intervals, *, launches: EventTable) -> IntColumn:
    """Return the number of the span that each event belongs to, OUTSIDE for none.

    Work belongs to the span in which the host launched it, where the trace joins the two: the device may run it when the
    host is a call further. Else it belongs to the span in which it began.
    """
    began = launched_or_began(events, launch_starts(events, launches))
    number = np.searchsorted(spans.start, began, side="right") - 1
    inside = number >= 0
    inside[inside] &= began[inside] < spans.end[number[inside]]
    return np.where(inside, number, OUTSIDE)


def is_format_conversion(name: str) -> bool:
    """Return whether a kernel, by its type or name, only brings a tensor into another layout or format."""
    return _FORMAT_CONVERSION.search(name) is not None


def kernel_counters(work: Work) -> dict[str, int]:
    """Return the counters of one span by metric name."""
    counters = Counter(dict.fromkeys(KERNEL_METRICS, 0))
    for item, count in work.items():
        for metric in _metrics_of(item):
            counters[metric] += count
    return dict(counters)


def with_kernels(counted: CounterSet, works: list[Work], *, absent: Collection[str] = ()) -> CounterSet:
    """Return a set of counters with those of the device added: values of the last span, its kernels, and what is unstable.

    What differs between the spans, the count of a single kernel (``ops.count:NAME``) included, is unstable. The metrics in
    ``absent`` were not recorded and are left out. Collectives that the host dispatched stay as they were counted there, with
    their lines.
    """
    if counted.values.get(COLLECTIVES):
        absent = {*absent, COLLECTIVES}
    last = works[-1]
    repeats = [{**kernel_counters(work), **_op_counts(work)} for work in works]
    sites = [site for site in _sites(last) if site.metric not in absent]
    return msgspec.structs.replace(
        counted,
        values={**counted.values, **{k: v for k, v in kernel_counters(last).items() if k not in absent}},
        ops=[*counted.ops, *_ops(last)],
        unstable=sorted({*counted.unstable, *(name for name in _differing(repeats) if name not in absent)}),
        sites=[*counted.sites, *sites],
    )


def with_kernel_lines(counted: CounterSet, rows: Iterable[CallRow]) -> CounterSet:
    """Return a set of counters whose kernels have the lines that launched them, from the rows of an account of a call.

    A counter is exact, so its sites are divided among lines only where the rows hold each of its kernels.
    """
    by_name: dict[str, list[CallRow]] = {}
    for row in rows:
        if row.kind in DEVICE_KINDS:
            by_name.setdefault(row.op, []).append(row)
    return msgspec.structs.replace(
        counted,
        ops=[_op_at_line(op, by_name.get(op.op, [])) for op in counted.ops],
        sites=[at_line for site in counted.sites for at_line in _at_lines(site, by_name.get(site.name, []))],
    )


def _op_at_line(op: OpCount, rows: list[CallRow]) -> OpCount:
    counts: Counter[str] = Counter()
    for row in rows:
        if row.line is not None:
            counts[row.line] += round(row.count)
    return msgspec.structs.replace(op, line=counts.most_common(1)[0][0]) if counts and op.line is None else op


def _at_lines(site: CounterSite, rows: list[CallRow]) -> list[CounterSite]:
    if site.metric not in KERNEL_METRICS or site.line is not None or sum(row.count for row in rows) != site.count:
        return [site]
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for row in rows:
        counts[row.line, row.code] += round(row.count)
    return [msgspec.structs.replace(site, count=count, line=line, code=code) for (line, code), count in counts.items()]


def _metrics_of(item: WorkItem) -> tuple[str, ...]:
    if item.kind in _METRIC_OF_KIND:
        return (_METRIC_OF_KIND[item.kind],)
    return (KERNELS, FORMAT_CONVERSIONS) if is_format_conversion(item.name) else (KERNELS,)


def _op_counts(work: Work) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item, count in work.items():
        counts[f"ops.count:{item.name}"] += count
    return dict(counts)


def _differing(repeats: Iterable[dict[str, int]]) -> list[str]:
    repeats = list(repeats)
    names = sorted({name for values in repeats for name in values})
    return [name for name in names if len({values.get(name, 0) for values in repeats}) > 1]


def _ops(work: Work) -> list[OpCount]:
    counts: Counter[str] = Counter()
    for item, count in work.items():
        counts[item.name] += count
    return [OpCount(op=name, count=count) for name, count in sorted(counts.items(), key=lambda one: (-one[1], one[0]))]


def _sites(work: Work) -> list[CounterSite]:
    sites = [
        CounterSite(metric=metric, name=item.name, count=count)
        for item, count in work.items()
        for metric in _metrics_of(item)
    ]
    return sorted(sites, key=lambda site: (site.metric, site.name))

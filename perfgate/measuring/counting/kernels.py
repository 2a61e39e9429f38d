"""Counters of a call that a trace tells, and operators that the device leaves to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount
from perfgate.measuring.counting.tally import FRAMEWORK_OPS, differing
from perfgate.trace.events import DEVICE_KINDS
from perfgate.trace.spans import (
    COLLECTIVES,
    DEVICE_COPIES,
    FORMAT_CONVERSIONS,
    KERNEL_METRICS,
    KERNELS,
    Work,
    WorkItem,
    is_format_conversion,
)

RECORDED_OPS = "counters.recorded_ops"
FALLBACKS = "counters.fallbacks"
_METRIC_OF_KIND = {"copy": DEVICE_COPIES, "comm": COLLECTIVES, "host_op": RECORDED_OPS}


def kernel_counters(work: Work) -> dict[str, int]:
    counters = Counter(dict.fromkeys(KERNEL_METRICS, 0))
    for item, count in work.items():
        for metric in _metrics_of(item):
            counters[metric] += count
    return dict(counters)


def with_kernels(counted: CounterSet, works: list[Work], *, absent: Collection[str] = ()) -> CounterSet:
    """Add the counters of the device: values of the last span, its kernels, and what is unstable.

    What differs between the spans, the count of a single kernel (``ops.count:NAME``) included, is unstable. The metrics in
    ``absent`` were not recorded and are left out. Collectives that the host dispatched stay as they were counted there, with
    their lines.
    """
    absent = {*absent, COLLECTIVES} if counted.values.get(COLLECTIVES) else absent
    repeats = []
    for work in works:
        counts: Counter[str] = Counter()
        for item, count in work.items():
            counts[item.name] += count
        repeats.append({**kernel_counters(work), **{f"ops.count:{name}": count for name, count in counts.items()}})
    ops = [OpCount(op=name, count=count) for name, count in counts.items()]
    sites = [
        CounterSite(metric=metric, name=item.name, count=count)
        for item, count in works[-1].items()
        for metric in _metrics_of(item)
        if metric not in absent
    ]
    values = {metric: value for metric, value in kernel_counters(works[-1]).items() if metric not in absent}
    return msgspec.structs.replace(
        counted,
        values={**counted.values, **values},
        ops=[*counted.ops, *sorted(ops, key=lambda op: (-op.count, op.op))],
        unstable=sorted({*counted.unstable, *(name for name in differing(repeats) if name not in absent)}),
        sites=[*counted.sites, *sorted(sites, key=lambda site: (site.metric, site.name))],
    )


def with_kernel_lines(counted: CounterSet, rows: Iterable[CallRow]) -> CounterSet:
    """Give kernels the lines that launched them, from the rows of an account of a call.

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


def _metrics_of(item: WorkItem) -> tuple[str, ...]:
    if item.kind in _METRIC_OF_KIND:
        return (_METRIC_OF_KIND[item.kind],)
    return (KERNELS, FORMAT_CONVERSIONS) if is_format_conversion(item.name) else (KERNELS,)


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


def with_fallbacks(counted: CounterSet, fallbacks: Collection[str]) -> CounterSet:
    """Add the calls of operators for which the device has no kernel, and the lines they come from.

    An operator in place runs the kernel of its base name: ``aten::lgamma_`` that of ``aten::lgamma``. Where the count of one of
    them differs between the counted calls, their total is unstable.
    """
    sites = [
        CounterSite(metric=FALLBACKS, name=site.name, count=site.count, line=site.line, code=site.code)
        for site in counted.sites
        if site.metric == FRAMEWORK_OPS and site.name.rstrip("_") in fallbacks
    ]
    wavering = any(
        name.startswith("ops.count:") and name.partition(":")[2].rstrip("_") in fallbacks for name in counted.unstable
    )
    return msgspec.structs.replace(
        counted,
        values={**counted.values, FALLBACKS: sum(site.count for site in sites)},
        unstable=sorted({*counted.unstable, FALLBACKS}) if wavering else counted.unstable,
        sites=[*counted.sites, *sites],
    )

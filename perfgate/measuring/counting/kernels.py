"""Counters of a call that a trace tells, and operators that the device leaves to the host."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount
from perfgate.measuring.counting.tally import FRAMEWORK_OPS
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
_METRIC_OF_KIND = {"copy": DEVICE_COPIES, "comm": COLLECTIVES, "host_op": RECORDED_OPS}


def kernel_counters(work: Work) -> dict[str, int]:
    counters = Counter(dict.fromkeys(KERNEL_METRICS, 0))
    for item, count in work.items():
        for metric in _metrics_of(item):
            counters[metric] += count
    return dict(counters)


def with_kernels(counted: CounterSet, works: list[Work], *, absent: Collection[str] = ()) -> CounterSet:
    """A set of counters with those of the device added: values of the last span, its kernels, and what is unstable.

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
    """A set of counters whose kernels have the lines that launched them, from the rows of an account of a call.

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


FALLBACKS = "counters.fallbacks"


def with_fallbacks(counted: CounterSet, fallbacks: Collection[str]) -> CounterSet:
    """A set of counters with the calls of these operators added, and the lines they come from.

    An operator in place is the one of which the device has none: ``aten::lgamma_`` runs the kernel of ``aten::lgamma``.
    Where one of them differs between the counted calls, so does their number.
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


def fallback_sites(counted: CounterSet) -> list[CounterSite]:
    """Where a call runs an operator on the host."""
    return [site for site in counted.sites if site.metric == FALLBACKS]

"""Exact counters of single calls: operators, allocations, memory kept and cached, by line, and device work."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.tally import (
    FRAMEWORK_OPS,
    AllocatedBlock,
    CallTally,
    Dispatched,
    Site,
    differing,
)
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.system.garbage import quiet
from perfgate.trace.model.events import DEVICE_KINDS
from perfgate.trace.model.spans import (
    COLLECTIVES,
    DEVICE_COPIES,
    FORMAT_CONVERSIONS,
    KERNEL_METRICS,
    KERNELS,
    Work,
    WorkItem,
    is_format_conversion,
)

# An optimizer makes its state in the first step and a kernel library its plans in the first call; neither is steady.
WARM_UP_CALLS = 3
# Of a call that takes long once it is warm, fewer are made: two that agree are as exact as three.
_SLOW_NS = 1e9
_FEWEST_REPEATS = 2
# A cache may need to see an input more than once; a saving counts when every new input shows it.
NEW_INPUTS = 2
# Time for half of the calls whose memory is counted.
_HALF_SECONDS = 0.5
MAX_CODE = 120
RECORDED_OPS = "counters.recorded_ops"
FALLBACKS = "counters.fallbacks"
_METRIC_OF_KIND = {"copy": DEVICE_COPIES, "comm": COLLECTIVES, "host_op": RECORDED_OPS}


class _Saving(NamedTuple):
    """The operators that a call on a new input dispatches and the same call again does not; the latter call."""

    sites: Counter[Site]
    repeated: CallTally


def count_calls(workload: BoundWorkload, device: Device, shape: str, *, repeats: int = 3, root: Path) -> CounterSet:
    return count_in_order(workload, device, shape, repeats=repeats, root=root)[0]


def count_in_order(
    workload: BoundWorkload, device: Device, shape: str, *, repeats: int = 3, root: Path
) -> tuple[CounterSet, list[Dispatched]]:
    """Count ``repeats`` single steady calls, each on another input of the shape, then the work that a repeated input saves.

    Source lines are given relative to ``root``, the checkout. A metric that differs between the repeats, an operator's
    count (``ops.count:NAME``) included, is listed in ``unstable``; values are those of the last repeat, of which all
    dispatched operators follow in order. Compiled regions are counted as the framework dispatches them under a dispatch
    mode, which is without their fusion.

    Of a slow call fewer are made: two repeats, the last of which is the repeated call on the first new input.
    """
    pool = workload.pool(shape)
    with quiet():
        call_ns = _warm_up(workload, device, pool)
        if call_ns >= _SLOW_NS:
            tallies, savings = _tally_slow_calls(workload, device, shape, root)
            _count_memory(workload, device, pool, tallies, call_ns)
        else:
            tallies = [
                _count_call(workload, device, pool[index % POOL_SIZE], root, in_order=index == repeats - 1)
                for index in range(repeats)
            ]
            _count_memory(workload, device, pool, tallies, call_ns)
            savings = [_count_saving(workload, device, shape, root).sites for _ in range(NEW_INPUTS)]
    counted = _counter_set(tallies, savings, workload=workload.name, shape=shape, root=root)
    return counted, tallies[-1].order or []


def count_operators(workload: BoundWorkload, device: Device, shape: str, *, root: Path) -> CounterSet:
    """Count the operators of two calls after one, without memory and savings: all that a first look at slow calls needs."""
    pool = workload.pool(shape)
    with quiet():
        workload.invoke(pool[0])
        tallies = [_count_call(workload, device, inputs, root) for inputs in pool[:_FEWEST_REPEATS]]
    return _counter_set(tallies, [], workload=workload.name, shape=shape, root=root)


def _warm_up(workload: BoundWorkload, device: Device, pool: list[Any]) -> float:
    """Make calls until they are steady, and return the nanoseconds of the last; a second call that is slow is the last."""
    took = 0.0
    for index in range(WARM_UP_CALLS):
        device.synchronize()
        began = device.clock_ns()
        workload.invoke(pool[index % POOL_SIZE])
        device.synchronize()
        took = device.clock_ns() - began
        if index and took >= _SLOW_NS:
            break
    return took


def _tally_slow_calls(
    workload: BoundWorkload, device: Device, shape: str, root: Path
) -> tuple[list[CallTally], list[Counter[Site]]]:
    """Two repeats and what a repeated input saves, of three calls: the second repeat is that of a new input.

    If it saves something, another new input is tried, as it is for quick calls.
    """
    first = _count_call(workload, device, workload.pool(shape)[0], root)
    saving = _count_saving(workload, device, shape, root)
    savings = [saving.sites]
    if saving.sites:
        savings.append(_count_saving(workload, device, shape, root).sites)
    return [first, saving.repeated], savings


def with_steady(counted: CounterSet) -> CounterSet:
    """Complete a set of counters by which of them were equal in every repeat."""
    return msgspec.structs.replace(counted, steady=sorted(counted.values.keys() - set(counted.unstable)))


def counter_sites(
    sites: Iterable[tuple[Site, int]], root: Path, ranges: Mapping[Site, tuple[int, int]] | None = None
) -> list[CounterSite]:
    """The sites as records, with the code of their lines, in an order that does not depend on when they were met.

    ``ranges`` are the least and the most of those that differ between calls; one that no listed call had counts 0.
    """
    ranges = ranges or {}
    counts = list(sites)
    absent = ranges.keys() - {site for site, _ in counts}
    counts += dict.fromkeys(absent, 0).items()
    records: list[CounterSite] = []
    for site, count in counts:
        code = code_at(root, site.line)
        record = CounterSite(
            metric=site.metric, name=site.name, count=count, line=site.line, code=code, between=ranges.get(site)
        )
        records.append(record)
    return sorted(records, key=lambda site: (site.metric, site.name, site.line or "", -site.count))


def code_at(root: Path, line: str | None) -> str | None:
    """The text of a line of the project (``model.py:88``), None if it cannot be read."""
    file, _, number = (line or "").rpartition(":")
    return linecache.getline(str(root / file), int(number)).strip()[:MAX_CODE] or None if number else None


def _counter_set(
    tallies: list[CallTally], savings: list[Counter[Site]], *, workload: str, shape: str, root: Path
) -> CounterSet:
    from perfgate.measuring.counting.settings import process_settings

    last = tallies[-1]
    ops = [
        OpCount(op=op, count=count, view=op in last.views, line=last.line_of(op))
        for op, count in sorted(last.ops.items(), key=lambda item: (-item[1], item[0]))
        if count
    ]
    values = last.values()
    sites = list(last.amounts.items())
    if savings:
        least = min(savings, key=Counter.total)
        values["counters.repeat_saves"] = least.total()
        sites += [(Site("counters.repeat_saves", at.name, at.line), count) for at, count in least.items()]
    if last.memory:
        # Which operators took a block for their result, and which made the blocks that outlive the call.
        sites += Counter(Site("counters.allocations", block.op, block.line) for block in last.blocks).items()
    if last.memory.get("memory.kept"):
        # A call may keep nothing although others do.
        lasting = max((tally.lasting_blocks() for tally in tallies), key=len)
        sites += Counter(Site("memory.kept", block.op, block.line) for block in lasting).items()
    ranges = differing([{**tally.values(), **tally.counts()} for tally in tallies])
    amounts = differing([tally.amounts for tally in tallies])
    return CounterSet(
        workload=workload,
        shape=shape,
        repeats=len(tallies),
        values=values,
        ops=ops,
        unstable=list(ranges),
        ranges=ranges,
        sites=[*counter_sites(sites, root, amounts), *(_at_peak(last, root) if last.memory else [])],
        settings=process_settings(),
    )


def _count_call(
    workload: BoundWorkload, device: Device, inputs: Any, root: Path, *, in_order: bool = False
) -> CallTally:
    # torch is imported here and below, so that a step that counts can be listed without it.
    from perfgate.measuring.counting.dispatch import CountingMode

    tally = CallTally(order=[] if in_order else None)
    shared = "own_memory" not in device.capabilities
    mode = CountingMode(tally, root=root, waits=device.host_waits(), counts_host_memory=shared)
    mode.count(lambda: workload.invoke(inputs, returned=mode.call_returned))
    device.synchronize()
    return tally


def _count_memory(
    workload: BoundWorkload, device: Device, pool: list[Any], tallies: list[CallTally], call_ns: float
) -> None:
    """Count the memory of further calls, because the mode's own work would allocate too.

    Memory is kept if both halves of them keep some: a leak in every second call is one, a buffer that grew once is none.
    """
    half = calls_within(call_ns, seconds=_HALF_SECONDS, fewest=2, most=POOL_SIZE // 2)
    # The first call only establishes the baseline of held memory.
    order = [POOL_SIZE - 1, *(index % POOL_SIZE for index in range(max(2 * half, len(tallies))))]
    counts = device.count_memory([partial(workload.invoke, pool[index]) for index in order])
    if counts is None:
        return
    measured = counts[1:]
    kept_bytes = [count.kept_bytes for count in measured]
    kept = max(0, min(sum(kept_bytes[:half]), sum(kept_bytes[half : 2 * half]))) // half
    for tally, (allocations, peak, _) in zip(tallies, measured):
        tally.memory = {"counters.allocations": allocations, "memory.peak": peak, "memory.kept": kept}


def _at_peak(tally: CallTally, root: Path) -> list[CounterSite]:
    """The memory of the call at its peak: the bytes by operator and line, and the largest tensor."""
    sites: dict[tuple[str, str], list[AllocatedBlock]] = {}
    for block in tally.live.at_peak:
        sites.setdefault((block.op, block.line or ""), []).append(block)
    records: list[CounterSite] = []
    for (op, line), blocks in sorted(sites.items()):
        size, largest = sum(block.size for block in blocks), max(blocks, key=lambda block: block.size)
        code = code_at(root, line)
        record = CounterSite(
            metric="memory.peak", name=op, count=size, line=line or None, code=code, tensor=largest.tensor
        )
        records.append(record)
    return records


def _count_saving(workload: BoundWorkload, device: Device, shape: str, root: Path) -> _Saving:
    """Count a call on a new input and the same call again."""
    inputs = workload.new_inputs(shape)
    once = _count_call(workload, device, inputs, root).sites(FRAMEWORK_OPS)
    repeated = _count_call(workload, device, inputs, root, in_order=True)
    again = repeated.sites(FRAMEWORK_OPS)
    # Equal work by other operators in the second call means that nothing is saved.
    return _Saving(once - again if once.total() > again.total() else Counter(), repeated)


def kernel_counters(work: Work) -> dict[str, int]:
    counters = Counter(dict.fromkeys(KERNEL_METRICS, 0))
    for item, count in work.items():
        for metric in _metrics_of(item):
            counters[metric] += count
    return dict(counters)


def with_kernels(counted: CounterSet, works: list[Work], *, absent: Collection[str] = ()) -> CounterSet:
    """Add the counters of the device: the values of the last span, its kernels, and unstable metrics.

    A metric that differs between the spans, the count of a single kernel (``ops.count:NAME``) included, is unstable. The
    metrics in ``absent`` were not recorded and are left out. Collectives that the host dispatched stay as they were counted
    there, with their lines.
    """
    absent = {*absent, COLLECTIVES} if counted.values.get(COLLECTIVES) else absent
    repeats = (kernel_counters(work) | _by_name(work, prefix="ops.count:") for work in works)
    ranges = {name: ends for name, ends in differing(repeats).items() if name not in absent}
    ops = [OpCount(op=name, count=count) for name, count in _by_name(works[-1]).items()]
    sites: list[CounterSite] = []
    for item, count in works[-1].items():
        metrics = [metric for metric in _metrics_of(item) if metric not in absent]
        sites += [CounterSite(metric=metric, name=item.name, count=count) for metric in metrics]
    values = {metric: value for metric, value in kernel_counters(works[-1]).items() if metric not in absent}
    return msgspec.structs.replace(
        counted,
        values={**counted.values, **values},
        ops=[*counted.ops, *sorted(ops, key=lambda op: (-op.count, op.op))],
        unstable=sorted({*counted.unstable, *ranges}),
        ranges={**counted.ranges, **ranges},
        sites=[*counted.sites, *sorted(sites, key=lambda site: (site.metric, site.name))],
    )


def _by_name(work: Work, *, prefix: str = "") -> dict[str, int]:
    counts: dict[str, int] = {}
    for item, count in work.items():
        name = prefix + item.name
        counts[name] = counts.get(name, 0) + count
    return counts


def with_kernel_lines(counted: CounterSet, rows: Iterable[CallRow]) -> CounterSet:
    """Give kernels the lines that launched them, from the rows of an account of a call.

    A counter is exact, so its sites are divided among lines only if the rows have each of its kernels.
    """
    by_name: dict[str, list[CallRow]] = {}
    for row in rows:
        if row.kind in DEVICE_KINDS:
            by_name.setdefault(row.op, []).append(row)
    sites: list[CounterSite] = []
    for site in counted.sites:
        sites += _at_lines(site, by_name.get(site.name, []))
    return msgspec.structs.replace(
        counted,
        ops=[_op_at_line(op, by_name.get(op.op, [])) for op in counted.ops],
        sites=sites,
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

    An operator in place runs the kernel of its base name: ``aten::lgamma_`` that of ``aten::lgamma``. If the count of one
    of them differs between the counted calls, their total is unstable.
    """
    sites = [
        CounterSite(metric=FALLBACKS, name=site.name, count=site.count, line=site.line, code=site.code)
        for site in counted.sites
        if site.metric == FRAMEWORK_OPS and site.count and site.name.rstrip("_") in fallbacks
    ]
    counts = Counter({op.op: op.count for op in counted.ops})
    total = sum(site.count for site in sites)
    wavering = {
        name: ends
        for name, ends in counted.ranges.items()
        if name.startswith("ops.count:") and name.partition(":")[2].rstrip("_") in fallbacks
    }
    steady = total - sum(counts[name.partition(":")[2]] for name in wavering)
    ends = steady + sum(least for least, _ in wavering.values()), steady + sum(most for _, most in wavering.values())
    return msgspec.structs.replace(
        counted,
        values={**counted.values, FALLBACKS: total},
        unstable=sorted({*counted.unstable, FALLBACKS}) if wavering else counted.unstable,
        ranges={**counted.ranges, FALLBACKS: ends} if wavering else counted.ranges,
        sites=[*counted.sites, *sites],
    )

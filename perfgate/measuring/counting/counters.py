"""Exact counters of single calls: operators, allocations, memory kept and cached, by
line, and device work.
"""

from __future__ import annotations

import linecache
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from perfgate.catalogue.names import FRAMEWORK_OPS
from perfgate.document.run import CallRow, CounterSet, CounterSite, OpCount
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.tally import (
    AllocatedBlock,
    CallTally,
    Dispatched,
    Site,
    differing,
)
from perfgate.measuring.timing.calls import timed_call
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

# An optimizer makes its state in the first step and a kernel library its plans in the
# first call; neither is steady.
WARM_UP_CALLS = 3
# Of a call that takes long once it is warm, fewer are made: two that agree are as exact
# as three.
_SLOW_NS = 1e9
_FEWEST_REPEATS = 2
# A cache may need to see an input more than once; a saving counts when every new input
# shows it.
NEW_INPUTS = 2
MAX_CODE = 120
RECORDED_OPS = "counters.recorded_ops"
FALLBACKS = "counters.fallbacks"
_REPEAT_SAVES = "counters.repeat_saves"
_METRIC_OF_KIND = {"copy": DEVICE_COPIES, "comm": COLLECTIVES, "host_op": RECORDED_OPS}


def count_calls(workload: BoundWorkload, shape: str, *, repeats: int = 3) -> CounterSet:
    return count_in_order(workload, shape, repeats=repeats)[0]


def count_in_order(
    workload: BoundWorkload, shape: str, *, repeats: int = 3
) -> tuple[CounterSet, list[Dispatched]]:
    """Count ``repeats`` single steady calls, each on another input of the shape, then
    the work that a repeated input saves.

    Source lines are given relative to the checkout. A metric that differs between the
    repeats, an operator's count (``ops.count:NAME``) included, is listed in
    ``unstable``; values come from the last repeat, of which all dispatched operators
    follow in order. Compiled regions are counted as the framework dispatches them under
    a dispatch mode, which is without their fusion.

    Of a slow call fewer are made: two repeats, the last of which is the repeated call
    on the first new input.
    """
    calls = CountedCalls(workload, shape)
    with quiet():
        call_ns = calls.warm_up()
        if call_ns >= _SLOW_NS:
            tallies, savings = calls.count_slow_ones()
            calls.count_memory(tallies, call_ns)
        else:
            tallies = []
            for index in range(repeats):
                inputs = calls.pool[index % POOL_SIZE]
                tallies.append(calls.count(inputs, in_order=index == repeats - 1))
            calls.count_memory(tallies, call_ns)
            savings = [calls.saving()[0] for _ in range(NEW_INPUTS)]
    return calls.counter_set(tallies, savings), tallies[-1].order or []


def count_operators(workload: BoundWorkload, shape: str) -> CounterSet:
    """Count the operators of two calls after one, without memory and savings: all that
    a first look at slow calls needs.
    """
    calls = CountedCalls(workload, shape)
    with quiet():
        workload.invoke(calls.pool[0])
        tallies = [calls.count(inputs) for inputs in calls.pool[:_FEWEST_REPEATS]]
    return calls.counter_set(tallies, [])


class CountedCalls:
    """Makes calls of one shape and counts them."""

    def __init__(self, workload: BoundWorkload, shape: str) -> None:
        self._workload = workload
        self._device = workload.device
        self._shape = shape
        self._root = workload.root
        self.pool = workload.pool(shape)

    def warm_up(self) -> float:
        """Make calls until they are steady, and return the nanoseconds of the last; a
        slow second call is the last.
        """
        self._device.synchronize()
        took = 0.0
        for index in range(WARM_UP_CALLS):
            call = partial(self._workload.invoke, self.pool[index % POOL_SIZE])
            took = timed_call(call, self._device)
            if index and took >= _SLOW_NS:
                break
        return took

    def count(self, inputs: Any, *, in_order: bool = False) -> CallTally:
        # torch is imported here, so that a step that counts can be listed without it.
        from perfgate.measuring.counting.dispatch import CountingMode

        tally = CallTally(order=[] if in_order else None)
        shares_memory = "own_memory" not in self._device.capabilities
        waits = self._device.host_waits()
        mode = CountingMode(
            tally, root=self._root, waits=waits, counts_host_memory=shares_memory
        )
        mode.count(lambda: self._workload.invoke(inputs, returned=mode.call_returned))
        self._device.synchronize()
        return tally

    def count_slow_ones(self) -> tuple[list[CallTally], list[Counter[Site]]]:
        """Two repeats and what a repeated input saves, from three calls: the second
        repeat repeats a new input.

        If it saves something, another new input is tried, as it is for quick calls.
        """
        first = self.count(self.pool[0])
        saved, repeated = self.saving()
        savings = [saved]
        if saved:
            savings.append(self.saving()[0])
        return [first, repeated], savings

    def saving(self) -> tuple[Counter[Site], CallTally]:
        """The operators that a call on a new input dispatches and the same call again
        does not; the latter call.
        """
        inputs = self._workload.new_inputs(self._shape)
        once = self.count(inputs).sites(FRAMEWORK_OPS)
        repeated = self.count(inputs, in_order=True)
        again = repeated.sites(FRAMEWORK_OPS)
        if once.total() > again.total():
            return once - again, repeated
        # Equal work by other operators in the second call does not count as saving.
        return Counter(), repeated

    def count_memory(self, tallies: list[CallTally], call_ns: float) -> None:
        """Count the memory of further calls, because the mode's own work would allocate
        too.

        Memory is kept if both halves of them keep some: a leak in every second call
        counts, a buffer that grew once does not.
        """
        half = calls_within(call_ns, seconds=0.5, fewest=2, most=POOL_SIZE // 2)
        # The first call only establishes the baseline of held memory.
        indices = [POOL_SIZE - 1, *range(max(2 * half, len(tallies)))]
        calls = [
            partial(self._workload.invoke, self.pool[index % POOL_SIZE])
            for index in indices
        ]
        if 2 * half == POOL_SIZE:
            # Code that is compiled for each size of its inputs keeps memory when it
            # first sees one.
            for call in calls[:POOL_SIZE]:
                call()
        counts = self._device.count_memory(calls)
        if counts is None:
            return
        measured = counts[1:]
        kept_bytes = [count.kept_bytes for count in measured]
        kept = (
            max(0, min(sum(kept_bytes[:half]), sum(kept_bytes[half : 2 * half])))
            // half
        )
        for tally, (allocations, peak, _) in zip(tallies, measured):
            tally.memory = {
                "counters.allocations": allocations,
                "memory.peak": peak,
                "memory.kept": kept,
            }

    def counter_set(
        self, tallies: list[CallTally], savings: list[Counter[Site]]
    ) -> CounterSet:
        from perfgate.measuring.counting.modes import process_settings

        last = tallies[-1]
        values = last.values()
        sites = list(last.amounts.items())
        if savings:
            least = min(savings, key=Counter.total)
            values[_REPEAT_SAVES] = least.total()
            for site, count in least.items():
                sites.append((site._replace(metric=_REPEAT_SAVES), count))
        if last.memory:
            # Which operators took a block for their result, and which made the blocks
            # that outlive the call.
            sites += _sites_of_blocks("counters.allocations", last.blocks)
        if last.memory.get("memory.kept"):
            # Single calls may keep no memory although others do.
            lasting = max((tally.lasting_blocks() for tally in tallies), key=len)
            sites += _sites_of_blocks("memory.kept", lasting)
        ranges = differing([tally.values() | tally.counts() for tally in tallies])
        records = counter_sites(
            sites, self._root, differing([tally.amounts for tally in tallies])
        )
        if last.memory:
            records += self._at_peak(last)
        return CounterSet(
            workload=self._workload.name,
            shape=self._shape,
            repeats=len(tallies),
            values=values,
            ops=last.op_counts(),
            unstable=list(ranges),
            ranges=ranges,
            sites=records,
            settings=process_settings(),
        )

    def _at_peak(self, tally: CallTally) -> list[CounterSite]:
        """The memory of the call at its peak: the bytes by operator and line, and the
        largest tensor.
        """
        sizes: Counter[tuple[str, str]] = Counter()
        largest: dict[tuple[str, str], AllocatedBlock] = {}
        for block in tally.live.at_peak:
            place = block.op, block.line or ""
            sizes[place] += block.size
            if place not in largest or block.size > largest[place].size:
                largest[place] = block
        records = []
        for (op, line), size in sorted(sizes.items()):
            record = CounterSite(
                metric="memory.peak",
                name=op,
                count=size,
                line=line or None,
                code=code_at(self._root, line),
                tensor=largest[op, line].tensor,
            )
            records.append(record)
        return records


def _sites_of_blocks(
    metric: str, blocks: Iterable[AllocatedBlock]
) -> Iterable[tuple[Site, int]]:
    return Counter(Site(metric, block.op, block.line) for block in blocks).items()


def with_counts(
    counted: CounterSet,
    values: Mapping[str, int],
    ranges: Mapping[str, tuple[int, int]],
    sites: Iterable[CounterSite],
) -> CounterSet:
    """Add counters with their sites; a counter with a range is unstable."""
    return msgspec.structs.replace(
        counted,
        values={**counted.values, **values},
        unstable=sorted({*counted.unstable, *ranges}),
        ranges={**counted.ranges, **ranges},
        sites=[*counted.sites, *sites],
    )


def with_steady(counted: CounterSet) -> CounterSet:
    """Complete a set of counters by which of them were equal in every repeat."""
    return msgspec.structs.replace(
        counted, steady=sorted(counted.values.keys() - set(counted.unstable))
    )


def counter_sites(
    sites: Iterable[tuple[Site, int]],
    root: Path,
    ranges: Mapping[Site, tuple[int, int]] | None = None,
) -> list[CounterSite]:
    """The sites as records, with the code of their lines, in an order that does not
    depend on when they were met.

    ``ranges`` are the least and the most of those that differ between calls; one that
    no listed call had counts 0.
    """
    ranges = ranges or {}
    counts = list(sites)
    listed = {site for site, _ in counts}
    counts += dict.fromkeys(ranges.keys() - listed, 0).items()
    records = []
    for site, count in counts:
        record = CounterSite(
            metric=site.metric,
            name=site.name,
            count=count,
            line=site.line,
            code=code_at(root, site.line),
            between=ranges.get(site),
        )
        records.append(record)
    return sorted(
        records, key=lambda site: (site.metric, site.name, site.line or "", -site.count)
    )


def code_at(root: Path, line: str | None) -> str | None:
    """The text of a line of the project (``model.py:88``), None if it cannot be read."""
    file, _, number = (line or "").rpartition(":")
    if not number:
        return None
    return linecache.getline(str(root / file), int(number)).strip()[:MAX_CODE] or None


def kernel_counters(work: Work) -> dict[str, int]:
    counters = dict.fromkeys(KERNEL_METRICS, 0)
    for item, count in work.items():
        for metric in _metrics_of(item):
            counters[metric] = counters.get(metric, 0) + count
    return counters


def with_kernels(
    counted: CounterSet, works: list[Work], *, absent: Collection[str]
) -> CounterSet:
    """Add the counters of the device: the values of the last span, its kernels, and
    unstable metrics.

    A metric that differs between the spans, the count of a single kernel
    (``ops.count:NAME``) included, is unstable. The metrics in ``absent`` were not
    recorded and are left out. Collectives that the host dispatched stay as they were
    counted there, with their lines.
    """
    absent = set(absent)
    if counted.values.get(COLLECTIVES):
        absent.add(COLLECTIVES)
    last = works[-1]
    values = kernel_counters(last)
    ranges = differing(
        kernel_counters(work) | _by_name(work, prefix="ops.count:") for work in works
    )
    for metric in absent:
        values.pop(metric, None)
        ranges.pop(metric, None)
    sites = []
    for item, count in last.items():
        for metric in _metrics_of(item):
            if metric not in absent:
                sites.append(CounterSite(metric=metric, name=item.name, count=count))
    sites.sort(key=lambda site: (site.metric, site.name))
    ops = [OpCount(op=name, count=count) for name, count in _by_name(last).items()]
    ops.sort(key=lambda op: (-op.count, op.op))
    return msgspec.structs.replace(
        with_counts(counted, values, ranges, sites), ops=[*counted.ops, *ops]
    )


def _by_name(work: Work, *, prefix: str = "") -> dict[str, int]:
    counts: Counter[str] = Counter()
    for item, count in work.items():
        counts[prefix + item.name] += count
    return counts


def with_kernel_lines(counted: CounterSet, rows: Iterable[CallRow]) -> CounterSet:
    """Give kernels the lines that launched them, from the rows of an account of a call.

    A counter is exact, so its sites are divided among lines only if the rows have each
    of its kernels.
    """
    by_name: dict[str, list[CallRow]] = defaultdict(list)
    for row in rows:
        if row.kind in DEVICE_KINDS:
            by_name[row.op].append(row)
    sites = []
    for site in counted.sites:
        sites += _at_lines(site, by_name[site.name])
    ops = [_op_at_line(op, by_name[op.op]) for op in counted.ops]
    return msgspec.structs.replace(counted, ops=ops, sites=sites)


def _metrics_of(item: WorkItem) -> tuple[str, ...]:
    metric = _METRIC_OF_KIND.get(item.kind)
    if metric is not None:
        return (metric,)
    if is_format_conversion(item.name):
        return (KERNELS, FORMAT_CONVERSIONS)
    return (KERNELS,)


def _op_at_line(op: OpCount, rows: list[CallRow]) -> OpCount:
    counts: Counter[str] = Counter()
    for row in rows:
        if row.line is not None:
            counts[row.line] += round(row.count)
    if op.line is not None or not counts:
        return op
    return msgspec.structs.replace(op, line=counts.most_common(1)[0][0])


def _at_lines(site: CounterSite, rows: list[CallRow]) -> list[CounterSite]:
    if (
        site.metric not in KERNEL_METRICS
        or site.line is not None
        or sum(row.count for row in rows) != site.count
    ):
        return [site]
    counts: Counter[tuple[str | None, str | None]] = Counter()
    for row in rows:
        counts[row.line, row.code] += round(row.count)
    return [
        msgspec.structs.replace(site, count=count, line=line, code=code)
        for (line, code), count in counts.items()
    ]


def with_fallbacks(counted: CounterSet, fallbacks: Collection[str]) -> CounterSet:
    """Add the calls of operators for which the device has no kernel, and the lines they
    come from.

    An operator in place runs the kernel of its base name: ``aten::lgamma_`` the kernel
    of ``aten::lgamma``. If the count of one of them differs between the counted calls,
    their total is unstable.
    """
    sites = []
    for site in counted.sites:
        if (
            site.metric == FRAMEWORK_OPS
            and site.count
            and site.name.rstrip("_") in fallbacks
        ):
            fallback = CounterSite(
                metric=FALLBACKS,
                name=site.name,
                count=site.count,
                line=site.line,
                code=site.code,
            )
            sites.append(fallback)
    total = sum(site.count for site in sites)
    least = most = total
    counts = {op.op: op.count for op in counted.ops}
    for name, (fewest, largest) in counted.ranges.items():
        op = name.removeprefix("ops.count:")
        if op != name and op.rstrip("_") in fallbacks:
            least += fewest - counts.get(op, 0)
            most += largest - counts.get(op, 0)
    ranges = {} if least == most else {FALLBACKS: (least, most)}
    return with_counts(counted, {FALLBACKS: total}, ranges, sites)

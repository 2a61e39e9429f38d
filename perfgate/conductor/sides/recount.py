"""A second count in a fresh process of a side: a count is exact, or a leak is one, only if both processes agree."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from perfgate.catalogue.lookup import is_known, metric
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.worker import WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import CounterSet
from perfgate.locale import Activity
from perfgate.protocol import COUNTED_PARTS, CountedPart, Recounted, RecountRequest

OPERATOR_COUNT = "ops.count:"
_PART_OF_METRIC: Mapping[str, CountedPart] = {
    "counters.allocations": "memory",
    "counters.repeat_saves": "memory",
    "memory.peak": "memory",
    "memory.kept": "memory",
    "counters.python_calls": "python",
    "counters.bytecodes": "python",
    "memory.kept_python": "kept",
    "memory.kept_native": "kept",
}


def count_again(
    bench: Bench, checkout: Checkout, reference: WorkloadReference, *, parts: tuple[CountedPart, ...] = COUNTED_PARTS
) -> list[CounterSet]:
    """The counters of every shape from a fresh process; none if it fails, and then the first count stands."""
    doing = Activity("counting the calls of {name} again, in a fresh process", name=reference.name)
    return _count(bench, checkout, reference, RecountRequest(parts=parts), doing)


def count_operators(bench: Bench, checkout: Checkout, reference: WorkloadReference) -> list[CounterSet]:
    """The operators of a few calls of every shape, from a fresh process; none if it fails."""
    doing = Activity("counting the operators of {name}", name=reference.name)
    return _count(bench, checkout, reference, RecountRequest(parts=()), doing)


def parts_of(names: Iterable[str]) -> tuple[CountedPart, ...]:
    """The parts of a count, beside operators, with one of these metrics."""
    needed = {_PART_OF_METRIC.get(name) for name in names}
    return tuple(part for part in COUNTED_PARTS if part in needed)


def _count(
    bench: Bench, checkout: Checkout, reference: WorkloadReference, request: RecountRequest, doing: Activity
) -> list[CounterSet]:
    bench.say(doing.shown)
    try:
        with bench.worker(checkout, reference, cpus=bench.cpus, layout_seed=1, log_name=reference.name) as (worker, _):
            reply = worker.ask(request, Recounted, timeout=bench.config.measure.step_timeout, doing=doing)
    except WorkerError as error:
        bench.say(f"{doing.shown}: {error}")
        return []
    return reply.counters


def confirmed(first: Sequence[CounterSet], second: Iterable[CounterSet]) -> list[CounterSet]:
    """The counters of one process, with the ranges over it and another."""
    again = {counted.place: counted for counted in second}
    return [_confirmed(counted, again[counted.place]) if counted.place in again else counted for counted in first]


def _confirmed(first: CounterSet, second: CounterSet) -> CounterSet:
    """A leak counts as the smaller one of the two; any other count that differs is unstable, with a range."""
    values, ranges = dict(first.values), dict(first.ranges)
    before, after = _counts(first), _counts(second)
    for name in before.keys() & after.keys():
        if _is_leak(name) and min(before[name], after[name]) <= metric(name).allowed_more:
            values[name] = 0
            ranges.pop(name, None)
            continue
        ends = (*_ends(first, name, before[name]), *_ends(second, name, after[name]))
        if min(ends) != max(ends):
            ranges[name] = min(ends), max(ends)
    unstable = {name for name in first.unstable if not _is_leak(name)} | ranges.keys()
    return msgspec.structs.replace(
        first,
        values=values,
        ranges=ranges,
        unstable=sorted(unstable),
        steady=sorted(values.keys() - unstable),
    )


def _counts(counted: CounterSet) -> dict[str, int]:
    return {**counted.values, **{f"{OPERATOR_COUNT}{entry.op}": entry.count for entry in counted.ops}}


def _ends(counted: CounterSet, name: str, value: int) -> tuple[int, int]:
    return counted.ranges.get(name, (value, value))


def _is_leak(name: str) -> bool:
    return is_known(name) and metric(name).leak

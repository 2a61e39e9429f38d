"""Counts of further fresh processes: a count that differs between processes of the same
code is not exact.

A tuner that times its candidates, the order of a set, an address or a clock may decide
what a call does. Base is always counted in a second process, with other hashes. As long
as a count differs between the sides, both are counted in further processes, each in an
empty home: equal code with processes that choose between two ways by chance then
differs once in a thousand gates.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import is_known, metric
from perfgate.conductor.sides.checklist.turns import ChecklistSide, ChecklistTurns
from perfgate.conductor.sides.job_turns import SideName
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import CounterSet, CounterSite
from perfgate.locale import Activity
from perfgate.protocol import COUNTED_PARTS, CountedPart, Recounted, RecountRequest

KERNELS, OPERATOR_COUNT = "counters.kernels", "ops.count:"
# Processes of each side that must agree on a difference.
MOST_PROCESSES = 5
_SEEDS = 2**32
# Two residents, two of the next start, and one that counts.
_COPIES_BESIDE_PAIRS = 5
# A site by its metric, name and line: both sets are of the same code.
_SiteKey = tuple[str, str, str | None]
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
# Memory that calls leave behind takes rounds of them.
_PARTS_OF_FEW_CALLS: tuple[CountedPart, ...] = ("memory", "python")


def count_operators(
    bench: Bench, checkout: Checkout, reference: WorkloadReference
) -> list[CounterSet]:
    """The operators of a few calls of every shape, from a fresh process; none if it
    fails.
    """
    doing = Activity("counting the operators of {name}", name=reference.name)
    return count_calls(bench, checkout, reference, (), doing)


def count_calls(
    bench: Bench,
    checkout: Checkout,
    reference: WorkloadReference,
    parts: tuple[CountedPart, ...],
    doing: Activity,
    *,
    layout_seed: int = 1,
    room: Path | None = None,
) -> list[CounterSet]:
    """The operators of every shape from a fresh process, and these parts; none if it
    fails.
    """
    bench.say(doing.shown)
    try:
        with bench.worker(checkout, reference, layout_seed=layout_seed, room=room) as (
            worker,
            _,
        ):
            request = RecountRequest(parts=parts)
            return worker.ask(request, Recounted, doing=doing).counters
    except WorkerError as error:
        bench.say(f"{doing.shown}: {error}")
        return []


@dataclass
class Recount:
    """Counts one workload again.

    ``turns`` have taken their first; ``draws`` is how often servers were drawn before
    that.

    ``counted_first`` are the operators of slow calls from a process before that: of
    these only what differs is counted again.
    """

    bench: Bench
    turns: ChecklistTurns
    draws: int
    counted_first: Mapping[SideName, Sequence[CounterSet]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._is_counted_twice = self._loads_base = False
        self._lot = random.Random(
            f"{self.bench.config.measure.seed}:{self.turns.reference.name}:counts"
        )

    def confirm(
        self, differing: Callable[[], Sequence[str]], *, deadline: float
    ) -> None:
        """Count both sides again while counts are ``differing`` between them.

        A second process of each is always worth its time, further processes as long as
        the pairs' budget lasts.
        """
        if self.counted_first and differing():
            for side in self.turns.sides:
                side.found.counters = confirmed(
                    side.found.counters, self.counted_first[side.name]
                )
        ends = min(deadline, time.monotonic() + self.bench.config.gate.budget)
        for processes in range(2, MOST_PROCESSES + 1):
            metrics = differing()
            if not metrics or (processes > 2 and time.monotonic() > ends):
                return
            if processes == 2:
                self.bench.servers.redraw(self._lot.randrange(_SEEDS))
            for side in self.turns.sides:
                self.bench.servers.get(side.checkout.server)
            self.bench.servers.renew()
            if processes < MOST_PROCESSES and time.monotonic() < ends:
                self.bench.servers.start_next(self._lot.randrange(_SEEDS))
            self._is_counted_twice = True
            for side in self.turns.sides:
                self.turns.begins(side.name)
                if not self._count(side, self._parts(metrics), in_empty_home=True):
                    return

    def count_base_if_drawn(self, *, is_last: bool = False) -> None:
        """Count base in a second process as soon as servers with other hashes run; code
        of base may run now.
        """
        if self.bench.servers.draws == self.draws or self._is_counted_twice:
            return
        if self.bench.loads_slowly and not self._loads_base:
            # Pairs go on meanwhile; base is counted after them.
            self._loads_base = True
            if self.bench.fits(_COPIES_BESIDE_PAIRS):
                self.bench.load_ahead(self._base.checkout, self.turns.reference)
        if not self.bench.loads_slowly or is_last:
            self._is_counted_twice = True
            self._count(self._base, _PARTS_OF_FEW_CALLS, in_empty_home=False)

    def count_base(self, *, deadline: float) -> None:
        """Count base in a second process, if that was not done and head has counts to
        compare.
        """
        is_comparable = all(side.found.counters for side in self.turns.sides)
        if self._is_counted_twice or not is_comparable or time.monotonic() > deadline:
            return
        if self.bench.servers.draws == self.draws:
            self.bench.servers.redraw(self._lot.randrange(_SEEDS))
        self.turns.begins("base")
        self.count_base_if_drawn(is_last=True)

    @property
    def _base(self) -> ChecklistSide:
        return next(side for side in self.turns.sides if side.name == "base")

    def _parts(self, metrics: Sequence[str]) -> tuple[CountedPart, ...]:
        """The parts of a count to be taken again, besides operators."""
        needed = set(map(_PART_OF_METRIC.get, metrics))
        if not self.counted_first:
            needed.update(_PARTS_OF_FEW_CALLS)
        return tuple(part for part in COUNTED_PARTS if part in needed)

    def _count(
        self,
        side: ChecklistSide,
        parts: tuple[CountedPart, ...],
        *,
        in_empty_home: bool,
    ) -> bool:
        """Add the counts of another process to a side's; False if it fails."""
        reference = self.turns.reference
        doing = Activity(
            "counting the calls of {name} again, in a fresh process",
            name=reference.name,
        )
        layout_seed = self._lot.randrange(1, 2**16)
        home = self.bench.rooms.empty(side.checkout) if in_empty_home else nullcontext()
        with home as room:
            counted = count_calls(
                self.bench,
                side.checkout,
                reference,
                parts,
                doing,
                layout_seed=layout_seed,
                room=room,
            )
        side.found.counters = confirmed(side.found.counters, counted)
        return bool(counted)


def confirmed(
    first: Sequence[CounterSet], second: Iterable[CounterSet]
) -> list[CounterSet]:
    """The counters of some processes, with the ranges over them and another."""
    again = {counted.place: counted for counted in second}
    merged = []
    for counted in first:
        other = again.get(counted.place)
        merged.append(counted if other is None else _confirmed(counted, other))
    return merged


def _confirmed(first: CounterSet, second: CounterSet) -> CounterSet:
    """A leak counts as the smaller of both counts; any other count that differs is
    unstable, with a range.
    """
    values, ranges = dict(first.values), dict(first.ranges)
    before, after = _counts(first), _counts(second)
    # An operator that a process does not run at all is not listed there.
    lists_all = (KERNELS in first.values) == (KERNELS in second.values)
    for name in before.keys() | after.keys():
        is_shared = name in before and name in after
        if not is_shared and not (lists_all and name.startswith(OPERATOR_COUNT)):
            continue
        if (
            _is_leak(name)
            and min(before[name], after[name]) <= metric(name).gate.allowed_more
        ):
            values[name] = 0
            ranges.pop(name, None)
            continue
        ends = (
            *_ends(first, name, before.get(name, 0)),
            *_ends(second, name, after.get(name, 0)),
        )
        if min(ends) != max(ends):
            ranges[name] = min(ends), max(ends)
    unstable = {name for name in first.unstable if not _is_leak(name)} | ranges.keys()
    return msgspec.structs.replace(
        first,
        processes=first.processes + second.processes,
        values=values,
        ranges=ranges,
        sites=_confirmed_sites(first, second),
        unstable=sorted(unstable),
        steady=sorted(values.keys() - unstable),
    )


def _confirmed_sites(first: CounterSet, second: CounterSet) -> list[CounterSite]:
    """The sites of the first, and with 0 the sites that only the second has, for
    counters that are sums of their sites.
    """
    additive = _additive(first) & _additive(second)
    again = {_key(site): site for site in second.sites if site.metric in additive}
    sites = list(first.sites)
    keys = set(map(_key, sites))
    for key, site in again.items():
        if key not in keys:
            sites.append(msgspec.structs.replace(site, count=0, between=None))
    merged = []
    for site in sites:
        ends = [*_ends_of(site), *_ends_of(again.get(_key(site)))]
        if site.metric in additive and min(ends) != max(ends):
            site = msgspec.structs.replace(site, between=(min(ends), max(ends)))  # noqa: PLW2901
        merged.append(site)
    return merged


def _additive(counted: CounterSet) -> set[str]:
    """The counters with sites that are lines and add up to them."""
    totals: Counter[str] = Counter()
    with_lines = set()
    for site in counted.sites:
        totals[site.metric] += site.count
        if site.line:
            with_lines.add(site.metric)
    return {name for name in with_lines if totals[name] == counted.values.get(name)}


def _key(site: CounterSite) -> _SiteKey:
    return site.metric, site.name, site.line


def _ends_of(site: CounterSite | None) -> tuple[int, int]:
    if site is None:
        return 0, 0
    return site.between or (site.count, site.count)


def _counts(counted: CounterSet) -> dict[str, int]:
    counts = dict(counted.values)
    for entry in counted.ops:
        counts[f"{OPERATOR_COUNT}{entry.op}"] = entry.count
    return counts


def _ends(counted: CounterSet, name: str, value: int) -> tuple[int, int]:
    return counted.ranges.get(name, (value, value))


def _is_leak(name: str) -> bool:
    return is_known(name) and metric(name).origin.leak

"""Workers that have a workload loaded and warm, kept from pair to pair: the members of
a pair are forked from them.

Loading and warming up may take longer than the blocks of a pair. Done once for some
pairs and not in each, it leaves most of the time to recorded calls. A member is still a
separate process, which moves in memory before every quad, and no process runs the code
of both sides: no worker of base is forked from a process that ran code of head.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from perfgate.conductor.engine import Start
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.function.plan import (
    FURTHER_WARM_UP_SECONDS,
    WARM_UP_SECONDS,
)
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.loading import AheadWorker, LoadingWorker, WorkerPlan
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.locale import Activity
from perfgate.protocol import Loaded, WarmedUp, WarmUpRequest

WARM_UP_CAP_SECONDS = 8.0


class WarmPlace(NamedTuple):
    """The owner of a worker: a checkout, or the twin of base."""

    checkout: Checkout
    is_twin: bool = False


@dataclass(frozen=True)
class WarmWorker:
    """A worker with its workload loaded and warm, its number, and its part of the
    seconds that starting took.

    ``start`` is the number of the pair for which it and the others were started, if
    they stay for further pairs without being forked; otherwise None.
    """

    worker: Worker
    loaded: Loaded
    warm: WarmedUp
    number: int
    seconds: float
    start: int | None


@dataclass
class WarmWorkers:
    """The warm workers of one workload on the fork servers that run now."""

    bench: Bench
    reference: WorkloadReference
    _: KW_ONLY
    observer: Observer
    cpus: list[int]
    resident: bool = False
    kept: dict[WarmPlace, WarmWorker] = field(default_factory=dict)
    # Workers that load while others measure, and whether they come from the servers of
    # the next renewal.
    _ahead: dict[WarmPlace, AheadWorker] = field(default_factory=dict)
    _ahead_on_next: bool = False
    _stack: ExitStack = field(default_factory=ExitStack)
    _block_seconds: float = 0.0
    _layout_seed: int = 0
    _start: int = 0
    _started: int = 0

    def get(
        self, places: Sequence[WarmPlace], start: Start, *, block_seconds: float
    ) -> list[WarmWorker]:
        """The warm workers of these places; those that are missing are started, in this
        order.

        All workers of one start are loaded into the layout of that start's plan, a twin
        into another. Resident workers load at the same time: loading waits for disks
        and copies. Raises WorkerError.
        """
        if block_seconds != self._block_seconds:
            self.close()
            self._block_seconds = block_seconds
        if not self.kept:
            self._layout_seed = start.layout_seed
            self._start = start.number
        missing = [place for place in places if place not in self.kept]
        if self.resident and self.bench.parking is None:
            self._start_together(missing, start)
        else:
            for place in missing:
                self._start_together([place], start)
        return [self.kept[place] for place in places]

    @property
    def allows_renewal(self) -> bool:
        """Whether new fork servers may take the place of those that run: the residents
        are gone, and none loads on the old.
        """
        return not self.kept and (not self._ahead or self._ahead_on_next)

    def prepare(self, places: Sequence[WarmPlace], start: Start) -> None:
        """Begin to load the residents of a coming start of base and head, while others
        measure, if the device holds all.
        """
        fits = self.bench.fits(len(self.kept) + len(places))
        if self._ahead or not self.bench.loads_slowly or not fits:
            return
        self._ahead_on_next = self.bench.servers.has_next
        for place in places:
            loading = self._loading(
                place, start.layout_seed, on_next=self._ahead_on_next
            )
            self._ahead[place] = AheadWorker.begin(loading)

    def common_parts(self, *checkouts: Checkout) -> list[str]:
        """The modules that the warm workers of all these checkouts imported; none if
        one of them has no worker.
        """
        workers = [self.kept.get(WarmPlace(checkout)) for checkout in checkouts]
        if None in workers:
            return []
        of_workers = [worker.warm.parts for worker in workers if worker is not None]
        common = set(of_workers[0]).intersection(*of_workers)
        return [part for part in of_workers[0] if part in common]

    def close(self) -> None:
        """End all of them, and those that load."""
        self.close_kept()
        while self._ahead:
            _, ahead = self._ahead.popitem()
            ahead.stack.close()

    def close_kept(self) -> None:
        """End the loaded workers; workers that load for a coming start go on."""
        self.kept.clear()
        self._stack.close()

    def _start_together(self, places: Sequence[WarmPlace], start: Start) -> None:
        began = self.observer.monotonic()
        workers = {place: self._begin_loading(place, start) for place in places}
        loaded = {place: worker.wait() for place, worker in workers.items()}
        warm: dict[WarmPlace, WarmedUp] = {}
        # One after the other: they share the device.
        for place, worker in workers.items():
            least_seconds = 0.0
            if self.resident:
                least_seconds = FURTHER_WARM_UP_SECONDS if warm else WARM_UP_SECONDS
            request = WarmUpRequest(
                block_seconds=self._block_seconds,
                cap_seconds=WARM_UP_CAP_SECONDS,
                least_seconds=least_seconds,
            )
            doing = Activity("warming up {name}", name=self.reference.name)
            warm[place] = worker.worker.ask(request, WarmedUp, doing=doing)
        seconds = (self.observer.monotonic() - began) / max(1, len(places))
        start_number = self._start if self.resident else None
        for place, worker in workers.items():
            self._started += 1
            self.kept[place] = WarmWorker(
                worker.worker,
                loaded[place],
                warm[place],
                self._started,
                seconds,
                start_number,
            )

    def _begin_loading(self, place: WarmPlace, start: Start) -> LoadingWorker:
        if place in self._ahead:
            ahead = self._ahead.pop(place)
            self._stack.push(ahead.stack)
            return ahead.worker
        seed = start.twin_seed if place.is_twin else self._layout_seed
        return self._stack.enter_context(self._loading(place, seed))

    def _loading(
        self, place: WarmPlace, layout_seed: int, *, on_next: bool = False
    ) -> AbstractContextManager[LoadingWorker]:
        plan = WorkerPlan(
            place.checkout,
            self.reference,
            self.cpus,
            f"{self.reference.name}-pairs",
            layout_seed,
            scatters=True,
            on_next=on_next,
        )
        return self.bench.loading(plan)


def resident_workers(
    bench: Bench, reference: WorkloadReference, observer: Observer
) -> WarmWorkers:
    """Workers of both sides that stay loaded on an accelerator; none is started yet."""
    cpus = quietest_cpus(bench.config.pair_cpus())
    return WarmWorkers(bench, reference, observer=observer, cpus=cpus, resident=True)

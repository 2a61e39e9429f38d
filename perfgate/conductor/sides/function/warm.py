"""Workers that have a workload loaded and warm, kept from pair to pair: the members of a pair are forked from them.

Loading and warming up may take longer than the blocks of a pair. Done once for some pairs and not in each, it leaves most of
the wall to recorded calls. A member is still a process of its own, which moves in memory before every quad, and no
process runs the code of both sides. Each side has its own, so no worker of base is forked from a process that ran code of head.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from perfgate.conductor.engine.order import Start
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.workers.bench import Bench, Checkout, LoadingWorker
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.locale import Activity
from perfgate.protocol import Loaded, WarmedUp, WarmUpRequest

WARM_UP_CAP_SECONDS = 8.0
# A card that idled while a model was loaded takes this long to reach its working temperature and clock.
RESIDENT_WARM_UP_SECONDS = 1.5


class WarmPlace(NamedTuple):
    """Whose worker it is: a checkout's, or that of the twin of base."""

    checkout: Checkout
    is_twin: bool = False


@dataclass(frozen=True)
class WarmWorker:
    """A worker with its workload loaded and warm, its number, and its part of the seconds that starting took.

    ``start`` is the number of the pair for which it and the others were started, if they stay for further pairs without
    being forked; otherwise None.
    """

    worker: Worker
    loaded: Loaded
    warm: WarmedUp
    number: int
    seconds: float
    start: int | None = None


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
    _stack: ExitStack = field(default_factory=ExitStack)
    _block_seconds: float = 0.0
    _layout_seed: int = 0
    _start: int = 0
    _started: int = 0

    def get(self, places: Sequence[WarmPlace], start: Start, *, block_seconds: float) -> list[WarmWorker]:
        """The warm workers of these places: those that there are, or new ones, started in this order.

        All that are kept together were loaded into the layout of the first one's plan, a twin into another. Resident ones load
        at the same time: loading waits for disks and copies. Raises WorkerError.
        """
        if block_seconds != self._block_seconds:
            self.close()
            self._block_seconds = block_seconds
        if not self.kept:
            self._layout_seed, self._start = start.layout_seed, start.number
        lacking = [place for place in places if place not in self.kept]
        for together in [lacking] if self.resident else [[place] for place in lacking]:
            self._start_together(together, start)
        return [self.kept[place] for place in places]

    def common_parts(self, *checkouts: Checkout) -> list[str]:
        """The modules that the warm workers of all these checkouts imported; none if one of them has no worker."""
        places = [WarmPlace(checkout) for checkout in checkouts]
        found = [self.kept[place].warm.parts for place in places if place in self.kept]
        if len(found) < len(checkouts):
            return []
        return [part for part in found[0] if all(part in parts for parts in found)]

    def close(self) -> None:
        """End all of them."""
        self.kept.clear()
        self._stack.close()

    def _start_together(self, places: Sequence[WarmPlace], start: Start) -> None:
        began = self.observer.monotonic()
        loading = [self._begin_loading(place, start) for place in places]
        loaded = [worker.wait() for worker in loading]
        # One after the other: they share the device.
        warm = [self._warm_up(worker.worker) for worker in loading]
        seconds = (self.observer.monotonic() - began) / max(1, len(places))
        for place, worker, about, ready in zip(places, loading, loaded, warm):
            self._started += 1
            start_number = self._start if self.resident else None
            self.kept[place] = WarmWorker(worker.worker, about, ready, self._started, seconds, start_number)

    def _begin_loading(self, place: WarmPlace, start: Start) -> LoadingWorker:
        return self._stack.enter_context(
            self.bench.loading(
                place.checkout,
                self.reference,
                cpus=self.cpus,
                layout_seed=start.twin_seed if place.is_twin else self._layout_seed,
                log_name=f"{self.reference.name}-pairs",
                scatters=True,
            )
        )

    def _warm_up(self, worker: Worker) -> WarmedUp:
        request = WarmUpRequest(
            block_seconds=self._block_seconds,
            cap_seconds=WARM_UP_CAP_SECONDS,
            least_seconds=RESIDENT_WARM_UP_SECONDS if self.resident else 0.0,
        )
        timeout, doing = self.bench.config.measure.step_timeout, Activity("warming up {name}", name=self.reference.name)
        return worker.ask(request, WarmedUp, timeout=timeout, doing=doing)


def resident_workers(bench: Bench, reference: WorkloadReference, observer: Observer | None = None) -> WarmWorkers:
    """Workers of both sides that stay loaded on an accelerator; none is started yet."""
    cpus = quietest_cpus(bench.config.pair_cpus())
    return WarmWorkers(bench, reference, observer=observer or Observer(), cpus=cpus, resident=True)

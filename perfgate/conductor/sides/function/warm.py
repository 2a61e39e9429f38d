"""Workers that have a workload loaded and warm, kept from pair to pair: the members of a pair are forked from them.

Loading and warming up may take longer than the blocks of a pair. Done once for some pairs and not in each, it leaves most of
the wall to recorded calls. A member is still a process of its own, which moves in memory before every quad, and no
process runs the code of both sides. Each side has its own, so no worker of base is forked from a process that ran code of head.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass, field

from perfgate.conductor.sides.function.plan import PairPlan
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.locale import Activity
from perfgate.protocol import Loaded, WarmedUp, WarmUpRequest

WARM_UP_CAP_SECONDS = 8.0


@dataclass(frozen=True)
class WarmWorker:
    """A worker with its workload loaded and warm, its number, and the seconds that starting it took."""

    worker: Worker
    loaded: Loaded
    warm: WarmedUp
    number: int
    seconds: float


@dataclass
class WarmWorkers:
    """The warm workers of one workload on the fork servers that run now."""

    bench: Bench
    reference: WorkloadReference
    _: KW_ONLY
    observer: Observer
    cpus: list[int]
    kept: dict[tuple[Checkout, bool], WarmWorker] = field(default_factory=dict)
    _stack: ExitStack = field(default_factory=ExitStack)
    _block_seconds: float = 0.0
    _layout_seed: int = 0
    _started: int = 0

    def get(self, checkout: Checkout, plan: PairPlan, *, block_seconds: float, is_twin: bool) -> WarmWorker:
        """The warm worker of a checkout, or of the twin of base: the one that there is, or a new one.

        All that are kept together were loaded into the layout of the first one's plan, a twin into another. Raises WorkerError.
        """
        if block_seconds != self._block_seconds:
            self.close()
            self._block_seconds = block_seconds
        if not self.kept:
            self._layout_seed = plan.layout_seed
        key = checkout, is_twin
        if key not in self.kept:
            self.kept[key] = self._start(checkout, plan.twin_seed if is_twin else self._layout_seed)
        return self.kept[key]

    def common_parts(self, *checkouts: Checkout) -> list[str]:
        """The modules that the warm workers of all these checkouts imported; none if one of them has no worker."""
        found = [self.kept[checkout, False].warm.parts for checkout in checkouts if (checkout, False) in self.kept]
        if len(found) < len(checkouts):
            return []
        return [part for part in found[0] if all(part in parts for parts in found)]

    def close(self) -> None:
        """End all of them."""
        self.kept.clear()
        self._stack.close()

    def _start(self, checkout: Checkout, layout_seed: int) -> WarmWorker:
        began = self.observer.monotonic()
        worker, loaded = self._stack.enter_context(
            self.bench.worker(
                checkout,
                self.reference,
                cpus=self.cpus,
                layout_seed=layout_seed,
                log_name=f"{self.reference.name}-pairs",
                scatters=True,
            )
        )
        request = WarmUpRequest(block_seconds=self._block_seconds, cap_seconds=WARM_UP_CAP_SECONDS)
        timeout, doing = self.bench.config.measure.step_timeout, Activity("warming up {name}", name=self.reference.name)
        warm = worker.ask(request, WarmedUp, timeout=timeout, doing=doing)
        self._started += 1
        return WarmWorker(worker, loaded, warm, self._started, self.observer.monotonic() - began)

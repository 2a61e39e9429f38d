"""A workload on both sides: the code, and the replicates that its pairs and stretches leave in both run documents."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.profiles import PairTrace
from perfgate.conductor.sides.function.warm import WarmWorker, WarmWorkers
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.document.run import FailedPair
from perfgate.document.samples import Replicate


@dataclass
class PairedMeasurement:
    """The replicates of both run documents, the pairs that failed, and the traces of some that did not.

    ``given_up`` counts earlier pairs, measured in memory layouts that were given up; their replicates are not here.
    ``uncounted`` names the hardware counters that a worker lacked, and why. ``begun`` pairs of the plan of ``draw`` were run,
    with or without success; ``seconds`` are those that all pairs took of their budget.
    """

    base: list[Replicate] = field(default_factory=list)
    head: list[Replicate] = field(default_factory=list)
    failed: list[FailedPair] = field(default_factory=list)
    traces: list[PairTrace] = field(default_factory=list)
    given_up: int = 0
    uncounted: str | None = None
    draw: int = 0
    begun: int = 0
    seconds: float = 0.0

    def give_up(self) -> None:
        self.given_up += sum(replicate.member == "first" for replicate in self.base)
        for entries in (self.base, self.head, self.failed, self.traces):
            entries.clear()


@dataclass
class WorkloadSides:
    """A workload, the code of both sides, and the measurement that its processes add to.

    ``round_number`` is 0 in a first job, and one more in each job that adds to it. No process starts after ``deadline`` (of the
    monotonic clock). ``before_start`` is called while no worker works. ``observer`` has the clocks, and the kernel's view of
    workers: by default this machine's. ``residents`` are the workers of an accelerator, which the stretches take over
    from the pairs.
    """

    bench: Bench
    reference: WorkloadReference
    base: Checkout
    head: Checkout
    measured: PairedMeasurement = field(default_factory=PairedMeasurement)
    round_number: int = 0
    deadline: float = math.inf
    before_start: Callable[[], None] = lambda: None
    observer: Observer = field(default_factory=Observer)
    residents: WarmWorkers | None = None

    def warm_workers(self, cpus: list[int]) -> WarmWorkers:
        """The residents, or new workers on these CPUs."""
        return self.residents or WarmWorkers(
            self.bench, self.reference, observer=self.observer, cpus=cpus
        )

    def release(self, workers: WarmWorkers) -> None:
        """End workers that are not resident."""
        if workers is not self.residents:
            workers.close()

    def member(self, origin: WarmWorker, worker: Worker) -> Member:
        """A member of a pair, which is the warm worker itself or forked from it."""
        timeout = self.bench.config.measure.step_timeout
        return Member(
            worker,
            origin,
            workload=self.reference.name,
            observer=self.observer,
            timeout=timeout,
        )

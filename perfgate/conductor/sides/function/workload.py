"""A workload on both sides: the code, and the replicates that its pairs and stretches
leave in both run documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.engine import Start
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.function.member import CardTurns, Member
from perfgate.conductor.sides.function.warm import WarmWorker, WarmWorkers
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker
from perfgate.config import WorkloadReference
from perfgate.document.run import ErrorDetail, FailedPair
from perfgate.document.samples import Replicate
from perfgate.protocol import BlockRequest


class PairTrace(NamedTuple):
    """The recordings of both members of one pair for one shape, each of one turn."""

    pair: int
    shape: str
    base: Path
    head: Path


@dataclass
class PairedMeasurement:
    """The replicates of both run documents, the pairs that failed, and the traces of
    some that did not.

    ``given_up`` counts earlier pairs, measured in memory layouts that were given up;
    their replicates are not here. ``uncounted`` names the hardware counters that a
    worker lacked, and why. ``begun`` pairs of the plan of ``draw`` were run, with or
    without success; ``seconds`` are those that all pairs took of their budget.
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
    """A workload, the code of both sides, and the measurement that its processes add
    to.

    ``round_number`` is 0 in a first job, and one more in each job that adds to it. No
    process starts after ``deadline`` (of the monotonic clock). ``before_start`` is
    called while no worker works. ``observer`` has the clocks, and the kernel's view of
    workers: by default this machine's. ``residents`` are the workers of an accelerator,
    which the stretches take over from the pairs.
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


class FunctionTurns:
    """What the clients of the engine for a workload share: its processes, and the
    measurement that they add to.
    """

    def __init__(self, sides: WorkloadSides) -> None:
        self.sides = sides
        self.bench = sides.bench
        self.measured = sides.measured
        self.name = sides.reference.name
        self.cpus = quietest_cpus(self.bench.config.pair_cpus())
        self.is_resident = sides.residents is not None
        self.warm = sides.residents or WarmWorkers(
            self.bench, sides.reference, observer=sides.observer, cpus=self.cpus
        )
        self.card = CardTurns(sides.observer, self.name, self.bench.say)
        # The blocks of a start so far.
        self.blocks = 0

    def member(self, origin: WarmWorker, worker: Worker) -> Member:
        """A member of a pair, which is the warm worker itself or forked from it."""
        return Member(worker, origin, self.name, self.sides.observer)

    def run_block(self, member: Member, request: BlockRequest) -> None:
        if self.is_resident:
            self.card.wake(member, request.shape)
        member.run_block(request)
        self.card.note_work()
        self.blocks += 1

    def collect(self, member: Member, start: Start, index: int) -> Replicate:
        replicate = member.replicate(start, index, self.cpus)
        self.measured.uncounted = self.measured.uncounted or member.uncounted
        return replicate

    def fail_at(self, start: Start, error: ErrorDetail) -> None:
        failed = FailedPair(
            pair=start.number, arm=start.arm, workload=self.name, error=error
        )
        self.measured.failed.append(failed)

    def close(self) -> None:
        """End the workers that are not resident."""
        if not self.is_resident:
            self.warm.close()

"""Batch sizes inside the pairs: after its quads, a pair runs short blocks at every
batch size, both sides in turns.

A round is one pair, with one process of each side, so luck of a process is part of the
spread between rounds. A few milliseconds lie between the two sides' blocks of a size,
so a disturbance hits both.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from statistics import fmean

import msgspec

from perfgate.conductor.engine import balanced_coins, order_of
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.proc_stats import waited_share
from perfgate.conductor.workers.worker import ReplyType, Worker, WorkerError
from perfgate.document.message import Message
from perfgate.document.run import ErrorDetail
from perfgate.document.sweep import Sweep
from perfgate.locale import Activity
from perfgate.protocol import (
    SLOW_CALL_SECONDS,
    SizeBlockDone,
    SizeBlockRequest,
    SizesTried,
    TrySizesRequest,
)
from perfgate.system.processes import run_delay_ns

BLOCK_SECONDS = 0.01
# A signed-rank interval at 95 % needs six rounds; sixteen resolve 2 to 10 % at every
# size of a small model.
FEWEST_ROUNDS, MOST_ROUNDS = 6, 16
# Seconds of all rounds. The fewest rounds may take twice as long; the largest sizes are
# left out if they would take longer.
ROUNDS_SECONDS = 8.0
_BLOCKS_OF_A_SIZE = 4


@dataclass
class SizesOfSide:
    """One side's sweep over the rounds; ``error`` is the end of its process.

    ``waited`` are shares of rounds without a CPU.
    """

    sweep: Sweep = field(default_factory=Sweep)
    error: ErrorDetail | None = None
    seconds: float = 0.0
    waited: list[float] = field(default_factory=list)


@dataclass
class BatchSizes:
    """Measures the batch sizes of a workload in some of its pairs; ``reason`` is why it
    stopped, or never began.
    """

    bench: Bench
    workload: str
    configured: int
    sides: tuple[SizesOfSide, SizesOfSide] = field(
        default_factory=lambda: (SizesOfSide(), SizesOfSide())
    )
    reason: Message | None = None
    rounds: int = 0
    # Whether a call of another size failed in the processes of the latest round.
    has_failed: bool = False
    _most_rounds: int = MOST_ROUNDS
    _lot: random.Random = field(init=False)
    _head_leads: Iterator[bool] = field(init=False)

    def __post_init__(self) -> None:
        self._lot = random.Random(
            f"{self.bench.config.measure.seed}:{self.workload}:sizes"
        )
        self._head_leads = balanced_coins(self._lot, run=2)

    @property
    def is_finished(self) -> bool:
        return self.reason is not None or self.rounds >= self._most_rounds

    def run_round(self, base: Worker, head: Worker, *, call_seconds: float) -> None:
        """Run one round in the processes of a pair; a process that fails ends the sweep
        and not the pair.
        """
        self.has_failed = False
        if self.is_finished:
            return
        if call_seconds >= SLOW_CALL_SECONDS:
            self.reason = Message(
                "times.sizes-take-too-long", {"seconds": call_seconds}
            )
            return
        if not self.rounds:
            self._try_sizes(base, head)
        if not self.is_finished:
            self._run(base, head)

    def _try_sizes(self, base: Worker, head: Worker) -> None:
        """Find the sizes that work on both sides, and the number of rounds that fit
        into the time.
        """
        config = self.bench.config
        request = TrySizesRequest(limits=config.limit_values, seed=config.measure.seed)
        for side, worker in zip(self.sides, (base, head)):
            tried = self._ask(side, worker, request, SizesTried)
            if tried is None:
                return
            side.sweep = replace(tried.sweep, sizes=[])
            if tried.sweep.refused or tried.sweep.out_of_memory:
                self.has_failed = True
        before = self.sides[0].sweep.call_seconds
        after = self.sides[1].sweep.call_seconds
        common = {
            size: max(before[size], after[size])
            for size in sorted(before.keys() & after.keys())
        }
        fitting = sizes_in_time(common, self.configured)
        for side in self.sides:
            side.sweep.sizes = sorted(fitting)
            if len(fitting) < len(common):
                side.sweep.too_slow = min(common.keys() - fitting.keys())
        rounds = int(ROUNDS_SECONDS / _seconds_of_a_round(fitting))
        self._most_rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, rounds))
        self._end_without_others()

    def _ask(
        self,
        side: SizesOfSide,
        worker: Worker,
        request: msgspec.Struct,
        reply: type[ReplyType],
    ) -> ReplyType | None:
        """The reply of a side; None if its process fails, which ends the sweep."""
        doing = Activity("measuring batch sizes of {name}", name=self.workload)
        try:
            return worker.ask(request, reply, doing=doing)
        except WorkerError as error:
            self.has_failed = True
            side.error = error.detail
            self.reason = Message("times.batch-process-ended")
            return None

    def _run(self, base: Worker, head: Worker) -> None:
        workers = base, head
        delays = [run_delay_ns(worker.pid) for worker in workers]
        began = time.perf_counter_ns()
        sizes = self.sides[0].sweep.sizes
        for size in self._lot.sample(sizes, len(sizes)):
            if size in self.sides[0].sweep.sizes:
                self._measure(size, workers)
            if self.reason is not None:
                self._forget_round()
                return
        elapsed = time.perf_counter_ns() - began
        self.rounds += 1
        for side, worker, delay in zip(self.sides, workers, delays):
            side.seconds += elapsed / len(workers) / 1e9
            waited = waited_share(delay, run_delay_ns(worker.pid), elapsed)
            if waited is not None:
                side.waited.append(waited)

    def _forget_round(self) -> None:
        """Forget the rates of a round that ended early: sizes are compared round by
        round.
        """
        for side in self.sides:
            for rates in side.sweep.rates.values():
                del rates[self.rounds :]

    def _measure(self, size: int, workers: tuple[Worker, Worker]) -> None:
        """Run the four blocks of a size, A B B A or B A A B; a size that fails on a
        side is dropped on both.
        """
        order = order_of(next(self._head_leads))
        rates: tuple[list[float], list[float]] = ([], [])
        request = SizeBlockRequest(size=size, seconds=BLOCK_SECONDS)
        for index in order:
            side = self.sides[index]
            done = self._ask(side, workers[index], request, SizeBlockDone)
            if done is None:
                return
            if done.rate is None:
                self._drop(size, side, done.refused)
                return
            rates[index].append(done.rate)
            side.sweep.latencies.setdefault(size, []).extend(done.latencies)
        for side, of_side in zip(self.sides, rates):
            side.sweep.rates.setdefault(size, []).append(fmean(of_side))

    def _drop(self, size: int, side: SizesOfSide, refused: Message | None) -> None:
        """Forget a size on both sides, and without a refusal, which means memory, all
        larger sizes.
        """
        self.has_failed = True
        if refused is None:
            side.sweep.out_of_memory = size
        else:
            side.sweep.refused[size] = refused
        for each in self.sides:
            if refused is None:
                each.sweep.drop_from(size)
            else:
                each.sweep.drop(size)
        self._end_without_others()

    def _end_without_others(self) -> None:
        """End if only the configured size works on both sides."""
        if set(self.sides[0].sweep.sizes) <= {self.configured}:
            self.reason = Message(
                "times.no-other-size-on-both-sides", {"configured": self.configured}
            )


def sizes_in_time(
    call_seconds: Mapping[int, float], configured: int
) -> dict[int, float]:
    """The sizes whose fewest rounds fit into twice the time: the largest are left out,
    the configured size never.
    """
    sizes = dict(call_seconds)
    for size in sorted(call_seconds, reverse=True):
        if FEWEST_ROUNDS * _seconds_of_a_round(sizes) <= 2 * ROUNDS_SECONDS:
            break
        if size != configured:
            del sizes[size]
    return sizes


def _seconds_of_a_round(call_seconds: Mapping[int, float]) -> float:
    """A block follows an unrecorded call and holds at least one."""
    return sum(
        _BLOCKS_OF_A_SIZE * (seconds + max(seconds, BLOCK_SECONDS))
        for seconds in call_seconds.values()
    )

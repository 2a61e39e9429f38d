"""Interleaved pairs: two processes take turns on the same CPUs and the same device, a few milliseconds each.

The order of everything that could favour a side is drawn from a recorded seed: which side starts first, whether a quad runs
first-second-second-first or the other way round, when a base-against-base pair comes. Before every quad both sides move to
another layout, the same one.
"""

from __future__ import annotations

import math
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.handover import refuse_other_blocks
from perfgate.conductor.sides.operators import LateOperators, PairTrace, with_operators, with_subroutines
from perfgate.conductor.sides.traces import TRACED_PAIRS, record_traces
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import Worker, WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import PAIRS_PER_ROUND, TIME_SPENT, Arm, BlockColumns, ErrorDetail, FailedPair, Replicate
from perfgate.document.samples import unpack
from perfgate.document.tolerances import judges_subroutines
from perfgate.protocol import (
    BlockDone,
    BlockRequest,
    Collected,
    CollectRequest,
    Lane,
    Moved,
    MoveRequest,
    WarmedUp,
    WarmUpRequest,
)
from perfgate.system.interrupts import safe_point

WARM_UP_CAP_SECONDS = 8.0
FAILURES_TO_STOP = 3
DEAD_FUNCTIONS = (5, 120)
# Profiling costs half as much time again as a short pair; so many pairs name an operator that lost 10 %.
PROFILED_PAIRS = 12
# A side that is so many times slower has longer blocks by as much; one that is slower still does not eat the budget.
MOST_LONGER = 4
# Quads of a pair: with s the start-up of a pair and q the time of a quad, 3 sqrt(s / q) of them tell most in a given time where
# effects of quads spread three times as much as those of processes, as they do since every quad has a layout of its own
# (benchmarks/gate/FINDINGS.md, section 3). Where luck of a layout makes them spread by more than UNLIKE, only many tell much:
# a pair then has as many as fit into UNLIKE_SECONDS, of blocks that are SHORTER by this factor.
FEWEST_QUADS, MOST_QUADS = 4, 16
UNLIKE, UNLIKE_SECONDS, SHORTER = 0.03, 1.0, 4


@dataclass
class PairedMeasurement:
    """The replicates of both run documents, the pairs that failed, and the traces of some that did not.

    Before them so many pairs were measured in layouts that were given up (``given_up``), which are not among them.
    ``uncounted`` says which hardware counters a worker lacked, and why.
    """

    base: list[Replicate] = field(default_factory=list)
    head: list[Replicate] = field(default_factory=list)
    failed: list[FailedPair] = field(default_factory=list)
    traces: list[PairTrace] = field(default_factory=list)
    given_up: int = 0
    uncounted: str | None = None

    def give_up(self) -> None:
        """Leave the pairs out, and keep how many there were."""
        self.given_up += sum(replicate.member == "first" for replicate in self.base)
        for kept in (self.base, self.head, self.failed, self.traces):
            kept.clear()


class _Plan(NamedTuple):
    """Everything about one pair that is drawn by lot.

    Where base runs against base, the second is a twin: the same code after ``dead_functions`` that put it elsewhere.
    """

    pair: int
    arm: Arm
    layout_seed: int
    dead_functions: int
    second_starts: bool
    second_leads_quad: list[bool]


@dataclass
class _Seen:
    """What the conductor saw of the blocks of one shape, in the order they ran."""

    asked: list[BlockRequest] = field(default_factory=list)
    asked_ns: list[int] = field(default_factory=list)
    seen_ns: list[int] = field(default_factory=list)
    run_delay_ns: list[int] = field(default_factory=list)
    used_ns: list[int] = field(default_factory=list)
    out_of_turn_ns: list[int] = field(default_factory=list)
    waited_ns: list[int] = field(default_factory=list)
    conductor_delay_ns: list[int] = field(default_factory=list)


@dataclass
class _Member:
    worker: Worker
    warm: WarmedUp
    start_up: float
    analysed_late: bool
    seen: dict[tuple[Lane, str], _Seen] = field(default_factory=dict)
    movable: bool = True
    used_until_now: int | None = None
    last_turn_ended: int | None = None
    # Of CPU time used out of turn and of that time, what belongs to no block yet.
    used_out_of_turn: int = 0
    waited: int = 0


def measure_pairs(
    bench: Bench,
    reference: WorkloadReference,
    *,
    base: Checkout,
    head: Checkout,
    measured: PairedMeasurement,
    looks: Sequence[int],
    round_number: int,
    enough: Callable[[], bool],
    needs_names: Callable[[], bool] = lambda: True,
    deadline: float = math.inf,
    budget_ends: float | None = None,
    draw: int = 0,
    observer: Observer | None = None,
    traces: Path | None = None,
) -> None:
    """Measure pairs of one workload into ``measured`` until, at a look, ``enough`` says so or the time is spent.

    Three failures in a row end it too: the workload does not work. After ``deadline`` (of the monotonic clock) no pair
    begins; that none could be measured is a failure, for a gate without times must not look like one with.
    ``observer`` holds the clocks and what the kernel says of workers: by default those of this machine. From where
    ``needs_names``, which is asked before the first pair, at every look and on the way to an only one, some pairs of the first
    round profile their operators, and leave traces in the folder ``traces``, where there is one. ``draw`` is how often layouts
    were drawn before, and ``budget_ends`` when their common budget does.
    """
    gate = bench.config.gate
    observer = observer or Observer()
    budget_ends = observer.monotonic() + gate.budget if budget_ends is None else budget_ends
    plans = draw_plans(
        bench.config.measure.seed,
        reference.name,
        pairs=looks[-1],
        aa_pairs=gate.aa_pairs,
        first_look=looks[0],
        round_number=round_number,
        draw=draw,
    )
    cpus = quietest_cpus(bench.config.pair_cpus())
    measuring = _Measuring(bench, reference, base, head, cpus, measured, observer, traces)
    ends = list(_ends_of_looks(plans, looks))
    renewals = _renewals(bench, reference.name, round_number, draw, at=[ends[0] // 2, *ends])
    # Where there is one look, what it finds must have a name by then.
    ask_for_names = {0, *ends[:-1], *([ends[0] // 3] if len(ends) == 1 else [])} if round_number == 0 else set()
    # Two looks are worth their time on any machine.
    sure = 2 if round_number == 0 else 1
    done = 0
    for look, until in enumerate(ends):
        for plan in plans[done:until]:
            if done in ask_for_names and not measuring.names_causes and needs_names():
                measuring.name_causes()
            if observer.monotonic() > deadline:
                measuring.out_of_time(plan)
                return
            # What a later job adds ends at a planned number of pairs.
            may_end = look >= sure and (round_number == 0 or done == ends[look - 1])
            if may_end and observer.monotonic() > budget_ends:
                measuring.finish()
                return
            if done in renewals:
                bench.start_beside(renewals[done])
            bench.renew()
            measuring.measure(plan, f"pair {done + 1}, at most {len(plans)}")
            done += 1
            if measuring.hopeless:
                break
        if measuring.hopeless or enough():
            break
    measuring.finish()


def draw_plans(
    seed: int, workload: str, *, pairs: int, aa_pairs: int, first_look: int, round_number: int = 0, draw: int = 0
) -> list[_Plan]:
    """Return the pairs of one round in the order they run; the same seed, workload, round and draw give the same plan.

    The base-against-base pairs lie scattered among those of the first look. Who starts is balanced over every four pairs of
    an arm, and who leads over every two quads: on some workloads the process that starts second is faster, by 0.3 %
    (benchmarks/gate/FINDINGS.md, section 5).
    """
    lot = random.Random(_lot(seed, workload, round_number, draw))
    early: list[Arm] = [*["ab"] * first_look, *["aa"] * aa_pairs]  # type: ignore[list-item]
    lot.shuffle(early)
    late: list[Arm] = ["ab"] * (pairs - first_look)
    starts = {"ab": _balanced(lot, pairs, run=4), "aa": _balanced(lot, aa_pairs, run=4)}
    return [
        _Plan(
            pair=round_number * PAIRS_PER_ROUND + number,
            arm=arm,
            layout_seed=lot.randrange(1, 65536),
            dead_functions=lot.randrange(*DEAD_FUNCTIONS) if arm == "aa" else 0,
            second_starts=starts[arm].pop(),
            second_leads_quad=_balanced(lot, MOST_QUADS, run=2),
        )
        for number, arm in enumerate(early + late)
    ]


def _lot(seed: int, workload: str, round_number: int, draw: int) -> str:
    return f"{seed}/{workload}/{round_number}" + (f"/{draw}" if draw else "")


def _balanced(lot: random.Random, count: int, *, run: int) -> list[bool]:
    """Return coins of which every ``run``, an even number, hold as many heads as tails."""
    coins: list[bool] = []
    while len(coins) < count:
        of_run = [True, False] * (run // 2)
        lot.shuffle(of_run)
        coins += of_run
    return coins[:count]


def _ends_of_looks(plans: Sequence[_Plan], looks: Sequence[int]) -> Iterator[int]:
    """Yield how many plans each look ends after."""
    aa_pairs = sum(plan.arm == "aa" for plan in plans)
    for pairs in looks:
        yield pairs + aa_pairs


def _renewals(bench: Bench, workload: str, round_number: int, draw: int, *, at: Sequence[int]) -> dict[int, int]:
    """Return before which plans new fork servers are started, and with which hash seed.

    Addresses and hashes belong to a server, so that code which only differs can be up to 1 % slower in all pairs of one, and
    as much faster in those of another (benchmarks/gate/FINDINGS.md, section 5). The new ones start beside the pairs, on
    another CPU than theirs: where there is none, both sides of a pair wait for it alike.
    """
    lot = random.Random(f"{_lot(bench.config.measure.seed, workload, round_number, draw)}/servers")
    return {number: lot.randrange(2**32) for number in at}


class _Measuring:
    """Measures one pair after another into ``measured``; one that fails is kept as such."""

    def __init__(
        self,
        bench: Bench,
        reference: WorkloadReference,
        base: Checkout,
        head: Checkout,
        cpus: list[int],
        measured: PairedMeasurement,
        observer: Observer,
        traces: Path | None,
    ) -> None:
        self._bench = bench
        self._traces = traces
        self._observer = observer
        self._reference = reference
        self._base = base
        self._head = head
        # Where two servers are compared, base against base takes two servers too: a level that a server has for good is
        # then part of the noise floor.
        self._base_again = base if base.python == head.python else replace(base, second_server=True)
        for checkout in (self._base, self._base_again, self._head):
            bench.get_ready(checkout)
        self._cpus = cpus
        self._measured = measured
        self._late = LateOperators(bench)
        self._failures_in_a_row = 0
        self._profiled: int | None = None
        self._most_profiled = math.inf if judges_subroutines(bench.config.gate.tolerance) else PROFILED_PAIRS
        self._quads = bench.config.gate.quads or FEWEST_QUADS
        self._block_seconds = bench.config.gate.block_seconds
        self._shortest_start = self._shortest_quad = math.inf
        self._spreads: list[float] = []

    @property
    def hopeless(self) -> bool:
        """Whether so many pairs in a row failed that the rest would too."""
        return self._failures_in_a_row >= FAILURES_TO_STOP

    @property
    def names_causes(self) -> bool:
        """Whether pairs profile their operators, and some of them trace."""
        return self._profiled is not None

    def name_causes(self) -> None:
        """Let the next pairs do so."""
        self._profiled = 0

    def measure(self, plan: _Plan, which: str) -> None:
        """Measure one pair."""
        safe_point()
        second = "head" if plan.arm == "ab" else "base (noise floor)"
        self._bench.say(f"{self._reference.name}: {which}, base against {second}")
        members: dict[int, _Member] = {}
        try:
            first, other = self._pair(plan, members)
        except WorkerError as error:
            detail = self._both_at_once(error.detail) if members else error.detail
            failed = FailedPair(pair=plan.pair, arm=plan.arm, workload=self._reference.name, error=detail)
            self._measured.failed.append(failed)
            self._failures_in_a_row += 1
            return
        self._failures_in_a_row = 0
        self._measured.base.append(first)
        (self._measured.head if plan.arm == "ab" else self._measured.base).append(other)

    def out_of_time(self, plan: _Plan) -> None:
        """End before a pair, and keep that there is none yet."""
        self.finish()
        if not self._measured.head:
            error = ErrorDetail(kind="timeout", message=TIME_SPENT)
            self._measured.failed.append(
                FailedPair(pair=plan.pair, arm=plan.arm, workload=self._reference.name, error=error)
            )

    def finish(self) -> None:
        """Do what waits for the end of the last pair."""
        self._measured.traces += self._late.put_into(self._measured.base, self._measured.head)

    def _both_at_once(self, error: ErrorDetail) -> ErrorDetail:
        """Return the error of a pair of which one side was loaded, and where memory is full, say that both must fit."""
        if error.kind != "memory":
            return error
        message = (
            f"base and head do not fit into the memory of {self._bench.config.device} together, and a pair holds both at once: "
            f"measure smaller inputs, or on a device with more memory ({error.message})"
        )
        return msgspec.structs.replace(error, message=message)

    def _pair(self, plan: _Plan, members: dict[int, _Member]) -> tuple[Replicate, Replicate]:
        checkouts = [self._base, self._head if plan.arm == "ab" else self._base_again]
        began = self._observer.monotonic()
        with ExitStack() as stack:
            for index in (1, 0) if plan.second_starts else (0, 1):
                members[index] = self._start(stack, checkouts[index], plan, dead_functions=plan.dead_functions * index)
            started = self._observer.monotonic()
            self._run_quads(plan, members)
            quad = (self._observer.monotonic() - started) / self._quads
            replicates = self._replicate(plan, members[0], 0), self._replicate(plan, members[1], 1)
            self._choose_quads(started - began, quad, _spread_of_quads(*replicates))
            if plan.arm != "ab" or self._profiled is None or self._profiled >= self._most_profiled:
                return replicates
            workers = members[0].worker, members[1].worker
            if judges_subroutines(self._bench.config.gate.tolerance, PYTHON_TIMES):
                replicates = with_subroutines(workers, replicates, timeout=self._timeout, say=self._bench.say)
            traces = self._traces if self._profiled < TRACED_PAIRS else None
            self._profiled += 1
            if members[0].analysed_late:
                self._late.record(workers, replicates, checkouts, timeout=self._timeout, traces=traces)
                return replicates
            replicates = with_operators(workers, replicates, timeout=self._timeout, say=self._bench.say)
            if traces is not None:
                head_first = len(self._measured.traces) // len(replicates[0].shapes) % 2 == 1
                self._measured.traces += record_traces(
                    workers,
                    replicates,
                    folder=traces,
                    head_first=head_first,
                    timeout=self._timeout,
                    say=self._bench.say,
                )
            return replicates

    def _start(self, stack: ExitStack, checkout: Checkout, plan: _Plan, *, dead_functions: int) -> _Member:
        name = self._reference.name
        worker, loaded = stack.enter_context(
            self._bench.worker(
                checkout,
                self._reference,
                cpus=self._cpus,
                layout_seed=plan.layout_seed,
                log_name=f"{name}-pairs",
                dead_functions=dead_functions,
            )
        )
        request = WarmUpRequest(block_seconds=self._block_seconds, cap_seconds=WARM_UP_CAP_SECONDS)
        warm = worker.ask(request, WarmedUp, timeout=self._timeout, doing=f"warming up {name}")
        return _Member(worker, warm, loaded.seconds, analysed_late="late_analysis" in loaded.capabilities)

    def _run_quads(self, plan: _Plan, members: dict[int, _Member]) -> None:
        """Run the quads of every lane of every shape: A B B A or B A A B. Both sides run blocks of equally many calls."""
        counts, others = (_block_calls(members[index].warm) for index in (0, 1))
        calls = {key: _common_calls(count, others.get(key, count)) for key, count in counts.items()}
        sequence = 0
        for quad, second_leads in enumerate(plan.second_leads_quad[: self._quads]):
            order = (1, 0, 0, 1) if second_leads else (0, 1, 1, 0)
            for index in order[:2]:
                self._move(members[index], plan.layout_seed * MOST_QUADS + quad)
            for (lane, shape), count in calls.items():
                for index in order:
                    request = BlockRequest(shape=shape, calls=count, quad=quad, sequence=sequence, lane=lane)
                    self._run_block(members[index], request)
                    sequence += 1

    def _choose_quads(self, start: float, quad: float, spread: float) -> None:
        """Let the next pairs have as many quads as their start is worth, unless the number is set; both times are in seconds.

        ``spread`` is that of the effects of this pair's quads.
        """
        if self._bench.config.gate.quads is not None:
            return
        self._spreads.append(spread)
        self._shortest_start = min(self._shortest_start, start)
        self._shortest_quad = min(self._shortest_quad, quad)
        worth = round(1.5 * math.sqrt(self._shortest_start / self._shortest_quad)) * 2
        if len(self._spreads) > 1 and np.median(self._spreads) > UNLIKE:
            self._block_seconds = self._bench.config.gate.block_seconds / SHORTER
            worth = int(UNLIKE_SECONDS / self._shortest_quad)
        self._quads = max(FEWEST_QUADS, min(MOST_QUADS, worth))

    def _move(self, member: _Member, seed: int) -> None:
        """Give a member another layout: what is luck of one is then a part of the spread, and no bias of all its quads."""
        self._begin_turn(member)
        moved = member.worker.ask(
            MoveRequest(seed), Moved, timeout=self._timeout, doing=f"moving {self._reference.name}"
        )
        member.movable &= moved.movable
        self._end_turn(member, self._observer.clock_ns())

    def _run_block(self, member: _Member, request: BlockRequest) -> None:
        """Run a block and keep what it looks like from outside, where user code has no hand."""
        pid, observer = member.worker.pid, self._observer
        seen = member.seen.setdefault((request.lane, request.shape), _Seen())
        seen.asked.append(request)
        own_delay = observer.run_delay_ns(os.getpid())
        used, waited = self._begin_turn(member), observer.run_delay_ns(pid)
        started = observer.clock_ns()
        member.worker.ask(request, BlockDone, timeout=self._timeout, doing=f"measuring {self._reference.name}")
        ended = observer.clock_ns()
        seen.asked_ns.append(started)
        seen.seen_ns.append(ended - started)
        seen.waited_ns.append(member.waited)
        seen.out_of_turn_ns.append(member.used_out_of_turn)
        member.waited = member.used_out_of_turn = 0
        used_after = self._end_turn(member, ended)
        waited_after, own_delay_after = observer.run_delay_ns(pid), observer.run_delay_ns(os.getpid())
        if waited is not None and waited_after is not None:
            seen.run_delay_ns.append(waited_after - waited)
        if own_delay is not None and own_delay_after is not None:
            seen.conductor_delay_ns.append(own_delay_after - own_delay)
        # The family shrinks where a process below the worker ends.
        seen.used_ns.append(max(0, used_after - used))

    def _begin_turn(self, member: _Member) -> int:
        """Keep what a member used since its last turn ended; return what it has used in all."""
        used = self._observer.cpu_ns(member.worker.pid)
        if member.used_until_now is not None and member.last_turn_ended is not None:
            member.used_out_of_turn += max(0, used - member.used_until_now)
            member.waited += self._observer.clock_ns() - member.last_turn_ended
        return used

    def _end_turn(self, member: _Member, ended: int) -> int:
        """Keep when a member's turn ended; return what it has used in all, once it sleeps."""
        self._observer.wait_asleep(member.worker.pid)
        member.used_until_now, member.last_turn_ended = self._observer.cpu_ns(member.worker.pid), ended
        return member.used_until_now

    def _replicate(self, plan: _Plan, member: _Member, index: int) -> Replicate:
        settings = self._observer.thread_settings(member.worker.pid)
        doing = f"collecting {self._reference.name}"
        collected = member.worker.ask(CollectRequest(), Collected, timeout=self._timeout, doing=doing)
        self._measured.uncounted = self._measured.uncounted or collected.uncounted
        return Replicate(
            pair=plan.pair,
            arm=plan.arm,
            member="second" if index else "first",
            workload=self._reference.name,
            layout_seed=plan.layout_seed,
            cpus=self._cpus,
            start_up=member.start_up,
            warm_up_calls=member.warm.calls,
            steady=member.warm.steady,
            moved=member.movable,
            shapes=_seen_blocks(collected.shapes, "call", member),
            preprocess=_seen_blocks(collected.preprocess, "preprocess", member),
            round=plan.pair // PAIRS_PER_ROUND,
            settings={**collected.settings, **settings},
        )

    @property
    def _timeout(self) -> float:
        return self._bench.config.measure.step_timeout


def _block_calls(warm: WarmedUp) -> dict[tuple[Lane, str], int]:
    """Return the calls of a block of every lane and shape; both lanes of a shape follow each other."""
    calls: dict[tuple[Lane, str], int] = {}
    for shape, count in warm.block_calls.items():
        calls["call", shape] = count
        if shape in warm.preprocess_calls:
            calls["preprocess", shape] = warm.preprocess_calls[shape]
    return calls


def _spread_of_quads(first: Replicate, second: Replicate) -> float:
    """Return by how much the quads' effects spread, logarithms of the ratio of the fastest calls' CPU or device time.

    It is that of the lane where it is most. What others do on the machine spreads other times.
    """
    return max(
        float(np.std(_fastest_of_quads(after) - _fastest_of_quads(before)))
        for (_, before), (_, after) in zip(first.lanes, second.lanes)
    )


def _fastest_of_quads(blocks: BlockColumns) -> npt.NDArray[np.float64]:
    calls, quads = np.asarray(blocks.calls), np.asarray(blocks.quad)
    fastest = np.minimum.reduceat(unpack(blocks.cpu), np.cumsum(calls) - calls)
    return np.log([fastest[quads == quad].min() for quad in np.unique(quads)])


def _common_calls(first: int, second: int) -> int:
    """Return how many calls the blocks of both sides have: those that fill a block on the faster side, within reason."""
    return min(max(first, second), MOST_LONGER * min(first, second))


def _seen_blocks(collected: Mapping[str, BlockColumns], lane: Lane, member: _Member) -> dict[str, BlockColumns]:
    """Return the blocks of one lane with what the conductor saw of them. Raises WorkerError where they are others."""
    seen = {shape: kept for (of, shape), kept in member.seen.items() if of == lane}
    refuse_other_blocks(collected, {shape: kept.asked for shape, kept in seen.items()})
    return {shape: _with_seen(columns, seen[shape]) for shape, columns in collected.items()}


def _with_seen(columns: BlockColumns, seen: _Seen) -> BlockColumns:
    blocks = len(seen.seen_ns)
    return msgspec.structs.replace(
        columns,
        asked_ns=seen.asked_ns,
        seen_ns=seen.seen_ns,
        run_delay_ns=seen.run_delay_ns if len(seen.run_delay_ns) == blocks else [],
        used_ns=seen.used_ns,
        out_of_turn_ns=seen.out_of_turn_ns,
        waited_ns=seen.waited_ns,
        conductor_delay_ns=seen.conductor_delay_ns if len(seen.conductor_delay_ns) == blocks else [],
    )

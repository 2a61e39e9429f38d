"""Interleaved pairs: two processes take turns on the same CPUs and the same device, a few milliseconds each.

Before every quad both sides move to another memory layout, the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.plan import (
    MOST_QUADS,
    SURE_LOOKS,
    PairPlan,
    QuadPlanner,
    draw_plans,
    draw_renewals,
    pairs_of_start,
)
from perfgate.conductor.sides.function.profiles import TRACED_PAIRS, LateOperators, record_traces, with_profile
from perfgate.conductor.sides.function.warm import WarmPlace, WarmWorkers
from perfgate.conductor.sides.function.workload import PairedMeasurement, WorkloadSides
from perfgate.conductor.workers.bench import Checkout
from perfgate.conductor.workers.foresight import foresee_pairs
from perfgate.conductor.workers.proc_stats import Observer
from perfgate.conductor.workers.worker import WorkerError
from perfgate.document.budget import judges_subroutines
from perfgate.document.message import Message
from perfgate.document.run import TIME_SPENT, ErrorDetail, FailedPair
from perfgate.document.samples import Arm, Replicate
from perfgate.locale import sentence
from perfgate.protocol import BlockRequest
from perfgate.system.interrupts import safe_point

# Servers are renewed after half a first look, after it, and then after as many pairs again, so that none starts just before a
# look that may end the pairs. They serve at least so many pairs: starting one takes as long as a pair. None is started for the
# last pair alone.
FEWEST_SERVED = 2
# A process may be permanently slower by a few percent, and so are its forks: after this many pairs both sides load anew
# (benchmarks/gate/FINDINGS.md, section 7).
FORKED_PAIRS = 2
FAILURES_TO_STOP = 3
# Profiling costs half as much time again as a short pair; so many pairs name an operator that lost 10 %.
PROFILED_PAIRS = 12
# A side that is so many times slower has longer blocks by as much; one that is slower still does not eat the budget.
MOST_LONGER = 4


def measure_pairs(
    sides: WorkloadSides,
    *,
    looks: Sequence[int],
    is_decided: Callable[[], bool],
    pairs_needed: Callable[[], int | None] = lambda: None,
    needs_names: Callable[[], bool] = lambda: True,
    budget_ends: float | None = None,
    draw: int = 0,
    first: int = 0,
    traces: Path | None = None,
    sizes: BatchSizes | None = None,
) -> None:
    """Measure pairs of a workload until, at a look, ``is_decided`` or the time is spent.

    Pairs go on once beyond the budget, to the next look, if ``pairs_needed`` (the pairs that are expected to decide, as the
    last look saw it) are there by then and take no longer than the budget again: on a busy machine a pair takes several
    times as long, and a gate that ends undecided is run again from the start.

    Three failures in a row end it too: the workload does not work. That no pair could be measured before the deadline is a
    failure, for a gate without times must not look like one with. ``needs_names`` is asked before the first pair, at every
    look and during a single look; once it is true, some pairs of the first round profile their operators, and leave traces in
    the folder ``traces``, if there is one. ``draw`` is how often layouts were drawn before, ``budget_ends`` when their common
    budget does, and ``first`` the number of pairs of the plan that an earlier call ran. Pairs of base and head also take the
    rounds of ``sizes``.
    """
    bench, measured, round_number, observer = sides.bench, sides.measured, sides.round_number, sides.observer
    gate, seed, name = bench.config.gate, bench.config.measure.seed, sides.reference.name
    budget_ends = observer.monotonic() + gate.budget if budget_ends is None else budget_ends
    budget = _PairBudget(gate.budget, budget_ends, pairs_needed)
    plans = draw_plans(
        seed,
        name,
        pairs=looks[-1],
        aa_pairs=gate.aa_pairs,
        first_look=looks[0],
        round_number=round_number,
        draw=draw,
        resident=bench.is_accelerated,
    )
    look_ends = [look + sum(plan.arm == "aa" for plan in plans) for look in looks]
    served = max(FEWEST_SERVED, look_ends[0] // 2)
    served_later = max(FEWEST_SERVED, look_ends[0] - served)
    runner = _PairRunner(sides, traces, sizes)
    renewals = draw_renewals(
        seed, name, round_number=round_number, draw=draw, before=range(served, len(plans) - 1, served_later)
    )
    name_checks = _name_checks(look_ends)
    # Two looks are worth their time on any machine.
    sure_looks = SURE_LOOKS if round_number == 0 else 1
    pair_count, measured.draw = first, draw
    pair_seconds: list[float] = []
    with closing(runner), _accounted(measured, runner, observer):
        for look, look_end in enumerate(look_ends):
            if look_end <= first:
                continue
            for plan in plans[pair_count:look_end]:
                if round_number == 0 and pair_count in name_checks and not runner.profiles and needs_names():
                    runner.profiles = True
                if observer.monotonic() > sides.deadline:
                    runner.finish()
                    runner.fail_without_pairs(plan)
                    return
                # A later job's additions end at a planned number of pairs.
                may_end = look >= sure_looks and (round_number == 0 or pair_count == look_ends[look - 1])
                foresight = foresee_pairs(pair_seconds, pair_count, next_look=look_end)
                in_pairs = observer.monotonic() - runner.size_seconds
                if may_end and budget.is_spent(in_pairs, pair_count, look_end, foresight.left):
                    runner.finish()
                    return
                if pair_count in renewals:
                    bench.start_beside(renewals[pair_count], parts=runner.parts())
                if not runner.is_within_start:
                    bench.renew(let_go=runner.load_anew)
                sides.before_start()
                began = observer.monotonic()
                bench.foresee(foresight)
                runner.run_pair(plan, sentence("pair {number}, at most {most}", number=pair_count + 1, most=len(plans)))
                pair_seconds.append(observer.monotonic() - began)
                pair_count += 1
                measured.begun = pair_count
                if runner.too_many_failures:
                    break
            if runner.too_many_failures or is_decided():
                break
        runner.finish()


def _name_checks(look_ends: Sequence[int]) -> set[int]:
    """The numbers of pairs after which operators may be needed; a finding of the only look needs them by then."""
    early = {look_ends[0] // 3} if len(look_ends) == 1 else set()
    return {0, *look_ends[:-1]} | early


@contextmanager
def _accounted(measured: PairedMeasurement, runner: _PairRunner, observer: Observer) -> Iterator[None]:
    """Add the seconds of pairs to ``measured``, without those of batch sizes."""
    began = observer.monotonic()
    try:
        yield
    finally:
        measured.seconds += observer.monotonic() - began - runner.size_seconds


@dataclass
class _PairBudget:
    """The seconds of pairs. They are extended once, to the next look."""

    seconds: float
    ends: float
    pairs_needed: Callable[[], int | None]
    extended_to: int = 0

    def is_spent(self, now: float, done: int, next_look: int, left: float | None) -> bool:
        """Whether no further pair begins; ``left`` is the time that the pairs up to the next look are expected to take."""
        if now <= self.ends or done < self.extended_to:
            return False
        needed = None if self.extended_to else self.pairs_needed()
        if needed is None or needed > next_look or left is None or left > self.seconds:
            return True
        self.extended_to = next_look
        return False


@dataclass
class _PairRunner:
    """Runs one pair after another into ``measured``; a pair that fails is recorded with its error."""

    sides: WorkloadSides
    traces: Path | None
    sizes: BatchSizes | None = None
    profiles: bool = False
    failures_in_a_row: int = 0
    profiled_pairs: int = 0
    # Seconds of batch sizes, which are no part of the budget of the pairs.
    size_seconds: float = 0.0
    # The arm of the warm workers, and the pairs that they served.
    arm: Arm | None = None
    served_pairs: int = 0
    known_parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        sides = self.sides
        self.bench, self.reference = sides.bench, sides.reference
        self.base, self.head = sides.base, sides.head
        self.measured, self.observer = sides.measured, sides.observer
        # A comparison of two servers compares base with itself on two servers too, so that permanent differences between
        # servers are part of the noise floor.
        self.base_again = self.base if self.base.python == self.head.python else replace(self.base, second_server=True)
        self.cpus = quietest_cpus(self.bench.config.pair_cpus())
        for checkout in (self.base, self.base_again, self.head):
            self.bench.get_ready(checkout)
        gate = self.bench.config.gate
        self.timeout = self.bench.config.measure.step_timeout
        self.planner = QuadPlanner(gate, resident=self.bench.is_accelerated)
        self.warm = WarmWorkers(
            self.bench, self.reference, observer=self.observer, cpus=self.cpus, resident=self.bench.is_accelerated
        )
        self.late_operators = LateOperators(self.bench)
        self.most_profiled = math.inf if judges_subroutines(gate.tolerance) else PROFILED_PAIRS

    @property
    def is_within_start(self) -> bool:
        """Whether resident sides go on to another pair."""
        return self.warm.resident and bool(self.warm.kept)

    @property
    def too_many_failures(self) -> bool:
        return self.failures_in_a_row >= FAILURES_TO_STOP

    def run_pair(self, plan: PairPlan, position: str) -> None:
        safe_point()
        second_side = "head" if plan.arm == "ab" else sentence("base (noise floor)")
        self.bench.say(
            sentence(
                "{workload}: {position}, base against {side}",
                workload=self.reference.name,
                position=position,
                side=second_side,
            )
        )
        try:
            first, second = self._replicates(plan)
        except WorkerError as error:
            detail = error.detail
            if (self.warm.kept or self.warm.resident) and detail.kind == "memory":
                # The checklist had each of them on the device alone.
                device = self.bench.config.device
                message = Message("worker.both-at-once", {"device": device, "error": detail.message})
                detail = msgspec.structs.replace(detail, message=message)
            self.load_anew()
            self._fail(plan, detail)
            self.failures_in_a_row += 1
            return
        self.failures_in_a_row = 0
        self.measured.base.append(first)
        (self.measured.head if plan.arm == "ab" else self.measured.base).append(second)

    def parts(self) -> list[str]:
        """The modules that further fork servers import, in order: those that both sides imported of packages known to the
        current ones.
        """
        self.known_parts = list(dict.fromkeys([*self.known_parts, *self.warm.common_parts(self.base, self.head)]))
        return self.known_parts

    def load_anew(self) -> None:
        """End the warm workers; the next pair starts others."""
        self.parts()
        self.warm.close()
        self.served_pairs = 0

    def close(self) -> None:
        """Close everything kept from pair to pair."""
        self.warm.close()
        self.bench.forget_parts()

    def fail_without_pairs(self, plan: PairPlan) -> None:
        if not self.measured.head:
            self._fail(plan, ErrorDetail(kind="timeout", message=TIME_SPENT))

    def finish(self) -> None:
        """Run the analyses deferred to the end of the last pair."""
        self.measured.traces += self.late_operators.put_into(self.measured.base, self.measured.head)

    def _fail(self, plan: PairPlan, error: ErrorDetail) -> None:
        failed = FailedPair(pair=plan.pair, arm=plan.arm, workload=self.reference.name, error=error)
        self.measured.failed.append(failed)

    def _replicates(self, plan: PairPlan) -> tuple[Replicate, Replicate]:
        checkouts = self.base, self.head if plan.arm == "ab" else self.base_again
        order = (1, 0) if plan.second_starts else (0, 1)
        if self.warm.resident and plan.arm != self.arm:
            # Three residents may not fit on the device.
            self.load_anew()
        self.arm = plan.arm
        places = [WarmPlace(checkouts[index], is_twin=plan.arm == "aa" and index == 1) for index in order]
        starts = dict(zip(order, self.warm.get(places, plan, block_seconds=self.planner.block_seconds)))
        # Both or none: a process that has just been forked meets other page faults than one that warmed up.
        forks = all(start.warm.forkable for start in starts.values())
        clock = self.observer.monotonic
        began, profiling = clock(), 0.0
        with ExitStack() as stack:
            members: dict[int, Member] = {}
            for index in order:
                worker, name = starts[index].worker, self.reference.name
                if forks:
                    spawned = self.bench.spawned(checkouts[index], worker, layout_seed=plan.layout_seed)
                    worker = stack.enter_context(spawned)
                members[index] = Member(
                    worker, starts[index], workload=name, observer=self.observer, timeout=self.timeout
                )
            ready = clock()
            quads = self.planner.quads_of(min(members[0].call_seconds, members[1].call_seconds))
            self._run_quads(plan, (members[0], members[1]), quads)
            in_quads = clock() - ready
            replicates = members[0].replicate(plan, 0, self.cpus), members[1].replicate(plan, 1, self.cpus)
            self.measured.uncounted = self.measured.uncounted or members[0].uncounted or members[1].uncounted
            if plan.arm == "ab" and self.profiles and self.profiled_pairs < self.most_profiled:
                collected = clock()
                replicates = self._profile((members[0], members[1]), replicates, checkouts)
                profiling = clock() - collected
            if plan.arm == "ab" and self.sizes is not None:
                collected = clock()
                call_seconds = max(member.call_seconds for member in members.values())
                self.sizes.run_round(members[0].worker, members[1].worker, call_seconds=call_seconds)
                self.size_seconds += clock() - collected
                profiling += clock() - collected
        self.served_pairs += 1
        loading = sum(start.seconds for start in starts.values())
        pair_seconds = clock() - began - profiling
        served = self._pairs_of_start(forks=forks, start_seconds=loading, pair_seconds=pair_seconds)
        if self.served_pairs >= served:
            self.load_anew()
        beside_quads = loading / served + pair_seconds - in_quads
        self.planner.add_pair(*replicates, fixed_seconds=beside_quads, quad_seconds=in_quads / quads)
        return replicates

    def _pairs_of_start(self, *, forks: bool, start_seconds: float, pair_seconds: float) -> int:
        """For how many pairs the warm workers serve."""
        if forks:
            return FORKED_PAIRS
        if not self.warm.resident:
            return 1
        if self.arm == "aa":
            # Without heads of other code they show the noise, and no start luck that a verdict rests on.
            return self.bench.config.gate.aa_pairs
        return pairs_of_start(start_seconds=start_seconds, pair_seconds=pair_seconds)

    def _run_quads(self, plan: PairPlan, members: tuple[Member, Member], quads: int) -> None:
        """Run the quads of every lane of every shape: A B B A or B A A B. Both sides run blocks of equally many calls."""
        first_calls, second_calls = members[0].block_calls, members[1].block_calls
        sequence = 0
        for quad, second_leads in enumerate(plan.second_leads_quad[:quads]):
            order = (1, 0, 0, 1) if second_leads else (0, 1, 1, 0)
            for index in order[:2]:
                members[index].move(plan.layout_seed * MOST_QUADS + quad)
            for (lane, shape), first in first_calls.items():
                second = second_calls.get((lane, shape), first)
                # Those that fill a block on the faster side, within reason.
                calls = min(max(first, second), MOST_LONGER * min(first, second))
                for index in order:
                    members[index].run_block(
                        BlockRequest(shape=shape, calls=calls, quad=quad, sequence=sequence, lane=lane)
                    )
                    sequence += 1

    def _profile(
        self,
        members: tuple[Member, Member],
        replicates: tuple[Replicate, Replicate],
        checkouts: tuple[Checkout, Checkout],
    ) -> tuple[Replicate, Replicate]:
        workers = members[0].worker, members[1].worker
        say, timeout, clock = self.bench.say, self.timeout, self.observer.monotonic
        if judges_subroutines(self.bench.config.gate.tolerance, PYTHON_TIMES):
            replicates = with_profile("subroutines", workers, replicates, timeout=timeout, say=say, clock=clock)
        traces = self.traces if self.profiled_pairs < TRACED_PAIRS else None
        self.profiled_pairs += 1
        if members[0].analysed_late:
            self.late_operators.record(workers, replicates, checkouts, timeout=timeout, traces=traces)
            return replicates
        replicates = with_profile("operators", workers, replicates, timeout=timeout, say=say, clock=clock)
        if traces is not None:
            head_first = len(self.measured.traces) // len(replicates[0].shapes) % 2 == 1
            self.measured.traces += record_traces(
                workers, replicates, folder=traces, head_first=head_first, timeout=timeout, say=say
            )
        return replicates

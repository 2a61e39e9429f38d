"""Interleaved pairs: two processes take turns on the same CPUs and the same device, a few milliseconds each.

A pair is a start of the engine. Before each of its quads both sides move to another memory layout, the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfgate.catalogue.names import PYTHON_TIMES
from perfgate.conductor.engine.budget import TimeBudget
from perfgate.conductor.engine.client import Quads, Standing
from perfgate.conductor.engine.engine import Engine
from perfgate.conductor.engine.order import QuadTurns, Start
from perfgate.conductor.failure import TurnError
from perfgate.conductor.machine.cpus import quietest_cpus
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.card_turns import CardTurns
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.plan import (
    FORKED_PAIRS,
    MOST_QUADS,
    SURE_LOOKS,
    SURE_SECONDS,
    QuadPlanner,
    draw_plans,
    draw_renewals,
    of_the_slower,
    pairs_of_first_starts,
    pairs_of_start,
)
from perfgate.conductor.sides.function.profiles import TRACED_PAIRS, LateOperators, record_traces, with_profile
from perfgate.conductor.sides.function.warm import WarmPlace, WarmWorker
from perfgate.conductor.sides.function.workload import WorkloadSides
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.foresight import foresee_pairs
from perfgate.document.budget import judges_subroutines
from perfgate.document.message import Message
from perfgate.document.run import TIME_SPENT, ErrorDetail, FailedPair
from perfgate.document.samples import Arm, Replicate
from perfgate.locale import sentence
from perfgate.protocol import BlockRequest

# Servers are renewed after half a first look, after it, and then after as many pairs again, so that none starts just before a
# look that may end the pairs. They serve at least so many pairs: starting one takes as long as a pair. None is started for the
# last pair alone.
FEWEST_SERVED = 2
FAILURES_TO_STOP = 3
# Profiling costs half as much time again as a short pair; this many pairs name an operator that lost 10 %.
PROFILED_PAIRS = 12


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
    gate, measured, clock = sides.bench.config.gate, sides.measured, sides.observer.monotonic

    def deciding_look() -> int | None:
        needed = pairs_needed()
        return engine.next_look if needed is not None and needed <= engine.next_look else None

    budget = TimeBudget(
        clock() + gate.budget if budget_ends is None else budget_ends, gate.budget, needed=deciding_look
    )
    pairs = PairTurns(sides, looks, draw, first, budget, needs_names, traces, sizes)
    is_first_round = sides.round_number == 0
    engine = Engine(
        pairs,
        iter(pairs.plans[first:]),
        pairs.look_ends,
        is_decided,
        budget,
        deadline=sides.deadline,
        # Two looks are worth their time on any machine.
        sure_looks=SURE_LOOKS if is_first_round else 1,
        # Loading again and again may take longer than was foreseen.
        sure_until=clock() + max(gate.budget, SURE_SECONDS) if pairs.is_resident else math.inf,
        # A later job's additions end at a planned number of pairs.
        whole_looks=not is_first_round,
        clock=clock,
    )
    with closing(pairs):
        is_in_time = engine.run()
        measured.seconds += engine.seconds
        pairs.analyse_late()
    if not is_in_time and not measured.head:
        pairs.fail_at(pairs.plans[pairs.done], ErrorDetail(kind="timeout", message=TIME_SPENT))


@dataclass
class PairTurns:
    """Runs one pair after another; a pair that fails is recorded with its error. ``done`` pairs of the plan were run."""

    sides: WorkloadSides
    looks: Sequence[int]
    draw: int
    done: int
    budget: TimeBudget
    needs_names: Callable[[], bool]
    traces: Path | None = None
    sizes: BatchSizes | None = None
    _profiles: bool = False
    _profiled_pairs: int = 0
    _failures_in_a_row: int = 0
    # The arm of the warm workers, and the pairs that they served.
    _arm: Arm | None = None
    _served_pairs: int = 0
    _known_parts: list[str] = field(default_factory=list)
    _forks: ExitStack = field(default_factory=ExitStack)

    def __post_init__(self) -> None:
        sides = self.sides
        self.bench, self.reference = sides.bench, sides.reference
        self.base, self.head = sides.base, sides.head
        self.measured, self.observer = sides.measured, sides.observer
        self.measured.draw = self.draw
        # A comparison of two servers compares base with itself on two servers too, so that permanent differences between
        # servers are part of the noise floor.
        self.base_again = self.base if self.base.python == self.head.python else replace(self.base, second_server=True)
        self.cpus = quietest_cpus(self.bench.config.pair_cpus())
        for checkout in (self.base, self.base_again, self.head):
            self.bench.servers.get(checkout.server)
        gate = self.bench.config.gate
        self.timeout = self.bench.config.measure.step_timeout
        self.is_resident = sides.residents is not None
        self.is_parked = self.is_resident and self.bench.parking is not None
        self.planner = QuadPlanner(gate, resident=self.is_resident, parked=self.is_parked)
        self.warm = sides.warm_workers(self.cpus)
        self.card = CardTurns(self.observer, self.reference.name, self.bench.say)
        self.late_operators = LateOperators(self.bench)
        self.most_profiled = math.inf if judges_subroutines(gate.tolerance) else PROFILED_PAIRS
        self._blocks = self._quads = 0
        self._draw_plans()

    def _draw_plans(self) -> None:
        config, looks, round_number = self.bench.config, self.looks, self.sides.round_number
        seed, name = config.measure.seed, self.reference.name
        self.plans = draw_plans(
            seed,
            name,
            pairs=looks[-1],
            aa_pairs=config.gate.aa_pairs,
            first_look=looks[0],
            round_number=round_number,
            draw=self.draw,
            resident=self.is_resident,
        )
        aa_pairs = sum(plan.arm == "aa" for plan in self.plans)
        self.look_ends = [look + aa_pairs for look in looks]
        first_end = self.look_ends[0]
        served = max(FEWEST_SERVED, first_end // 2)
        served_later = max(FEWEST_SERVED, first_end - served)
        renewed_before = range(served, len(self.plans) - 1, served_later)
        self.renewals = draw_renewals(seed, name, round_number=round_number, draw=self.draw, before=renewed_before)
        # The numbers of pairs after which operators may be needed; a finding of the only look needs them by then.
        self.name_checks = {0, *self.look_ends[:-1]}
        if len(looks) == 1:
            self.name_checks.add(first_end // 3)

    # --- what the engine asks

    def start(self, start: Start, standing: Standing, /) -> Quads:
        self._start = start
        if self.sides.round_number == 0 and self.done in self.name_checks:
            self._profiles = self._profiles or self.needs_names()
        if self.done in self.renewals:
            self.bench.servers.start_next(self.renewals[self.done], parts=self._parts())
        # Resident sides go on to another pair on the servers that they have.
        if not self.is_resident or self.warm.allows_renewal:
            self.bench.servers.renew(let_go=self._load_anew)
        self.sides.before_start()
        self.bench.foresee(foresee_pairs(standing.seconds_each, self.done, next_look=standing.next_look))
        self._say_which_pair()
        self._start_members()
        if not self._served_pairs:
            self._prepare_next_start()
        call_seconds = min(member.call_seconds for member in self._members)
        return Quads.exactly(self.planner.quads_of(call_seconds))

    def quad(self, quad: QuadTurns) -> bool:
        """Run the blocks of every lane of every shape, and profile kernels. Both sides run blocks of equally many calls."""
        members = self._members
        for side in quad.order[:2]:
            members[side].move(self._start.layout_seed * MOST_QUADS + quad.index)
        other_calls = members[1].block_calls
        lanes = [
            (lane, shape, int(of_the_slower(calls, other_calls.get((lane, shape), calls))))
            for (lane, shape), calls in members[0].block_calls.items()
        ]
        # Blocks of all lanes in one visit, where the sides cannot both be on the device.
        for together in [lanes] if self.is_parked else [[lane] for lane in lanes]:
            for side in quad.turns():
                for lane, shape, calls in together:
                    self._run_block(side, BlockRequest(shape, calls, quad.index, self._blocks, lane))
        if self.is_resident:
            kernel_calls = {shape: calls for lane, shape, calls in lanes if lane == "call"}
            self.card.profile(members, quad.order[:2], kernel_calls, quad=quad.index)
        self._quads = quad.index + 1
        return True

    def _run_block(self, side: int, request: BlockRequest) -> None:
        member = self._members[side]
        if self.is_resident:
            self.card.wake(member, request.shape)
        member.run_block(request)
        self.card.note_work()
        self._blocks += 1

    def finish(self) -> None:
        clock, start, (first, second) = self.observer.monotonic, self._start, self._members
        in_quads = clock() - self._ready
        replicates = first.replicate(start, 0, self.cpus), second.replicate(start, 1, self.cpus)
        self.measured.uncounted = self.measured.uncounted or first.uncounted or second.uncounted
        collected = clock()
        # A trace that is analysed later is the only source of the time of kernels.
        profiles = self._profiles or first.analysed_late
        if start.arm == "ab" and profiles and self._profiled_pairs < self.most_profiled:
            replicates = self._profile(replicates)
        if start.arm == "ab" and self.sizes is not None:
            self._run_sizes(self.sizes)
        profiling = clock() - collected
        self._forks.close()
        self._served_pairs += 1
        pair_seconds = clock() - self._began - profiling
        served = self._pairs_of_start(pair_seconds)
        if self._served_pairs >= served:
            self._load_anew()
        beside_quads = self._loading_seconds / served + pair_seconds - in_quads
        self.planner.add_pair(*replicates, fixed_seconds=beside_quads, quad_seconds=in_quads / self._quads)
        self._keep(replicates)

    def fail(self, error: TurnError) -> bool:
        self._forks.close()
        detail = error.detail
        if (self.warm.kept or self.is_resident) and detail.kind == "memory":
            # The checklist had each of them on the device alone.
            device = self.bench.config.device
            message = Message("worker.both-at-once", {"device": device, "error": detail.message})
            detail = msgspec.structs.replace(detail, message=message)
        self._load_anew()
        self.fail_at(self._start, detail)
        self._failures_in_a_row += 1
        self._count()
        return self._failures_in_a_row < FAILURES_TO_STOP

    # --- after the last pair

    def analyse_late(self) -> None:
        """Run the analyses deferred to the end of the last pair."""
        self.measured.traces += self.late_operators.put_into(self.measured.base, self.measured.head)

    def fail_at(self, start: Start, error: ErrorDetail) -> None:
        failed = FailedPair(pair=start.number, arm=start.arm, workload=self.reference.name, error=error)
        self.measured.failed.append(failed)

    def close(self) -> None:
        """Close everything kept from pair to pair."""
        self._forks.close()
        self.sides.release(self.warm)
        self.bench.servers.forget_parts()

    # --- a pair

    @property
    def _checkouts(self) -> tuple[Checkout, Checkout]:
        return self.base, self.head if self._start.arm == "ab" else self.base_again

    def _say_which_pair(self) -> None:
        position = sentence("pair {number}, at most {most}", number=self.done + 1, most=len(self.plans))
        other = "head" if self._start.arm == "ab" else sentence("base (noise floor)")
        text = sentence(
            "{workload}: {position}, base against {side}", workload=self.reference.name, position=position, side=other
        )
        self.bench.say(text)

    def _start_members(self) -> None:
        """Fork both members from warm workers, or take those themselves where a process cannot be forked."""
        start, clock = self._start, self.observer.monotonic
        if self.is_resident and start.arm != self._arm:
            # Three residents may not fit on the device.
            self._load_anew()
        self._arm = start.arm
        places: list[WarmPlace] = []
        for side in start.order:
            is_twin = start.arm == "aa" and side == 1
            places.append(WarmPlace(self._checkouts[side], is_twin=is_twin))
        warm = self.warm.get(places, start, block_seconds=self.planner.block_seconds)
        origins = dict(zip(start.order, warm))
        # Both or none: a process that has just been forked meets other page faults than one that warmed up.
        self._has_forks = all(origin.warm.forkable for origin in origins.values())
        self._loading_seconds = sum(origin.seconds for origin in origins.values())
        self._longest_load = max(origin.loaded.seconds for origin in origins.values())
        self._began = clock()
        members = {side: self._member(side, origins[side]) for side in start.order}
        self._members = members[0], members[1]
        if any(origin.start == start.number for origin in warm):
            # The card has just warmed up.
            self.card.note_work()
        self._blocks = self._quads = 0
        self._ready = clock()

    def _prepare_next_start(self) -> None:
        """Let the residents of the next start load while this one measures."""
        later = [plan for plan in self.plans[self.done + 1 :] if plan.arm == "ab"]
        if self.is_resident and later:
            self.warm.prepare([WarmPlace(self.base), WarmPlace(self.head)], later[0])

    def _pairs_of_start(self, pair_seconds: float) -> int:
        """For how many pairs the warm workers serve."""
        if self._has_forks:
            return FORKED_PAIRS
        if not self.is_resident:
            return 1
        if self._arm == "aa":
            # Without heads of other code they show the noise, and no start luck that a verdict rests on.
            return self.bench.config.gate.aa_pairs
        # Residents that loaded while others measured were hardly waited for; the next ones take as long all the same.
        start_seconds = max(self._loading_seconds, self._longest_load)
        served = pairs_of_start(start_seconds=start_seconds, pair_seconds=pair_seconds)
        is_first_look = self.done < self.look_ends[0]
        return min(served, pairs_of_first_starts(self.looks[0])) if is_first_look else served

    def _member(self, side: int, origin: WarmWorker) -> Member:
        worker = origin.worker
        if self._has_forks:
            fork = self.bench.spawned(self._checkouts[side], worker, layout_seed=self._start.layout_seed)
            worker = self._forks.enter_context(fork)
        return self.sides.member(origin, worker)

    def _profile(self, replicates: tuple[Replicate, Replicate]) -> tuple[Replicate, Replicate]:
        workers = self._members[0].worker, self._members[1].worker
        say, timeout, clock = self.bench.say, self.timeout, self.observer.monotonic
        if judges_subroutines(self.bench.config.gate.tolerance, PYTHON_TIMES):
            replicates = with_profile("subroutines", workers, replicates, timeout=timeout, say=say, clock=clock)
        traces = self.traces if self._profiled_pairs < TRACED_PAIRS else None
        self._profiled_pairs += 1
        if self._members[0].analysed_late:
            self.late_operators.record(workers, replicates, self._checkouts, timeout=timeout, traces=traces)
            return replicates
        replicates = with_profile("operators", workers, replicates, timeout=timeout, say=say, clock=clock)
        if traces is not None:
            head_first = len(self.measured.traces) // len(replicates[0].shapes) % 2 == 1
            self.measured.traces += record_traces(
                workers, replicates, folder=traces, head_first=head_first, timeout=timeout, say=say
            )
        return replicates

    def _run_sizes(self, sizes: BatchSizes) -> None:
        """Run a round of batch sizes, outside the budget of the pairs."""
        began = self.observer.monotonic()
        first, second = self._members
        if self.is_parked:
            sizes.reason = Message("times.sizes-on-one-side")
        sizes.run_round(first.worker, second.worker, call_seconds=max(first.call_seconds, second.call_seconds))
        self.budget.leave_out(self.observer.monotonic() - began)

    def _keep(self, replicates: tuple[Replicate, Replicate]) -> None:
        first, second = replicates
        of_second = self.measured.head if self._start.arm == "ab" else self.measured.base
        self.measured.base.append(first)
        of_second.append(second)
        self._failures_in_a_row = 0
        self._count()

    def _count(self) -> None:
        self.done += 1
        self.measured.begun = self.done

    def _parts(self) -> list[str]:
        """The modules that further fork servers import, in order: those that both sides imported of packages known to the
        current ones.
        """
        self._known_parts = list(dict.fromkeys([*self._known_parts, *self.warm.common_parts(self.base, self.head)]))
        return self._known_parts

    def _load_anew(self) -> None:
        """End the warm workers; the next pair starts others, or takes those that load meanwhile."""
        self._parts()
        self.warm.close_kept()
        self._served_pairs = 0

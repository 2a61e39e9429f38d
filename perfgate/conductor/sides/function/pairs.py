"""Interleaved pairs: two processes take turns on the same CPUs and the same device, a
few milliseconds each.

A pair is a start of the engine. Before each of its quads both sides move to another
memory layout, the same one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import msgspec

from perfgate.conductor.engine import Engine, Quads, QuadTurns, Start, TimeBudget
from perfgate.conductor.failure import TurnError
from perfgate.conductor.sides.function.batch_sizes import BatchSizes
from perfgate.conductor.sides.function.member import Member
from perfgate.conductor.sides.function.plan import (
    FORKED_PAIRS,
    MOST_QUADS,
    SURE_LOOKS,
    SURE_SECONDS,
    PairsPlan,
    QuadPlanner,
    aa_pairs_of,
    of_the_slower,
    pairs_of_start,
)
from perfgate.conductor.sides.function.profiles import PairProfiles
from perfgate.conductor.sides.function.warm import WarmPlace, WarmWorker
from perfgate.conductor.sides.function.workload import FunctionTurns, WorkloadSides
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.foresight import foresee_pairs
from perfgate.document.message import Message
from perfgate.document.run import TIME_SPENT, ErrorDetail
from perfgate.document.samples import Arm, Replicate
from perfgate.locale import sentence
from perfgate.protocol import BlockRequest, Lane

FAILURES_TO_STOP = 3
# In a quad, of a lane and shape.
BLOCKS_OF_A_SIDE = 2


def measure_pairs(
    sides: WorkloadSides,
    *,
    looks: Sequence[int],
    is_decided: Callable[[], bool],
    pairs_needed: Callable[[], int | None] = lambda: None,
    needs_names: Callable[[], bool] = lambda: True,
    budget_ends: float | None,
    draw: int,
    first: int,
    traces: Path | None,
    sizes: BatchSizes | None,
) -> None:
    """Measure pairs of a workload until, at a look, ``is_decided`` or the time is
    spent.

    Pairs go on once beyond the budget, to the next look, if ``pairs_needed`` (the pairs
    that are expected to decide, as of the last look) are there by then and take no
    longer than the budget again: on a busy machine a pair takes several times as long,
    and a gate that ends undecided is run again from the start.

    Three failures in a row end it too: the workload does not work. If no pair could be
    measured before the deadline, that is a failure, because a gate without times must
    not look like a gate with times. ``needs_names`` is asked before the first pair, at
    every look and during a single look; once it is true, some pairs of the first round
    profile their operators, and leave traces in the folder ``traces``, if there is one.
    ``draw`` is how often layouts were drawn before, ``budget_ends`` the end of their
    common budget, and ``first`` the number of pairs of the plan that an earlier call
    ran. Pairs of base and head also take the rounds of ``sizes``.
    """
    config, measured = sides.bench.config, sides.measured
    clock = sides.observer.monotonic
    budget_seconds = config.gate.budget
    is_first_round = sides.round_number == 0
    is_resident = sides.residents is not None

    def deciding_look() -> int | None:
        needed = pairs_needed()
        if needed is None or needed > engine.next_look:
            return None
        return engine.next_look

    if budget_ends is None:
        budget_ends = clock() + budget_seconds
    budget = TimeBudget(budget_ends, budget_seconds, needed=deciding_look)
    measured.draw = draw
    plan = PairsPlan.draw(
        config,
        sides.reference.name,
        looks,
        round_number=sides.round_number,
        redraws=draw,
        resident=is_resident,
    )
    profiles = PairProfiles(sides, needs_names, traces)

    def decides() -> bool:
        began = clock()
        profiles.analyse_late()
        budget.leave_out(clock() - began)
        return is_decided()

    turns = LonePairTurns if is_resident and sides.bench.holds_one else PairTurns
    pairs = turns(sides, plan, first, budget, profiles, sizes)
    engine = Engine(
        pairs,
        iter(plan.starts[first:]),
        plan.look_ends,
        decides,
        budget,
        deadline=sides.deadline,
        # Two looks are worth their time on any machine.
        sure_looks=SURE_LOOKS if is_first_round else 1,
        # Loading again and again may take longer than was foreseen.
        sure_until=clock() + max(budget_seconds, SURE_SECONDS)
        if is_resident
        else math.inf,
        # A later job's additions end at a planned number of pairs.
        whole_looks=not is_first_round,
        clock=clock,
    )
    pairs.engine = engine
    with closing(pairs):
        is_in_time = engine.run()
        measured.seconds += engine.seconds
        profiles.analyse_late()
        # Long stretches of calls may follow.
        sides.bench.servers.finish_starting()
    if not is_in_time and not measured.head:
        pairs.fail_at(
            plan.starts[pairs.done], ErrorDetail(kind="timeout", message=TIME_SPENT)
        )


class PairTurns(FunctionTurns):
    """Runs one pair after another; a pair that fails is recorded with its error.

    ``done`` pairs of the plan were run.
    """

    # Whether both sides have a process at the same time.
    holds_both = True
    engine: Engine

    def __init__(
        self,
        sides: WorkloadSides,
        plan: PairsPlan,
        done: int,
        budget: TimeBudget,
        profiles: PairProfiles,
        sizes: BatchSizes | None = None,
    ) -> None:
        super().__init__(sides)
        self.plan = plan
        self.done = done
        self.budget = budget
        self.profiles = profiles
        self.sizes = sizes
        self.base = sides.base
        self.head = sides.head
        self.clock = sides.observer.monotonic
        self._failures_in_a_row = 0
        # The arm of the warm workers, and the pairs that they served.
        self._arm: Arm | None = None
        self._served_pairs = 0
        self._parts: list[str] = []
        self._forks = ExitStack()
        # A comparison of two servers compares base with itself on two servers too, so
        # that permanent differences between servers are part of the noise floor.
        self.base_again = self.base
        if self.base.python != self.head.python:
            self.base_again = replace(self.base, second_server=True)
        for checkout in (self.base, self.base_again, self.head):
            self.bench.servers.get(checkout.server)
        self.is_parked = self.is_resident and self.bench.parking is not None
        self.planner = QuadPlanner(
            self.bench.config.gate, resident=self.is_resident, parked=self.is_parked
        )

    # --- what the engine asks

    def start(self, start: Start, /) -> Quads:
        self._begin(start)
        self.blocks = 0
        self._start_members()
        if not self._served_pairs:
            self._prepare_next_start()
        call_seconds = min(member.call_seconds for member in self._members)
        return Quads.exactly(self.planner.quads_of(call_seconds))

    def _begin(self, start: Start) -> None:
        """Do what comes before a pair, and renew the servers if that is due."""
        self._start = start
        servers, renewals = self.bench.servers, self.plan.renewals
        if self.sides.round_number == 0 and self.done in self.plan.name_checks:
            self.profiles.check()
        if self.done in renewals:
            self._note_parts()
            servers.start_next(renewals[self.done], parts=self._parts)
        # Resident sides go on to another pair on the servers that they have.
        if not self.is_resident or self.warm.allows_renewal:
            servers.renew(let_go=self._load_anew)
        self.sides.before_start()
        self.bench.foresee(
            foresee_pairs(
                self.engine.seconds_each, self.done, next_look=self.engine.next_look
            )
        )
        self._say_which_pair()

    def quad(self, quad: QuadTurns) -> bool:
        """Run the blocks of every lane of every shape, and profile kernels.

        Both sides run blocks of equally many calls.
        """
        members = first, second = self._members
        leader_and_other = quad.order[:2]
        for side in leader_and_other:
            members[side].move(self._start.layout_seed * MOST_QUADS + quad.index)
        lanes = []
        kernel_calls = {}
        for (lane, shape), calls in first.block_calls.items():
            both = int(
                of_the_slower(calls, second.block_calls.get((lane, shape), calls))
            )
            lanes.append((lane, shape, both))
            if lane == "call":
                kernel_calls[shape] = both
        # Blocks of all lanes in one visit, where the sides cannot both be on the
        # device.
        visits = [lanes] if self.is_parked else [[lane] for lane in lanes]
        for visit in visits:
            for side in quad.turns():
                for lane, shape, calls in visit:
                    self.run_block(
                        members[side],
                        BlockRequest(shape, calls, quad.index, self.blocks, lane),
                    )
        if self.is_resident:
            self.card.profile(members, leader_and_other, kernel_calls, quad=quad.index)
        self._quads += 1
        return True

    def finish(self) -> None:
        start, clock = self._start, self.clock
        first, second = self._members
        in_quads = clock() - self._ready
        replicates = self.collect(first, start, 0), self.collect(second, start, 1)
        collected = clock()
        if start.arm == "ab":
            replicates = self.profiles.profile(
                self._members, replicates, self._checkouts
            )
            if self.sizes is not None:
                self._run_sizes(self.sizes)
        profiling = clock() - collected
        self._forks.close()
        self._served_pairs += 1
        pair_seconds = clock() - self._began - profiling
        pairs = self._pairs_of_start(pair_seconds)
        if self._served_pairs >= pairs or self._are_spoiled():
            self._load_anew()
        overhead = self._loading_seconds / pairs + pair_seconds - in_quads
        self.planner.add_pair(
            *replicates, fixed_seconds=overhead, quad_seconds=in_quads / self._quads
        )
        self._keep(replicates)

    def fail(self, error: TurnError) -> bool:
        self._forks.close()
        detail = error.detail
        if (
            detail.is_out_of_memory
            and self.holds_both
            and (self.warm.kept or self.is_resident)
        ):
            # The checklist had each of them on the device alone.
            device = self.bench.config.device
            message = Message(
                "worker.both-at-once", {"device": device, "error": detail.message}
            )
            detail = msgspec.structs.replace(detail, message=message)
        self._load_anew()
        self.fail_at(self._start, detail)
        self._failures_in_a_row += 1
        self._count()
        return self._failures_in_a_row < FAILURES_TO_STOP

    def close(self) -> None:
        """End everything that runs from pair to pair."""
        self._forks.close()
        super().close()
        self.bench.servers.forget_parts()

    # --- a pair

    @property
    def _checkouts(self) -> tuple[Checkout, Checkout]:
        return self.base, self.head if self._start.arm == "ab" else self.base_again

    def _say_which_pair(self) -> None:
        position = sentence(
            "pair {number}, at most {most}",
            number=self.done + 1,
            most=len(self.plan.starts),
        )
        side = "head" if self._start.arm == "ab" else sentence("base (noise floor)")
        text = sentence(
            "{workload}: {position}, base against {side}",
            workload=self.name,
            position=position,
            side=side,
        )
        self.bench.say(text)

    def _start_members(self) -> None:
        """Fork both members from warm workers, or take those themselves where a process
        cannot be forked.

        Loading seconds are the sum of both members, and the longest of one.
        """
        start = self._start
        if self.is_resident and start.arm != self._arm:
            # Three residents may not fit on the device.
            self._load_anew()
        self._arm = start.arm
        places = [self._place(side) for side in start.order]
        origins = self.warm.get(places, start, block_seconds=self.planner.block_seconds)
        # Both or none: a process that has just been forked meets other page faults than
        # one that warmed up.
        self._has_forks = all(origin.warm.forkable for origin in origins)
        self._loading_seconds = sum(origin.seconds for origin in origins)
        self._longest_load = max(origin.loaded.seconds for origin in origins)
        self._began = self.clock()
        members = {
            side: self._member(side, origin)
            for side, origin in zip(start.order, origins)
        }
        if any(origin.start == start.number for origin in origins):
            # The card has just warmed up.
            self.card.note_work()
        self._members = members[0], members[1]
        self._ready = self.clock()
        self._quads = 0

    def _place(self, side: int) -> WarmPlace:
        return WarmPlace(
            self._checkouts[side], is_twin=self._start.arm == "aa" and side == 1
        )

    def _prepare_next_start(self) -> None:
        """Let the residents of the next start load while this one measures."""
        if not self.is_resident:
            return
        for start in self.plan.starts[self.done + 1 :]:
            if start.arm == "ab":
                self.warm.prepare([WarmPlace(self.base), WarmPlace(self.head)], start)
                return

    def _pairs_of_start(self, pair_seconds: float) -> int:
        """For how many pairs the warm workers serve."""
        if self._has_forks:
            return FORKED_PAIRS
        if not self.is_resident:
            return 1
        if self._arm == "aa":
            # Without heads of other code they show the noise, and no start luck that a
            # verdict rests on.
            return aa_pairs_of(self.bench.config.gate, resident=True)
        # Residents that loaded while others measured were hardly waited for; the next
        # residents take as long all the same.
        start_seconds = max(self._loading_seconds, self._longest_load)
        first_look = None
        if self.done < self.plan.look_ends[0]:
            first_look = self.plan.first_look
        return pairs_of_start(
            start_seconds=start_seconds,
            pair_seconds=pair_seconds,
            first_look=first_look,
        )

    def _member(self, side: int, origin: WarmWorker) -> Member:
        worker = origin.worker
        if self._has_forks:
            fork = self.bench.spawned(
                self._checkouts[side], worker, layout_seed=self._start.layout_seed
            )
            worker = self._forks.enter_context(fork)
        return self.member(origin, worker)

    def _run_sizes(self, sizes: BatchSizes) -> None:
        """Run a round of batch sizes, outside the budget of the pairs."""
        began = self.clock()
        first, second = self._members
        if self.is_parked:
            sizes.reason = Message("times.sizes-on-one-side")
        sizes.run_round(
            first.worker,
            second.worker,
            call_seconds=max(first.call_seconds, second.call_seconds),
        )
        self.budget.leave_out(self.clock() - began)

    def _are_spoiled(self) -> bool:
        """Whether residents cannot be measured again, because one ended while it was
        profiled, or a batch size failed on its device.
        """
        if not self.is_resident:
            return False
        if self.sizes is not None and self.sizes.has_failed:
            return True
        return not all(member.worker.is_running for member in self._members)

    def _keep(self, replicates: tuple[Replicate, Replicate]) -> None:
        first, second = replicates
        self.measured.base.append(first)
        if self._start.arm == "ab":
            self.measured.head.append(second)
        else:
            self.measured.base.append(second)
        self._failures_in_a_row = 0
        self._count()

    def _count(self) -> None:
        self.done += 1
        self.measured.begun = self.done

    def _note_parts(self) -> None:
        """Note the modules for further fork servers to import, in order: those that
        both sides imported of known packages.
        """
        self._parts = list(
            dict.fromkeys([*self._parts, *self.warm.common_parts(self.base, self.head)])
        )

    def _load_anew(self) -> None:
        """End the warm workers; the next pair starts others, or takes those that load
        meanwhile.
        """
        self._note_parts()
        self.warm.close_kept()
        self._served_pairs = 0


class LonePairTurns(PairTurns):
    """Pairs of whole processes, where the device holds only one and its weights cannot
    be moved away.

    Each side has the device once in a pair: it loads, warms up, runs the blocks of all
    quads, and ends. Which side comes first is drawn by lot. Profiles and batch sizes,
    for which the sides take turns, are not measured.
    """

    holds_both = False
    # The first visit decides for all: how many quads a pair has, and how many calls a
    # block.
    _quads_of_visit = 0
    _calls: Mapping[tuple[Lane, str], int] = MappingProxyType({})

    def start(self, start: Start, /) -> Quads:
        self._begin(start)
        if self.sizes is not None:
            self.sizes.reason = Message("times.sizes-on-one-side")
        return Quads.exactly(1)

    def quad(self, quad: QuadTurns) -> bool:  # noqa: ARG002 - a visit has all quads
        self.blocks = 0
        self._replicates = {side: self._visit(side) for side in self._start.order}
        return True

    def _visit(self, side: int) -> Replicate:
        """Let a side load, run the blocks of all quads, and end."""
        start = self._start
        (origin,) = self.warm.get(
            [self._place(side)], start, block_seconds=self.planner.block_seconds
        )
        self.card.note_work()
        member = self.member(origin, origin.worker)
        self._quads_of_visit = self._quads_of_visit or self.planner.quads_of(
            member.call_seconds
        )
        self._calls = self._calls or member.block_calls
        kernel_calls = {
            shape: calls
            for (lane, shape), calls in self._calls.items()
            if lane == "call"
        }
        for index in range(self._quads_of_visit):
            member.move(start.layout_seed * MOST_QUADS + index)
            for (lane, shape), calls in self._calls.items():
                for _ in range(BLOCKS_OF_A_SIDE):
                    self.run_block(
                        member, BlockRequest(shape, calls, index, self.blocks, lane)
                    )
            self.card.profile([member], [0], kernel_calls, quad=index)
        replicate = self.collect(member, start, side)
        self._load_anew()
        return replicate

    def finish(self) -> None:
        self._keep((self._replicates[0], self._replicates[1]))

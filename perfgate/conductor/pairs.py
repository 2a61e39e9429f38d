"""Interleaved pairs: two processes take turns on the same CPUs and the same device, a few milliseconds each.

The order of everything that could favour a side is drawn from a recorded seed: which side starts first, whether a quad runs
first-second-second-first or the other way round, when a base-against-base pair comes.
"""

from __future__ import annotations

import random
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Callable, NamedTuple

from perfgate.conductor.bench import Bench, Checkout
from perfgate.conductor.granted import quietest_cpus
from perfgate.conductor.interrupts import safe_point
from perfgate.conductor.workers import Worker, WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import Arm, FailedPair, Replicate
from perfgate.protocol import BlockDone, BlockRequest, Collected, CollectRequest, WarmedUp, WarmUpRequest

WARM_UP_CAP_SECONDS = 8.0
FAILURES_TO_STOP = 3
PAIRS_PER_LOOK = 100_000  # so that the numbers of pairs of two looks never meet


@dataclass
class PairedMeasurement:
    """The replicates of both run documents, and the pairs that failed."""

    base: list[Replicate] = field(default_factory=list)
    head: list[Replicate] = field(default_factory=list)
    failed: list[FailedPair] = field(default_factory=list)


class _Member(NamedTuple):
    worker: Worker
    warm: WarmedUp
    start_up: float


class _Plan(NamedTuple):
    """Everything about one pair that is drawn by lot."""

    pair: int
    arm: Arm
    layout_seed: int
    second_starts: bool
    second_leads_quad: list[bool]


def measure_pairs(
    bench: Bench,
    reference: WorkloadReference,
    *,
    base: Checkout,
    head: Checkout,
    measured: PairedMeasurement,
    looks: int,
    enough: Callable[[], bool],
) -> None:
    """Measure the pairs of one workload into ``measured``; while ``enough`` says no, as many again, ``looks`` times."""
    gate = bench.config.gate
    for look in range(looks):
        plans = draw_plans(
            bench.config.measure.seed,
            reference.name,
            pairs=gate.pairs,
            # The noise floor is known after the first look.
            aa_pairs=0 if look else gate.aa_pairs,
            quads=gate.quads,
            look=look,
        )
        if not _measure_plans(bench, reference, plans, base, head, measured) or enough():
            return


def _measure_plans(
    bench: Bench,
    reference: WorkloadReference,
    plans: list[_Plan],
    base: Checkout,
    head: Checkout,
    measured: PairedMeasurement,
) -> bool:
    """Measure pairs; one that fails is kept as such. Return False when three in a row failed and the rest was skipped."""
    cpus = quietest_cpus(bench.config.gate.cpus)
    failures_in_a_row = 0
    for position, plan in enumerate(plans):
        safe_point()
        bench.say(f"{reference.name}: pair {position + 1} of {len(plans)}, base against {_second(plan)}")
        try:
            _measure_pair(bench, reference, plan, base, head, cpus, measured)
            failures_in_a_row = 0
        except WorkerError as error:
            failed = FailedPair(pair=plan.pair, arm=plan.arm, workload=reference.name, error=error.detail)
            measured.failed.append(failed)
            failures_in_a_row += 1
        if failures_in_a_row == FAILURES_TO_STOP:
            return False
    return True


def draw_plans(seed: int, workload: str, *, pairs: int, aa_pairs: int, quads: int, look: int = 0) -> list[_Plan]:
    """Return the pairs of one look in the order they run; the same seed, workload and look give the same plan."""
    lot = random.Random(f"{seed}/{workload}/{look}")
    arms: list[Arm] = [*["ab"] * pairs, *["aa"] * aa_pairs]  # type: ignore[list-item]
    lot.shuffle(arms)
    return [
        _Plan(
            pair=look * PAIRS_PER_LOOK + number,
            arm=arm,
            layout_seed=lot.randrange(1, 65536),
            second_starts=lot.random() < 0.5,
            second_leads_quad=[lot.random() < 0.5 for _ in range(quads)],
        )
        for number, arm in enumerate(arms)
    ]


def _second(plan: _Plan) -> str:
    return "head" if plan.arm == "ab" else "base (noise floor)"


def _measure_pair(
    bench: Bench,
    reference: WorkloadReference,
    plan: _Plan,
    base: Checkout,
    head: Checkout,
    cpus: list[int],
    measured: PairedMeasurement,
) -> None:
    checkouts = [base, head if plan.arm == "ab" else base]
    with ExitStack() as stack:
        members: dict[int, _Member] = {}
        for index in (1, 0) if plan.second_starts else (0, 1):
            members[index] = _start(bench, stack, reference, checkouts[index], plan, cpus)
        _run_quads(bench, reference, plan, members)
        replicates = [_replicate(bench, reference, plan, members[index], index, cpus) for index in (0, 1)]
    measured.base.append(replicates[0])
    (measured.head if plan.arm == "ab" else measured.base).append(replicates[1])


def _start(
    bench: Bench, stack: ExitStack, reference: WorkloadReference, checkout: Checkout, plan: _Plan, cpus: list[int]
) -> _Member:
    worker, loaded = stack.enter_context(
        bench.worker(checkout, reference, cpus=cpus, layout_seed=plan.layout_seed, log_name=f"{reference.name}-pairs")
    )
    request = WarmUpRequest(block_seconds=bench.config.gate.block_seconds, cap_seconds=WARM_UP_CAP_SECONDS)
    timeout = bench.config.measure.step_timeout
    warm = worker.ask(request, WarmedUp, timeout=timeout, doing=f"warming up {reference.name}")
    return _Member(worker, warm, loaded.seconds)


def _run_quads(bench: Bench, reference: WorkloadReference, plan: _Plan, members: dict[int, _Member]) -> None:
    """Run the quads of every shape: A B B A or B A A B. Both sides run blocks of equally many calls."""
    shapes = members[0].warm.block_calls
    calls = {shape: max(count, members[1].warm.block_calls.get(shape, 0)) for shape, count in shapes.items()}
    timeout = bench.config.measure.step_timeout
    sequence = 0
    for quad, second_leads in enumerate(plan.second_leads_quad):
        order = (1, 0, 0, 1) if second_leads else (0, 1, 1, 0)
        for shape, count in calls.items():
            for index in order:
                request = BlockRequest(shape=shape, calls=count, quad=quad, sequence=sequence)
                members[index].worker.ask(request, BlockDone, timeout=timeout, doing=f"measuring {reference.name}")
                sequence += 1


def _replicate(
    bench: Bench, reference: WorkloadReference, plan: _Plan, member: _Member, index: int, cpus: list[int]
) -> Replicate:
    timeout = bench.config.measure.step_timeout
    collected = member.worker.ask(CollectRequest(), Collected, timeout=timeout, doing=f"collecting {reference.name}")
    return Replicate(
        pair=plan.pair,
        arm=plan.arm,
        member="second" if index else "first",
        workload=reference.name,
        layout_seed=plan.layout_seed,
        cpus=cpus,
        start_up=member.start_up,
        warm_up_calls=member.warm.calls,
        steady=member.warm.steady,
        shapes=collected.shapes,
    )

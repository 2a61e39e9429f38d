"""The jobs of ``perfgate run``: turns of the only side; their numbers go into main's history."""

from __future__ import annotations

from perfgate.conductor.sides.job_turns import JobTurns, MeasuredJob
from perfgate.conductor.sides.kinds import (
    SIDES,
    cpus_of,
    keep_off,
    make_side,
    record_of,
    with_numbers,
)
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.server.highest_rate import at_highest_rate
from perfgate.conductor.sides.side import SidePlan
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.run import FailedPair
from perfgate.job_settings import JobReference

# Two starts, because a single one may be an outlier; a command starts anew for every turn.
STARTS = 2
TURNS = 8
RUNS = 5


def measure_alone(
    bench: Bench, reference: JobReference, checkout: Checkout
) -> MeasuredJob:
    """Take turns of one side; failures are recorded in the result."""
    measured = MeasuredJob(record_of(reference))
    try:
        reference = at_highest_rate(bench, reference, checkout, "head", bench.say)
    except SideError as error:
        measured.failed.append(
            FailedPair(pair=0, arm="ab", workload=reference.name, error=error.detail)
        )
        return measured
    measured.record = record_of(reference)
    cpus = cpus_of(reference.kind, bench)
    side = make_side(bench, reference, checkout, "head", cpus)
    plan, look = SidePlan(turns=1, fewest=TURNS, most=TURNS), STARTS * TURNS
    if not SIDES[reference.kind].plan.most:  # a process for each turn
        plan, look = SidePlan(turns=1), RUNS
    with keep_off(cpus):
        JobTurns(
            [{"head": side}],
            plan,
            measured,
            looks=(look,),
            is_decided=lambda: True,
            say=bench.say,
            announce=lambda: None,
            seed=bench.config.measure.seed,
        ).take()
    measured.record = with_numbers(measured.record, side)
    return measured

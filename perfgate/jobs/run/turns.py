"""The jobs of ``perfgate run``: turns of the one side there is, whose numbers main's history keeps."""

from __future__ import annotations

import time

from perfgate.conductor.sides.highest_rate import at_highest_rate
from perfgate.conductor.sides.kinds import KINDS, cpus_of, keep_off, make_side, record_of, with_numbers
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.side import Side
from perfgate.conductor.sides.turns import MeasuredJob
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.document.run import FailedPair
from perfgate.job_settings import JobReference
from perfgate.locale import sentence

# Two starts, because one shows its luck; a command starts anew for every turn.
STARTS = 2
TURNS = 8
RUNS = 5


def measure_alone(bench: Bench, reference: JobReference, checkout: Checkout) -> MeasuredJob:
    """Take turns of one side; what fails is in the result by name."""
    measured = MeasuredJob(record_of(reference))
    cpus = cpus_of(reference.kind, bench)
    side: Side | None = None
    has_own_process = not KINDS[reference.kind].plan.most
    began = time.monotonic()
    try:
        reference = at_highest_rate(bench, reference, checkout, "head", bench.say)
        measured.record = record_of(reference)
        side = make_side(bench, reference, checkout, "head", cpus)
        with keep_off(cpus):
            for start in range(RUNS if has_own_process else STARTS):
                bench.say(sentence("{name}: start {number}", name=reference.name, number=start + 1))
                side.start()
                side.warm_up()
                for turn in range(1 if has_own_process else TURNS):
                    before = time.monotonic()
                    result = side.turn(turn)
                    if result.is_blurred:
                        result = side.turn(turn + TURNS)
                    taken = result.as_turn(
                        reference.name,
                        start=start,
                        quad=len(measured.head),
                        place=0,
                        begun=before - began,
                        seconds=time.monotonic() - before,
                    )
                    measured.head.append(taken)
                side.stop()
    except SideError as error:
        measured.failed.append(FailedPair(pair=0, arm="ab", workload=reference.name, error=error.detail))
    finally:
        if side is not None:
            side.stop()
            measured.record = with_numbers(measured.record, side)
    return measured

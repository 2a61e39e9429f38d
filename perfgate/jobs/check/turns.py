"""Measure the jobs of a check: base and head of a server, ranks or a command take turns until they decide."""

from __future__ import annotations

import time
from collections.abc import Callable

from perfgate.conductor.sides.kinds import KINDS, beside, cpus_of, make_side, with_numbers
from perfgate.conductor.sides.side import SidePlan
from perfgate.conductor.sides.turns import FEWEST_STARTS, MeasuredJob, SideName, TurnTaker
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.job_settings import JobReference
from perfgate.judging.gate.turns import LOOKS
from perfgate.judging.report.text import format as formats

MINUTE = 60.0


def measure_job(
    bench: Bench,
    reference: JobReference,
    checkouts: dict[SideName, Checkout],
    measured: MeasuredJob,
    *,
    is_decided: Callable[[], bool],
    foresee: Callable[[int, int], float | None],
    deadline: float,
    note: Callable[[str], None],
) -> None:
    """Take the turns of a job into ``measured``.

    ``foresee`` gives the smallest slowdown that so many quads of so many starts would show; ``note`` is told the plan before
    the first quad and after the first few.
    """
    kind = KINDS[reference.kind]
    looks = LOOKS[reference.kind]
    cpus = cpus_of(reference.kind, bench)
    sides = {name: make_side(bench, reference, checkout, name, cpus) for name, checkout in checkouts.items()}
    began = time.monotonic()
    budget = min(reference.settings.budget, deadline - began)

    def tell() -> None:
        measured.record = with_numbers(measured.record, sides["base"])
        quads, starts = taker.reach()
        note(_told(reference, looks, taker, budget, foresee(quads, starts) if quads else None))

    def decided() -> bool:
        measured.record = with_numbers(measured.record, sides["base"])
        return is_decided()

    taker = TurnTaker(
        sides,
        kind.plan,
        measured,
        looks,
        is_decided=decided,
        say=bench.say,
        tell=tell,
        ends=began + budget,
        seed=bench.config.measure.seed,
    )
    note(_plan(reference, kind.plan, looks, budget))
    with beside(cpus):
        taker.take()
    measured.record = with_numbers(measured.record, sides["base"])


def _plan(reference: JobReference, plan: SidePlan, looks: tuple[int, ...], budget: float) -> str:
    unit = "runs of each side" if not plan.most else "quads of turns"
    starts = f", {FEWEST_STARTS} starts of both sides at least" if plan.most else ""
    return (
        f"{reference.name}: {looks[0]} to {looks[-1]} {unit}{starts}, at most {formats.quantity(budget, 's')}; "
        "after the first four it is known what they will show"
    )


def _told(
    reference: JobReference, looks: tuple[int, ...], taker: TurnTaker, budget: float, visible: float | None
) -> str:
    """What the first quads promise: how many there will be in the time, and what they will show."""
    quads, starts = taker.reach()
    minutes = f"{budget / MINUTE:.1f} min"
    if quads < looks[0]:
        return (
            f"{reference.name}: {minutes} are enough for {quads} quads, and {looks[0]} are the fewest that decide: set "
            "`budget` of the workload"
        )
    sees = "" if visible is None else f"; a slowdown of {visible:.1%} would show"
    much = f"{quads} runs of each side" if starts == quads else f"{quads} quads of {starts} starts"
    return f"{reference.name}: {much} in {minutes}{sees}"

"""The highest rate at which base holds its SLA, searched before base and head are loaded with a share of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from perfgate.conductor.load.search import find_highest_rate
from perfgate.conductor.sides.kinds import cpus_of, keep_off, place_of, place_on_half
from perfgate.conductor.sides.program import SideError
from perfgate.conductor.sides.server.server import RATE_SHARE, ServerSide
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.message import Message
from perfgate.document.run import ErrorDetail
from perfgate.job_settings import JobReference
from perfgate.locale import sentence

# A rate fails if this many times the allowed share of requests misses the SLA.
_BAD = 3
_LOWEST = 4
# The search ends when the rates that hold and fail are this close.
PRECISION = 0.1


def at_highest_rate(
    bench: Bench,
    reference: JobReference,
    checkout: Checkout,
    name: str,
    note: Callable[[str], None],
) -> JobReference:
    """The job at the rate that this side sustains, if its load asks for that. Raises SideError if it sustains none."""
    sla = reference.settings.sla
    if not reference.settings.searches_rate or sla is None:
        return reference
    cpus = cpus_of(reference.kind, bench)
    if reference.settings.fits == "swap":
        place = place_on_half(
            bench, reference, checkout, name, reference.settings.halves[0]
        )
    else:
        place = place_of(bench, reference, checkout, name, cpus)
    side = ServerSide(reference, place)
    may_miss = 1 - sla.share
    try:
        with keep_off(cpus):
            bench.say(
                sentence(
                    "{workload}: searching for the highest rate at which {side} meets the SLA",
                    workload=reference.name,
                    side=name,
                )
            )
            side.start()
            side.warm_up()
            begin = side.closed_rate() / 2
            # Slow rates take long to try, so a server that does not sustain a quarter of that counts as failing.
            least = begin / _LOWEST
            answers = find_highest_rate(
                side.misses,
                start=begin,
                least=least,
                precision=PRECISION,
                good=may_miss,
                bad=min(0.9, _BAD * may_miss),
            )
        highest = max((answer.rate for answer in answers if answer.holds), default=None)
        if highest is None:
            raise SideError(
                ErrorDetail(
                    kind="protocol",
                    message=Message("job.no-rate", {"rate": answers[-1].rate}),
                )
            )
    finally:
        side.stop()
    requests = sum(answer.requests for answer in answers)
    note(
        sentence(
            "{workload}: {side} holds the SLA up to {highest:.3g} requests/s, by {requests} requests at {rates} "
            "rates; both sides are loaded with {load:.3g}",
            workload=reference.name,
            side=name,
            highest=highest,
            requests=requests,
            rates=len(answers),
            load=RATE_SHARE * highest,
        )
    )
    return replace(reference, rate=highest)

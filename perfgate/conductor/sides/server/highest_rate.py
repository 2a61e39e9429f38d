"""The highest rate at which base holds its SLA, searched before base and head are
loaded with a share of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

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
    """The job at the rate that this side sustains, if its load asks for that.

    Raises SideError if it sustains none.
    """
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
            # Slow rates take long to try, so a server that does not sustain a quarter
            # of that counts as failing.
            least = begin / _LOWEST
            answers = find_highest_rate(
                side.misses,
                start=begin,
                least=least,
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


# --- the search


# Judges a number of requests at this rate and counts the requests that missed the SLA
# or failed. It should send some more beforehand and leave them out: a round begins with
# an empty queue, which takes hundreds of requests to grow if the server is nearly full.
# (Simulated M/M/1 queue with a limit at 54 to 65 requests/s: medians of 60 searches 73
# with none left out, 67 with 200.)
Probe = Callable[[float, int], int]

# A rate without a verdict after this many rounds of a clear pass lies between the two
# shares.
_LONGEST = 10


# The shares of misses that a probe distinguishes, unless others are given, and the
# chance of either error.
GOOD, BAD, ERROR = 0.01, 0.03, 0.05


class RateAnswer(NamedTuple):
    """The result of probing one rate, in requests a second; ``holds`` is None if
    undecided.
    """

    rate: float
    requests: int
    misses: int
    holds: bool | None


def find_highest_rate(
    probe: Probe,
    *,
    start: float,
    least: float | None,
    most: float = 1e5,
    good: float = GOOD,
    bad: float = BAD,
) -> list[RateAnswer]:
    """Double the rate from ``start`` until a probe fails, or halve it until one passes;
    then bisect in between.

    Return the answers in the order of the probes: the highest rate that holds is the
    result. The search ends once fails / holds <= 1 + PRECISION, at rates above ``most``
    and below ``least`` (``start`` / 1024). A rate that a probe cannot decide on does
    not hold.
    """
    if least is None:
        least = start / 1024
    answers = []
    holds = 0.0
    fails = math.inf
    rate = start
    while least <= rate <= most and not fails <= holds * (1 + PRECISION):
        answer = judge_rate(probe, rate, good=good, bad=bad)
        answers.append(answer)
        if answer.holds:
            holds = rate
        else:
            fails = rate
        if math.isinf(fails):
            rate = 2 * holds
        elif holds:
            rate = math.sqrt(holds * fails)
        else:
            rate = fails / 2
    return answers


def judge_rate(
    probe: Probe, rate: float, *, good: float = GOOD, bad: float = BAD
) -> RateAnswer:
    """Send requests until Wald's sequential probability ratio test separates the good
    share of misses from the bad one.

    With a = log((1 - error) / error) the rate fails once misses * log(bad / good) +
    hits * log((1 - bad) / (1 - good)) >= a and holds once that sum <= -a (Wald,
    Sequential Analysis, 1947). With the default shares 145 hits in a row hold, three
    misses in a row fail. Requests come in rounds of a third of a clear pass; after ten
    clear passes without an answer there is none. The errors assume independent
    requests; in a queue misses come in bursts, and both errors are more frequent.
    """
    bound = math.log((1 - ERROR) / ERROR)
    miss, hit = math.log(bad / good), math.log((1 - bad) / (1 - good))
    clear_pass = math.ceil(bound / -hit)
    round_size = math.ceil(clear_pass / 3)
    requests = misses = 0
    while requests < _LONGEST * clear_pass:
        misses += probe(rate, round_size)
        requests += round_size
        evidence = misses * miss + (requests - misses) * hit
        if abs(evidence) >= bound:
            return RateAnswer(rate, requests, misses, evidence < 0)
    return RateAnswer(rate, requests, misses, None)

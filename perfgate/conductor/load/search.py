"""The highest rate at which a server holds an SLA.

Two searches of one server a minute apart may differ by a factor of two on a shared machine. So search once, on the base, and
compare base and head in turns at a share of that rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

# Judges a number of requests at this rate and counts the requests that missed the SLA or failed. It should send some more
# beforehand and leave them out: a round begins with an empty queue, which takes hundreds of requests to grow if the server is
# nearly full. (Simulated M/M/1 queue with a limit at 54 to 65 requests/s: medians of 60 searches 73 with none left out, 67
# with 200.)
Probe = Callable[[float, int], int]

# A rate without a verdict after this many rounds of a clear pass lies between the two shares.
_LONGEST = 10


# The shares of misses that a probe distinguishes, unless others are given, and the chance of either error.
GOOD, BAD, ERROR = 0.01, 0.03, 0.05


class RateAnswer(NamedTuple):
    """The result of probing one rate, in requests a second; ``holds`` is None if undecided."""

    rate: float
    requests: int
    misses: int
    holds: bool | None


def find_highest_rate(
    probe: Probe,
    *,
    start: float,
    precision: float = 0.1,
    least: float | None = None,
    most: float = 1e5,
    good: float = GOOD,
    bad: float = BAD,
) -> list[RateAnswer]:
    """Double the rate from ``start`` until a probe fails, or halve it until one passes; then bisect in between.

    Return the answers in the order of the probes: the highest rate that holds is the result. The search ends once fails / holds
    <= 1 + ``precision``, at rates above ``most`` and below ``least`` (``start`` / 1024). A rate that a probe cannot decide on
    does not hold.
    """
    if least is None:
        least = start / 1024
    answers: list[RateAnswer] = []
    holds, fails, rate = 0.0, math.inf, start
    while least <= rate <= most and not fails <= holds * (1 + precision):
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
    """Send requests until Wald's sequential probability ratio test separates the good share of misses from the bad one.

    With a = log((1 - error) / error) the rate fails once misses * log(bad / good) + hits * log((1 - bad) / (1 - good)) >= a and
    holds once that sum <= -a (Wald, Sequential Analysis, 1947). With the default shares 145 hits in a row hold, three misses
    in a row fail. Requests come in rounds of a third of a clear pass; after ten clear passes without an answer there is none.
    The errors assume independent requests; in a queue misses come in bursts, and both errors are more frequent.
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

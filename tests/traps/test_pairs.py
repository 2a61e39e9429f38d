"""Traps of the loop that decides who has the turn, in virtual time: mixed-up sides, time that runs out, processes that fail."""

from __future__ import annotations

from perfgate.document.decision import Policy
from tests.fakes.device import FakeDevice
from tests.traps.catalogue import caught
from tests.traps.naming import names
from tests.traps.virtual import MS, Call, VirtualGate, works


@caught(
    "base and head mixed up in the loop",
    fools="results of the base's workers are stored as the head's, so a slower head looks faster in every pair",
    by="gates with known sides run through the conductor's own loop: more work in the head must be "
    "slower, less must be faster",
    named="latency.low: regressed",
)
def test_sides_mixed_up() -> set[str]:
    assert "latency.low: improved" in names(VirtualGate(works(MS * 106 // 100), works(MS)).decide())
    return names(VirtualGate(works(MS), works(MS * 106 // 100)).decide())


@caught(
    "a head so slow that the budget is spent in its first pairs",
    fools="nothing is decided when the time is gone, and undecided does not fail",
    by="two looks are always measured, whatever the budget",
    named="latency.low: regressed",
)
def test_budget_spent_by_a_slow_head() -> set[str]:
    policy = Policy(looks=[8, 16, 32])
    return names(VirtualGate(works(100 * MS), works(150 * MS), policy=policy, quads=1, budget=1.0).decide())


@caught(
    "the job's time is spent before the first pair",
    fools="no pair, no comparison, no regression",
    by="a job without a pair has failed, and a failure is never a pass",
    named="error timeout",
)
def test_time_spent_before_the_first_pair() -> set[str]:
    return names(VirtualGate(works(MS), works(2 * MS), deadline=0.0).decide())


@caught(
    "a head that fails in most of its processes",
    fools="the pairs that happen to work are compared, the others are forgotten",
    by="every pair that failed is in the document; three in a row end the measurement",
    named="error exception",
)
def test_most_processes_fail() -> set[str]:
    started = iter(range(1000))

    def sometimes() -> Call:
        works_once = next(started) < 4

        def call(device: FakeDevice) -> None:
            if not works_once:
                raise RuntimeError("no licence is free")
            device.launch("mm", MS)

        return call

    found = names(VirtualGate(works(MS), sometimes).decide())
    assert "verdict PASS" not in found
    return found

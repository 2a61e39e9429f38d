from __future__ import annotations

import math

import pytest

from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.time import resolutions
from tests.unit.gate.builders import sides


def _resolutions(ratios: list[float]):
    base, head = sides(ratios)
    decision = decide(base, head, policy=Policy(), history=History())
    return decision, {entry.metric: entry for entry in resolutions(base, head, decision)}


def test_resolutions__known_effects__spread_and_smallest_of_the_decision() -> None:
    # Effects -2, -1, 0, 1, 2 times 1 %, four times over: Hodges-Lehmann 0, median distance 1 %, robust spread 1.4826 %.
    decision, found = _resolutions([math.exp(step / 100) for step in (-2, -1, 0, 1, 2)] * 4)
    low = found["latency.low"]
    assert low.pairs == 20
    assert low.spread == pytest.approx(math.expm1(0.014826), rel=1e-3)
    comparison = next(one for one in decision.comparisons if one.metric == "latency.low")
    assert low.smallest == comparison.detectable
    # By the boundary in use, 20 pairs need more than five standard errors, where a single test of many pairs needs four.
    assert 5 < math.log1p(low.smallest) / (0.014826 / math.sqrt(20)) < 6
    # 4 blocks of 20 calls of 10 ms on each side, 20 pairs.
    assert low.timed == pytest.approx(32.0, rel=1e-3)


def test_resolutions__8_pairs__no_slowdown_would_have_been_shown() -> None:
    _, found = _resolutions([1.001, 0.999] * 4)
    assert found["latency.low"].smallest is None


def test_resolutions__a_slower_head__no_spread_and_the_tolerance_is_what_can_be_seen() -> None:
    _, found = _resolutions([1.05] * 16)
    assert found["latency.low"].smallest == pytest.approx(0.005)

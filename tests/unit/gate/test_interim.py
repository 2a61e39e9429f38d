"""What watchers see of the pairs before the gate has judged them."""

from __future__ import annotations

import pytest

from perfgate.judging.gate.look import interim_interval
from tests.unit.gate.builders import WORKLOAD, pairs_of


def test_interim_interval__five_pairs__none() -> None:
    assert interim_interval(*pairs_of([1.02] * 5), WORKLOAD) is None


def test_interim_interval__head_two_percent_slower__holds_it_and_ignores_base_against_base() -> None:
    found = interim_interval(
        *pairs_of([1.019, 1.021, 1.02, 1.018, 1.022, 1.02, 1.021, 1.019], aa_ratios=[1.5] * 7), WORKLOAD
    )
    assert found is not None
    low, high = found
    assert low < 0.02 < high
    assert high - low == pytest.approx(0.003, abs=0.003)


def test_interim_interval__another_workload__none() -> None:
    assert interim_interval(*pairs_of([1.02] * 8), "decoder") is None

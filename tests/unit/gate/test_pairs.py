"""From blocks to one number a pair."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfgate.judging.gate.pairs import paired_effects, statistics
from tests.unit.gate.builders import SHAPE, WORKLOAD, columns, replicate, sides


def test_statistics__equal_calls_of_10_ms__every_location_is_10_ms() -> None:
    found = statistics(columns(0.01))
    assert math.exp(found.fast_path.p10) == pytest.approx(0.01)
    assert np.exp(found.fast_path.fastest) == pytest.approx([0.01, 0.01])
    assert math.exp(found.p50) == pytest.approx(0.01)
    assert found.gap == pytest.approx(0.0, abs=1e-12)


def test_statistics__3_us_between_calls__gap_is_3_us() -> None:
    assert statistics(columns(0.001, gap=3e-6)).gap == pytest.approx(3e-6)


def test_statistics__chosen_quads__only_their_calls_count() -> None:
    blocks = columns(0.01, blocks=8)
    assert len(statistics(blocks, frozenset({0, 2})).fast_path.fastest) == 2
    assert statistics(blocks, frozenset({0})).cpu.size == 40


def test_paired_effects__calls_too_few_for_a_p99__pool_pairs_until_there_are_100() -> None:
    base, head = sides([1.1] * 9, blocks=2)  # 40 calls a process: three pairs have 120
    effects = paired_effects(base.replicates, head.replicates, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert effects["latency.p99"].differences.values == pytest.approx([math.log(1.1)] * 3)


def test_paired_effects__never_100_calls__no_p99() -> None:
    base, head = sides([1.1] * 2, blocks=2)
    effects = paired_effects(base.replicates, head.replicates, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert "latency.p99" not in effects


def test_paired_effects__p99__of_cpu_time() -> None:
    base, head = sides([1.0] * 8, cpu=0.02, blocks=4, calls=200)
    effects = paired_effects(base.replicates, head.replicates, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert np.expm1(effects["latency.p99"].differences.values[0]) == pytest.approx(1.0)


def test_paired_effects__head_four_percent_slower__log_ratio_a_pair() -> None:
    base, head = sides([1.04] * 8)
    effects = paired_effects(base.replicates, head.replicates, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert effects["latency.low"].differences.values == pytest.approx([math.log(1.04)] * 8)
    assert effects["latency.low"].level == pytest.approx(0.01)


def test_paired_effects__gap_of_one_percent_of_a_call__effect_is_one_percent() -> None:
    base, head = sides([1.0] * 8, gaps=(0.0, 0.0001))
    effects = paired_effects(base.replicates, head.replicates, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert np.expm1(effects["throughput.gap"].differences.values) == pytest.approx([0.01] * 8)


def test_paired_effects__pair_without_its_second_member__left_out() -> None:
    firsts = [replicate(0, "ab", "first", 0.01), replicate(1, "ab", "first", 0.01)]
    seconds = [replicate(1, "ab", "second", 0.02)]
    effects = paired_effects(firsts, seconds, workload=WORKLOAD, shape=SHAPE, arm="ab")
    assert effects["latency.low"].differences.values == pytest.approx([math.log(2.0)])


def test_paired_effects__other_workload__nothing() -> None:
    base, head = sides([1.0] * 8)
    assert paired_effects(base.replicates, head.replicates, workload="other", shape=SHAPE, arm="ab") == {}

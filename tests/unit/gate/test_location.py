"""The fast path of two processes that took turns."""

from __future__ import annotations

import math

import numpy as np
import pytest

from perfgate.judging.gate.pairs import compare_fast_paths, fast_path


def quads(seed: int, *, level: float = 1e-3, count: int = 4, calls: int = 20, drift: float = 0.0) -> list[np.ndarray]:
    random = np.random.default_rng(seed)
    return [
        level * (1 + drift * number) * (1 + random.exponential(0.05, calls)) for number in range(count)
    ]  # fmt: skip


def test_fast_path__one_to_hundred_ms__tenth_percentile_of_all_and_of_each_quad_and_its_fastest() -> None:
    calls = np.arange(1, 101) / 1000
    found = fast_path([calls[:50], calls[50:]])
    assert math.exp(found.p10) == pytest.approx(0.0109)  # numpy's linear quantile
    assert np.exp(found.fastest) == pytest.approx([0.001, 0.051])
    assert np.exp(found.low) == pytest.approx([0.0059, 0.0559])


def test_compare_fast_paths__three_locations_disagree__the_middle_one_counts() -> None:
    # Slower by 1 % is the fastest call of every quad, by 2 % its low ones, by 3 % those of all calls.
    first = fast_path([np.array([1.0, *[1.1] * 19])] * 3)
    second = first._replace(fastest=first.fastest + 0.01, low=first.low + 0.02, p10=first.p10 + 0.03)
    assert compare_fast_paths(first, second).effect == pytest.approx(0.02)


def test_compare_fast_paths__every_call_four_percent_slower__four_percent() -> None:
    first = quads(1)
    pair = compare_fast_paths(fast_path(first), fast_path([1.04 * quad for quad in first]))
    assert pair.effect == pytest.approx(math.log(1.04))


def test_compare_fast_paths__sides_swapped__effect_changes_sign_and_weight_stays() -> None:
    first, second = fast_path(quads(1)), fast_path(quads(2, drift=0.1))
    there, back = compare_fast_paths(first, second), compare_fast_paths(second, first)
    assert there.effect == pytest.approx(-back.effect)
    assert there.weight == pytest.approx(back.weight)


def test_compare_fast_paths__quads_that_disagree__weigh_less() -> None:
    calm = compare_fast_paths(fast_path(quads(1)), fast_path(quads(2)))
    disturbed = compare_fast_paths(fast_path(quads(1)), fast_path(quads(2, drift=0.3)))
    assert disturbed.weight < 0.5 * calm.weight


def test_compare_fast_paths__one_quad__weighs_as_pairs_do_among_each_other() -> None:
    assert compare_fast_paths(fast_path(quads(1, count=1)), fast_path(quads(2, count=1))).weight == pytest.approx(
        1 / 0.007
    )

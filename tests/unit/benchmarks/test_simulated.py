"""Whole gates of several workloads, simulated by the shipped rule: the promises of docs/deciding.md."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import SimulatedRule, simulate
from whole import ROWS, Row, gates_of


def test_simulate__five_workloads_of_other_code_and_equal_speed__hardly_a_false_alarm() -> None:
    """With a chance of 1 % one in fourteen such series has more than 1; without an allowance for luck there would be 2."""
    gates = gates_of(Row(5, 0.0065, 0.0, pairs=64), 40, seed=1)
    assert sum(gate.failed for gate in gates) <= 1
    assert not any(gate.undecided for gate in gates)


def test_simulate__one_of_five_workloads_one_percent_slower__found() -> None:
    gates = gates_of(Row(5, 0.0065, 0.01, pairs=106), 20, seed=2)
    assert sum(gate.failed for gate in gates) >= 16


def test_simulate__undecided_workload_beside_decided_ones__has_the_pairs_that_they_left() -> None:
    random = np.random.default_rng(3)
    quiet, noisy = (spread * random.standard_normal((2, 128)) for spread in (0.002, 0.04))
    alone = simulate([*quiet, *noisy], SimulatedRule(), budget=24, lends=False)
    lent = simulate([*quiet, *noisy], SimulatedRule(), budget=24)
    assert lent.pairs[:2] == alone.pairs[:2]
    assert max(lent.pairs) > 24 == max(alone.pairs)
    assert sum(lent.pairs) <= 4 * 24


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS)
def test_simulate__row_of_the_table__goal_reached(row: Row) -> None:
    """The shares may miss their goals by 2.5 standard errors."""
    gates = gates_of(row, 600, seed=4)
    failed, undecided = (float(np.mean([getattr(gate, name) for gate in gates])) for name in ("failed", "undecided"))
    error = 2.5 * (row.fails * (1 - row.fails) / len(gates)) ** 0.5
    assert failed >= row.fails - error if row.slowdown else failed <= row.fails + error
    assert undecided <= row.undecided + 0.022

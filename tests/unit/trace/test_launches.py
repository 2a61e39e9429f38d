"""The launch of each kernel: by the compiled loop and without it, whatever numbers a profiler gives."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.trace import loops
from perfgate.trace.model.events import EventTableBuilder
from perfgate.trace.model.launches import NOT_RECORDED, launch_positions
from tests.unit.trace.test_gaps import kernel, launch, table

needs_library = pytest.mark.skipif(loops.load() is None, reason="the scanner is not built (python hatch_build.py)")


def test_launch_positions__several_levels_of_the_runtime__the_call_that_begins_first() -> None:
    found = launch_positions(np.array([7, 8, 9, -1]), np.array([7, 7, 8, -1, 8]), np.array([20, 10, 5, 0, 5]))

    assert found.tolist() == [1, 2, NOT_RECORDED, NOT_RECORDED]


@needs_library
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("dtype", [np.int32, np.int64])
def test_launch_positions__compiled_or_not__the_same(
    monkeypatch: pytest.MonkeyPatch, seed: int, dtype: type[np.integer[np.typing.NBitBase]]
) -> None:
    random = np.random.default_rng(seed)
    # Numbers near one another and far apart, repeated, absent, and negative ones, which no profiler should give.
    calls = random.integers(-3, [40, 400, 40_000][seed % 3], size=300).astype(dtype)
    work = random.choice(np.append(calls, [-1, -5, 59, 40_001]), size=200).astype(dtype)
    begun = random.integers(0, 50, size=300)
    compiled = launch_positions(work, calls, begun)
    monkeypatch.setattr(loops, "load", lambda: None)

    assert compiled.tolist() == launch_positions(work, calls, begun).tolist()
    assert (compiled != NOT_RECORDED).any()


def test_launch__of_a_table__positions_in_it_for_work_of_a_device_alone() -> None:
    events = table(launch(0, 1), kernel(10, 5, 1), kernel(20, 5, 9), launch(12, 2), kernel(30, 5, 2))

    assert events.launch.tolist() == [NOT_RECORDED, 0, NOT_RECORDED, NOT_RECORDED, 3]
    assert EventTableBuilder().table().launch.tolist() == []


@needs_library
def test_look_up__column_of_one_value__as_numpy_reads_it() -> None:
    constant = np.broadcast_to(np.int32(7), 5)

    assert loops.look_up(constant, np.array([0, 4, -1], dtype=np.int32)).tolist() == [7, 7, 7]

from __future__ import annotations

import pytest

from perfgate.conductor.sides.recount import confirmed
from perfgate.document.run import CounterSet, OpCount

KEPT, OPS = "memory.kept_python", "counters.framework_ops"


def _counted(values: dict[str, int], *, mm: int = 1, ranges: dict[str, tuple[int, int]] | None = None) -> CounterSet:
    ranges = ranges or {}
    return CounterSet(
        workload="encoder",
        shape="default",
        repeats=3,
        values=values,
        ops=[OpCount(op="aten::mm", count=mm)],
        unstable=sorted(ranges),
        ranges=ranges,
        steady=sorted(values.keys() - ranges.keys()),
    )


def test_confirmed__leak_of_the_first_process_alone__none() -> None:
    (counted,) = confirmed([_counted({KEPT: 970})], [_counted({KEPT: 0})])
    assert (counted.values[KEPT], counted.unstable, counted.steady) == (0, [], [KEPT])


def test_confirmed__leak_of_both_processes__range_of_both() -> None:
    first, second = _counted({KEPT: 20_060}), _counted({KEPT: 19_000}, ranges={KEPT: (19_000, 30_000)})
    (counted,) = confirmed([first], [second])
    assert (counted.values[KEPT], counted.ranges) == (20_060, {KEPT: (19_000, 30_000)})
    assert (counted.unstable, counted.steady) == ([KEPT], [])


def test_confirmed__count_that_a_tuner_chose__unstable_with_its_operator() -> None:
    (counted,) = confirmed([_counted({OPS: 9}, mm=2)], [_counted({OPS: 8})])
    assert counted.ranges == {OPS: (8, 9), "ops.count:aten::mm": (1, 2)}
    assert (counted.unstable, counted.steady) == ([OPS, "ops.count:aten::mm"], [])


@pytest.mark.parametrize("second", [[], [_counted({OPS: 9})]])
def test_confirmed__nothing_or_the_same_again__unchanged(second: list[CounterSet]) -> None:
    first = _counted({OPS: 9})
    assert confirmed([first], second) == [first]

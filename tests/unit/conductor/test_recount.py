from __future__ import annotations

import msgspec
import pytest

from perfgate.conductor.sides.checklist.recount import confirmed
from perfgate.document.run import CounterSet, CounterSite, OpCount

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
    (counted,) = confirmed([first], second)
    assert counted == msgspec.structs.replace(first, processes=1 + len(second))


def _sited(*sites: tuple[str, int, str]) -> CounterSet:
    counts = [CounterSite(metric=OPS, name=name, count=count, line=line, code=line) for name, count, line in sites]
    names = dict.fromkeys(site.name for site in counts)
    ops = [OpCount(op=name, count=sum(site.count for site in counts if site.name == name)) for name in names]
    total = sum(site.count for site in counts)
    return msgspec.structs.replace(_counted({OPS: total}), ops=ops, sites=counts)


def test_confirmed__line_where_processes_differ__its_range_and_no_other() -> None:
    one, other = _sited(("mm", 1, "a.py:3"), ("add", 1, "a.py:9")), _sited(("mm", 2, "a.py:3"), ("add", 1, "a.py:9"))
    (counted,) = confirmed([one], [other])
    assert [site.between for site in counted.sites] == [(1, 2), None]
    assert (counted.values[OPS], counted.ranges[OPS], counted.processes) == (2, (2, 3), 2)


def test_confirmed__operator_that_one_process_has_alone__from_0() -> None:
    one, two = _sited(("mm", 1, "a.py:3")), _sited(("bmm", 1, "a.py:3"), ("cat", 1, "a.py:4"))
    (counted,) = confirmed([one], [two])
    assert {(site.name, site.count, site.between) for site in counted.sites} == {
        ("mm", 1, (0, 1)),
        ("bmm", 0, (0, 1)),
        ("cat", 0, (0, 1)),
    }
    assert counted.unstable == [OPS, "ops.count:bmm", "ops.count:cat", "ops.count:mm"]


def test_confirmed__third_process__ranges_over_all() -> None:
    one, two, three = (_sited(("mm", count, "a.py:3")) for count in (2, 1, 4))
    (counted,) = confirmed(confirmed([one], [two]), [three])
    assert (counted.ranges[OPS], counted.sites[0].between, counted.processes) == ((1, 4), (1, 4), 3)

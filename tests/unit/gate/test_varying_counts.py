"""Counts that differ between processes of the same code: compared by range, and exactly at every other place."""

from __future__ import annotations

import pytest

from perfgate.document.comparison import Comparison, Exact
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import CounterSet, CounterSite, OpCount, RunDocument
from perfgate.judging.gate.decide import decide
from perfgate.judging.gate.look import Look
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD, sides
from tests.wording import worded

OPS = "counters.framework_ops"
NO_CHANGE = [1.0 + 0.0005 * (-1) ** pair for pair in range(14)]
# A tuned product, whose line runs one operator or two.
TUNED = ("aten::mm", 2, "model.py:3", (1, 2))
Row = tuple[str, int, str, tuple[int, int] | None]


def counted(*rows: Row, processes: int = 2) -> CounterSet:
    sites = [
        CounterSite(metric=OPS, name=name, count=count, line=line, code=f"code of {line}", between=between)
        for name, count, line, between in rows
    ]
    counts: dict[str, int] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for site in sites:
        counts[site.name] = counts.get(site.name, 0) + site.count
    total = sum(counts.values())
    for site in sites:
        if site.between:
            least, most = (end - site.count for end in site.between)
            ranges[OPS] = total + least, total + most
            ranges[f"ops.count:{site.name}"] = counts[site.name] + least, counts[site.name] + most
    return CounterSet(
        workload=WORKLOAD,
        shape=SHAPE,
        repeats=3,
        processes=processes,
        values={OPS: total},
        ops=[OpCount(op=name, count=count) for name, count in counts.items()],
        sites=sites,
        unstable=sorted(ranges),
        steady=sorted({OPS} - ranges.keys()),
        ranges=ranges,
    )


def runs(base: CounterSet, head: CounterSet) -> tuple[RunDocument, RunDocument]:
    before, after = sides(NO_CHANGE)
    return changed(before, counters=[base]), changed(after, counters=[head])


def judged(base: CounterSet, head: CounterSet) -> tuple[DecisionDocument, Comparison]:
    decision = decide(*runs(base, head), policy=Policy(strict=True), history=History())
    return decision, next(c for c in decision.comparisons if c.metric == OPS)


@pytest.mark.parametrize("tuned", [1, 2])
def test_decide__head_within_what_processes_of_base_differ_by__pass_and_said(tuned: int) -> None:
    decision, found = judged(counted(TUNED), counted(("aten::mm", tuned, "model.py:3", None), processes=1))
    assert (decision.verdict, found.outcome, found.parts) == ("PASS", "not_comparable", [])
    assert "1 to 2 on base" in worded([found.reason])[0]
    assert any("counters.framework_ops 1–2" in note for note in worded(decision.warnings))


@pytest.mark.parametrize("tuned", [1, 2])
@pytest.mark.parametrize("operator", ["aten::relu", "aten::mm"])
def test_decide__operator_added_beside_what_varies__fail_at_its_line(tuned: int, operator: str) -> None:
    own, common = ("aten::add", 1, "model.py:7", None), ("aten::mm", tuned, "model.py:3", None)
    decision, found = judged(counted(TUNED, own), counted(common, own, (operator, 1, "model.py:9", None)))
    assert decision.verdict == "FAIL"
    assert (found.base, found.head) == (1, 2)
    assert [(part.name, part.line, part.base, part.head) for part in found.parts] == [(operator, "model.py:9", 0, 1)]


def test_decide__other_operators_at_a_tuned_line__no_line_is_named() -> None:
    either = [("aten::mm", 1, "model.py:3", (0, 1)), ("aten::bmm", 0, "model.py:3", (0, 1))]
    decision, found = judged(counted(*either), counted(("aten::bmm", 1, "model.py:3", None)))
    assert (decision.verdict, found.parts) == ("PASS", [])
    assert [c.metric for c in decision.comparisons if c.metric.startswith("ops.count:")] == []


def test_decide__many_more_at_the_line_that_varies__fail_by_range() -> None:
    decision, found = judged(counted(TUNED), counted(("aten::mm", 20, "model.py:3", (19, 20))))
    assert (decision.verdict, found.base, found.head) == ("FAIL", 2, 19)
    assert [part.line for part in found.parts] == ["model.py:3"]


@pytest.mark.parametrize(
    ("between", "processes", "outcome", "verdict"),
    [
        # Twice base's range above it, in so many processes that base's own range is known.
        ((5, 200), 5, "regressed", "FAIL"),
        ((5, 200), 4, "inconclusive", "WARN"),
        ((4, 200), 5, "inconclusive", "WARN"),
        # Equal code may draw these.
        ((3, 4), 5, "not_comparable", "PASS"),
        ((2, 200), 5, "not_comparable", "PASS"),
    ],
)
def test_decide__head_above_base_that_differs_far_more_than_base_does__cannot_hide_its_growth(
    between: tuple[int, int], processes: int, outcome: str, verdict: str
) -> None:
    least, most = between
    base = counted(TUNED, processes=processes)
    head = counted(("aten::mm", most, "model.py:3", between), processes=processes)
    decision, found = judged(base, head)
    assert (decision.verdict, found.outcome) == (verdict, outcome)
    if outcome == "regressed":
        assert isinstance(found, Exact)
        assert (found.base, found.head) == (2, least)
    look = Look(*runs(base, head), Policy(), workload=WORKLOAD)
    assert (OPS in look.differing_counts()) == (outcome in ("regressed", "inconclusive"))


@pytest.mark.parametrize(
    ("head", "differs"),
    [
        (("aten::mm", 2, "model.py:3", None), []),
        (("aten::mm", 3, "model.py:3", None), [OPS, "ops.count:aten::mm"]),
        (("aten::mm", 1, "model.py:3", None), [OPS, "ops.count:aten::mm"]),
        (("aten::mm", 3, "model.py:3", (2, 3)), [OPS]),
    ],
)
def test_differing_counts__more_fewer_and_wavering_in_the_head(head: Row, differs: list[str]) -> None:
    base = counted(("aten::mm", 2, "model.py:3", None))
    look = Look(*runs(base, counted(head)), Policy(), workload=WORKLOAD)
    assert look.differing_counts() == differs

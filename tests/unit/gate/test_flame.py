"""A flame graph of both sides against what the pairs say of the same call."""

from __future__ import annotations

from typing import Any

import pytest

from perfgate.document.comparison import Comparison
from perfgate.document.explanation import Cause, OperatorDelta
from perfgate.document.flame import (
    FLAME_KINDS,
    FlameCosts,
    FlameResult,
    FlameTree,
    WhyCounts,
    merged,
    node_totals,
    side_by_side,
)
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.judging.gate.explain.flame import with_pairs
from tests.fakes.documents import make_comparison, make_decision, make_operator_test
from tests.fakes.records import changed

MS = 1_000_000
# 5.00 ms a call and 12.2 % slower by the clock, as in the demo.
SLOWER = make_comparison(
    "latency.low", outcome="regressed", base=0.005, head=0.00561, delta=0.122, interval=(0.10, 0.14)
)


def one_side(python: float, mm: float, clone: float, *, calls: int = 10, clones: int = 0) -> FlameTree:
    """Return a side whose calls take so many milliseconds in Python and in two operators."""
    texts = ["thread 1", "model.py: forward", "aten::mm", "aten::clone"]
    return FlameTree(
        label="encoder-long",
        unit="call",
        texts=texts,
        requests=[],
        parent=[-1, 0, 1, 1],
        kind=[FLAME_KINDS.index(kind) for kind in ("thread", "python", "host_op", "host_op")],
        name=[0, 1, 2, 3],
        place=[-1, -1, -1, -1],
        shape=[-1] * 4,
        more_shapes=[0] * 4,
        head=FlameCosts(
            units=calls,
            node=[1, 2, 3],
            request=[-1] * 3,
            own=[round(own * calls * MS) for own in (python, mm, clone)],
            count=[calls, 8 * calls, clones * calls],
        ),
    )


def judged(base: FlameTree, head: FlameTree, *comparisons: Comparison, **fields: Any) -> FlameTree:
    decision = make_decision("FAIL", comparisons=list(comparisons), **fields)
    return with_pairs(side_by_side(base, head), decision, "encoder", "long")


def why(tree: FlameTree) -> WhyCounts | None:
    assert tree.result is not None
    return tree.result.by_counts


def totals(tree: FlameTree) -> tuple[float, float]:
    """Return the seconds of a call on both sides."""
    base, head = (sum(node.own for node in node_totals(tree, side)) for side in (tree.base, tree.head))
    return base, head


def times(**seconds: tuple[float, float]) -> list[OperatorDelta]:
    names = {"outside": OUTSIDE_OPERATORS, "mm": "aten::mm", "clone": "aten::clone"}
    return [
        OperatorDelta(workload="encoder", shape="long", op=names[name], base=base, head=head, seconds=head - base)
        for name, (base, head) in seconds.items()
    ]


def test_with_pairs__base_was_traced_while_the_machine_was_busy__counts_and_the_pairs_number() -> None:
    # Seen: a call of 5 ms that the clock finds 12 % slower, all frames of its graph faster, together by 17 ms.
    tree = judged(one_side(5, 20, 0), one_side(1.5, 6, 0.1, clones=8), SLOWER)
    assert tree.result == FlameResult(call=SLOWER, by_counts="sign")


@pytest.mark.parametrize(
    ("head_mm", "expected"), [(4.61, None), (4.49, "outside"), (4.51, None), (4.69, None), (4.71, "outside")]
)
def test_with_pairs__traced_difference__is_shown_where_the_interval_holds_it(head_mm: float, expected: str) -> None:
    assert why(judged(one_side(1, 4, 0), one_side(1, head_mm, 0), SLOWER)) == expected


def test_with_pairs__nothing_decided_and_traced_within_the_interval__times() -> None:
    unchanged = make_comparison("latency.low", base=0.005, head=0.005, delta=0.0, interval=(-0.01, 0.01))
    assert why(judged(one_side(1, 4, 0), one_side(1, 3.96, 0), unchanged)) is None
    assert why(judged(one_side(1, 4, 0), one_side(1, 3.94, 0), unchanged)) == "outside"


@pytest.mark.parametrize("fields", [{"outcome": "not_comparable"}, {"workload": "other"}, {"evidence": "turn"}])
def test_with_pairs__call_that_the_pairs_did_not_time__counts(fields: dict[str, Any]) -> None:
    other = make_comparison("latency.low", **{"base": 0.005, "head": 0.005, "interval": (-0.01, 0.01), **fields})
    tree = judged(one_side(1, 4, 0), one_side(1, 4, 0), other)
    assert tree.result == FlameResult(by_counts="unpaired")


def test_with_pairs__metric_that_moved__is_the_one_that_the_explanation_is_of() -> None:
    quiet = make_comparison("latency.low", base=0.005, head=0.005, delta=0.0, interval=(-0.01, 0.01))
    moved = make_comparison(
        "latency.p50", outcome="regressed", base=0.005, head=0.0056, delta=0.12, interval=(0.1, 0.14)
    )
    tree = judged(one_side(1, 4, 0), one_side(1, 4.6, 0), quiet, moved)
    assert tree.result == FlameResult(call=moved)


def test_with_pairs__times_of_the_pairs__are_the_frames_times_however_they_were_traced() -> None:
    traced = one_side(5, 20, 1, clones=8), one_side(2, 6, 0.1, clones=16)
    paired = times(mm=(0.0038, 0.0040), clone=(0.0001, 0.0003), outside=(0.0011, 0.00131))
    tree = judged(*traced, SLOWER, operator_times=paired)
    base, head = (node_totals(tree, side) for side in (tree.base, tree.head))
    assert [round(node.own * 1e9) for node in base] == [0, 1_100_000, 3_800_000, 100_000]
    assert [round(node.own * 1e9) for node in head] == [0, 1_310_000, 4_000_000, 300_000]
    assert [node.count for node in head] == [0, 1, 8, 16]
    assert totals(tree) == (pytest.approx(0.005), pytest.approx(0.00561))
    assert why(tree) is None


def test_with_pairs__times_of_the_pairs_point_the_other_way__counts() -> None:
    paired = times(mm=(0.0038, 0.0036), outside=(0.0011, 0.0011))
    assert why(judged(one_side(1, 4, 0), one_side(1, 4.6, 0), SLOWER, operator_times=paired)) == "sign"


def test_merged__several_recordings__one_call_of_all_their_calls() -> None:
    (costs,) = merged([one_side(1, 4, 0, calls=10), one_side(2, 8, 0, calls=30)]).sides
    assert (costs.units, costs.node) == (40, [1, 2, 3])
    assert [own / costs.units / MS for own in costs.own] == [1.75, 7.0, 0.0]
    assert [count / costs.units for count in costs.count] == [1.0, 8.0, 0.0]


def test_with_pairs__operators_that_the_decision_names_or_decided__are_marked_with_the_paired_difference() -> None:
    decision = make_decision(
        "FAIL",
        comparisons=[SLOWER],
        operator_times=times(mm=(0.004, 0.0038), clone=(0.0, 0.0004)),
        operator_tests=[
            make_operator_test("aten::clone", outcome="regressed"),
            make_operator_test(outcome="inconclusive"),
        ],
    )
    causes = [
        Cause(workload="encoder", shape=shape, op=op) for shape, op in (("long", "aten::clone"), ("short", "aten::mm"))
    ]
    decision = changed(decision, causes=causes)
    both = side_by_side(one_side(5, 20, 0), one_side(1.5, 6, 0.1, clones=8))
    tree = with_pairs(both, decision, "encoder", "long")
    assert tree.result is not None
    assert tree.result.by_counts == "sign"
    marks = [(tree.texts[mark.name], mark.named, mark.seconds) for mark in tree.result.marks]
    assert marks == [("aten::clone", True, 0.0004)]

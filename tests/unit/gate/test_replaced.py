"""Which operators took the place of others, one for one."""

from __future__ import annotations

import pytest

from perfgate.document.run import CounterSet, CounterSite, Side
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.operators import replaced_operators
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.unit.gate.builders import SHAPE, WORKLOAD

SIDES: tuple[Side, Side] = ("base", "head")
OPS = "counters.framework_ops"
Row = tuple[str, str | None, str, int]  # the line, its text, the operator and how often it runs


def replaced(base: list[Row], head: list[Row]) -> list[tuple[str, str, int, str | None]]:
    runs = []
    for side, rows in zip(SIDES, (base, head)):
        sites = [CounterSite(metric=OPS, name=op, count=count, line=line, code=code) for line, code, op, count in rows]
        values = {OPS: sum(site.count for site in sites)}
        counters = CounterSet(workload=WORKLOAD, shape=SHAPE, repeats=3, values=values, ops=[], sites=sites)
        runs.append(changed(make_run(side), counters=[counters]))
    return [(r.before, r.after, r.count, r.line) for r in replaced_operators(WorkTable(Evidence(*runs)).counted)]


MM: Row = ("model.py:3", "x @ w", "aten::mm", 2)


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        pytest.param(
            [MM, ("model.py:4", "self.act(x)", "aten::relu", 2)],
            [("model.py:5", "x @ w", "aten::mm", 2), ("model.py:6", "self.act(x)", "aten::silu", 2)],
            [("aten::relu", "aten::silu", 2, "model.py:6")],
            id="same text on another line",
        ),
        pytest.param(
            [("m.py:9", "up(x, mode='nearest') + b", op, 1) for op in ("aten::upsample_nearest2d", "aten::add")],
            [("m.py:9", "up(x, mode='bilinear') + b", op, 1) for op in ("aten::upsample_bilinear2d", "aten::add")],
            [("aten::upsample_nearest2d", "aten::upsample_bilinear2d", 1, "m.py:9")],
            id="edited line that runs another operator besides",
        ),
        pytest.param(
            [("m.py:9", "relu(x @ w)", "aten::mm", 1), ("m.py:9", "relu(x @ w)", "aten::relu", 1)],
            [("m.py:9", "h = x @ w", "aten::mm", 1), ("m.py:10", "h = silu(h)", "aten::silu", 1)],
            [("aten::relu", "aten::silu", 1, "m.py:10")],
            id="one line became two",
        ),
        pytest.param([MM], [MM], [], id="nothing changed"),
        pytest.param([MM], [("model.py:8", "x @ w", "aten::mm", 2)], [], id="moved"),
        pytest.param(
            [("m.py:9", "act(x)", "aten::relu", 1)], [("m.py:9", "act(x)", "aten::silu", 2)], [], id="not one for one"
        ),
        pytest.param([("m.py:9", "act(x)", "aten::relu", 1)], [], [], id="removed"),
        pytest.param([("a.py:9", "f(x)", "aten::relu", 1)], [("b.py:9", "f(x)", "aten::silu", 1)], [], id="other file"),
        pytest.param([("m.py:9", None, "aten::relu", 1)], [("m.py:9", None, "aten::silu", 1)], [], id="text unknown"),
    ],
)
def test_replaced_operators(base: list[Row], head: list[Row], expected: list[tuple[str, str, int, str | None]]) -> None:
    assert replaced(base, head) == expected

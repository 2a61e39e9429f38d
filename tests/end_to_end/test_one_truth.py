"""What a check says of a slower call on a machine that others use: one verdict, and nothing that contradicts it."""

from __future__ import annotations

import base64
import gzip
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_decision, read_run
from perfgate.document.flame import FlameTree, node_totals
from perfgate.measuring.counting.collect import read_calls
from tests.end_to_end.conftest import Clone, Perfgate

RELU = "return torch.relu(y)"
SLOWER = "for _ in range(12):\n            y = torch.relu(y) + 0\n        return torch.relu(y)"


@pytest.fixture
def load() -> Iterator[None]:
    """Use every CPU, in bursts that are longer than a pair's blocks, while the test runs."""
    burning = (
        "import time\n"
        "while True:\n"
        "    end = time.monotonic() + 0.25\n"
        "    while time.monotonic() < end: pass\n"
        "    time.sleep(0.5)"
    )
    with ExitStack() as stack:
        for _ in range(os.cpu_count() or 1):
            process = stack.enter_context(subprocess.Popen([sys.executable, "-c", burning]))
            stack.callback(process.kill)
        yield


def _flame(out: Path) -> dict[str, Any]:
    page = (out / "head" / "flame.html").read_text(encoding="utf-8")
    (data,) = re.findall(r'id="data">([A-Za-z0-9+/=]*)</script>', page)
    return dict(json.loads(gzip.decompress(base64.b64decode(data))))


def _change(tree: FlameTree) -> float:
    """Return by how many seconds the page's frames say that head takes longer."""
    base, head = (sum(node.own for node in node_totals(tree, side)) for side in (tree.base, tree.head))
    return head - base


def _times(decision: DecisionDocument) -> dict[str, float]:
    return {
        one.op: one.head - one.base
        for one in decision.explained.operators
        if one.base is not None and one.head is not None
    }


@pytest.mark.slow
@pytest.mark.usefixtures("load")
def test_check__slower_call_while_others_use_the_machine__flame_graph_and_operators_agree_with_the_verdict(
    perfgate: Perfgate, clone: Clone
) -> None:
    clone.commit("more work", model=(RELU, SLOWER))
    done = perfgate("check", "--base", "main", "--out", "out", "--steps", "4", cwd=clone.root)
    assert done.returncode == 1, done.stderr
    out = clone.root / "out"
    decision = read_decision(out / "decision.json")
    flame = _flame(out)
    (tree,) = (msgspec.convert(tree, FlameTree) for tree in flame["trees"])
    slower = [c for c in decision.comparisons if isinstance(c, Paired) and c.outcome == "regressed"]

    # What the page shows of the call is a comparison of the decision.
    page = (out / "head" / "flame.html").read_text(encoding="utf-8")
    assert flame["paired"] == [True]
    assert 'class="call"' in page
    assert tree.base is not None
    assert tree.head is not None
    assert tree.result is not None
    if slower and tree.result.by_counts is None:
        assert _change(tree) > 0
    assert ("coloured by how often" in page) == (tree.result.by_counts is not None)

    # Every number that says by how much an operator differs says the same.
    times = _times(decision)
    assert times["aten::relu"] > 0
    for explained in decision.explained.explanations:
        for part in explained.contributions:
            assert times[part.profiled] == pytest.approx(part.seconds, abs=2e-9)
    for operator in decision.explained.operators:
        assert operator.base is None or times[operator.op] == pytest.approx(operator.seconds, abs=2e-9)

    # Base and head were recorded in one pair, a moment apart, and the traces that are kept are of it.
    (base, head) = (read_calls(out / side / "trace-small-default.json.gz") for side in ("base", "head"))
    assert base.calls == head.calls
    starts = [int(trace.events.start.min()) for trace in (base, head)]
    assert abs(starts[0] - starts[1]) < 20e9
    assert tree.base.units == tree.head.units >= 2 * base.calls
    for side in ("base", "head"):
        run = read_run(out / side / "run.json")
        (kept,) = [artifact for artifact in run.artifacts if artifact.kind == "trace"]
        assert kept.bytes == (out / side / kept.path).stat().st_size
    assert not list(out.glob(".traces-*"))

"""Which causes are one: models counted before and after a change, and what the gate makes of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch

from perfgate.conductor.code.code_changes import code_changes
from perfgate.document.decision import Explanations, Policy
from perfgate.document.explanation import Cause
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.judging.gate.explain.causes import Attributed, attribute
from tests.fakes.documents import make_run
from tests.fakes.records import changed
from tests.unit.counting.planted import FIRST_LINE, count


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def attributed_to(folder: Path, base: str, head: str) -> Attributed:
    """Return the counters that changed, with their causes in the decision's order."""
    before, after = (
        changed(make_run(side), counters=count(folder / side, body.splitlines(), repeats=2))
        for side, body in (("base", base), ("head", head))
    )
    changes = code_changes(folder / "base", folder / "head", ["model.py"])
    after = msgspec.structs.replace(after, source=msgspec.structs.replace(after.source, changes=changes))
    work = WorkTable(Evidence(before, after))
    comparisons = compare_counters(work.counted, Policy())
    return attribute(comparisons, Explanations(), work.code, work.run_seconds)


def explained(folder: Path, base: str, head: str) -> list[Cause]:
    """Return the causes that explain a counter which got worse, in the decision's order."""
    attributed = attributed_to(folder, base, head)
    named = {c.cause for c in attributed.comparisons if c.cause is not None and c.outcome == "regressed"}
    return [attributed.causes[number] for number in sorted(named)]


def lines_of(causes: list[Cause]) -> list[set[int]]:
    """Return the lines of the body, counted from 1, of each group of causes."""
    groups: dict[int | None, set[int]] = defaultdict(set)
    for cause in causes:
        assert cause.line is not None
        groups[cause.group].add(int(cause.line.rpartition(":")[2]) - FIRST_LINE + 1)
    return list(groups.values())


ATTENTION = "h = torch.nn.functional.scaled_dot_product_attention(h[None], h[None], h[None])[0]"
WRITTEN_OUT = """outs = []
for head in range(2):
    scores = h[:, head * 8:][:, :8] @ h[:, head * 8:][:, :8].t().contiguous() / 2.8
    weights = scores.softmax(-1)
    outs.append(weights @ h[:, head * 8:][:, :8])
h = torch.cat(outs, -1)"""
ONE = {
    "attention written out": (ATTENTION, WRITTEN_OUT),
    "activation over three lines": (
        "h = torch.nn.functional.gelu(h)",
        "cubed = 0.044715 * h * h * h\ninner = (0.79788 * (h + cubed)).double().tanh()\nh = 0.5 * h * (1 + inner).float()",
    ),
    "there and back": ("h = h.relu()", "h = h.relu().double()\nh = h.t().contiguous().t()\nh = h.contiguous().float()"),
    "normalized by hand": (
        "h = torch.nn.functional.layer_norm(h, (16,))",
        "mean = h.mean(-1, keepdim=True)\nspread = (h - mean).clone().std(-1, keepdim=True)\nh = (h - mean) / spread",
    ),
    "one changed constant": (
        "n = 1\nfor _ in range(n):\n    h = h.double().float()\nh = h + 1\nfor _ in range(n):\n    h = h.t().contiguous().t()",
        "n = 3\nfor _ in range(n):\n    h = h.double().float()\nh = h + 1\nfor _ in range(n):\n    h = h.t().contiguous().t()",
    ),
    "one line that calls a function of two": (
        "def twice(t):\n    t = t.double().float()\n    return t.t().contiguous().t()\nh = h + 1",
        "def twice(t):\n    t = t.double().float()\n    return t.t().contiguous().t()\nh = twice(h + 1)",
    ),
}
SEPARATE = {
    "conversion beside a copy of something else": (
        "h = h + 1",
        "h = (h + 1).double().float()\nself.buffer.copy_(x)\nself.weight.t().contiguous()",
        [{1}, {2}, {3}],
    ),
    "a line between them did not change": (
        "h = h + 1\nh = h.relu()\nh = h + 2",
        "h = (h + 1).double().float()\nh = h.relu()\nh = (h + 2).t().contiguous().t()",
        [{1}, {3}],
    ),
    "two loops over the same turns": (
        "h = h + 1",
        "for turn in range(2):\n    h = (h + turn).double().float()\n    float(self.buffer[turn, 0])",
        [{2}, {3}],
    ),
    "lines that read the same input": (
        "h = h + 1",
        "a = x.double().float()\nb = x.t().contiguous()\nfloat(self.buffer[0, 0])\nh = h + 1",
        [{1}, {2}, {3}],
    ),
}


@pytest.mark.parametrize("name", ONE)
def test_groups__one_chain_of_a_change__one(name: str, tmp_path: Path) -> None:
    causes = explained(tmp_path, *ONE[name])
    assert len(lines_of(causes)) == 1, causes
    # Else nothing had to be joined.
    assert len({(cause.op, cause.line, cause.amount) for cause in causes}) > 1


@pytest.mark.parametrize("name", SEPARATE)
def test_groups__unrelated_changes_of_one_function__each_its_own(name: str, tmp_path: Path) -> None:
    base, head, expected = SEPARATE[name]
    found = lines_of(explained(tmp_path, base, head))
    assert all(len(group) == 1 for group in found), found
    assert len(found) > 1
    assert all(group in expected for group in found), found


def test_groups__code__is_the_text_of_the_line(tmp_path: Path) -> None:
    causes = explained(tmp_path, ATTENTION, WRITTEN_OUT)
    texts = dict(enumerate((line.strip() for line in WRITTEN_OUT.splitlines()), start=FIRST_LINE))
    for cause in causes:
        assert cause.line is not None
        assert cause.code == texts[int(cause.line.rpartition(":")[2])]
        assert cause.origin is not None
        assert cause.origin.code == cause.code


def test_attribute__blocks_that_no_operator_made__the_line_that_makes_them(tmp_path: Path) -> None:
    base = "m = torch.arange(16)[None, :] < torch.arange(8)[:, None]\nh = h * m"
    head = "m = torch.zeros(8, 16, dtype=torch.bool)\nfor n in range(8):\n    m[n, :n] = True\nh = h * m"
    attributed = attributed_to(tmp_path, base, head)
    (blocks,) = (c for c in attributed.comparisons if c.metric == "counters.allocations")
    assert blocks.cause is not None
    cause = attributed.causes[blocks.cause]
    assert (cause.op, cause.line) == ("aten::fill_", f"model.py:{FIRST_LINE + 2}")

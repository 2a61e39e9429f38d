"""What a call holds at its peak: the tensor and the line that a change added are what the gate names."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.history import History
from perfgate.document.run import CounterSet
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.counting.tally import AllocatedBlock, LiveBlocks
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.causes.comments import cause_of
from tests.fakes.documents import make_run
from tests.fakes.records import changed

BASE = """
import torch
from torch import nn

WIDTH, FEATURES, CACHE = 64, 128, 32

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up = nn.Linear(WIDTH, FEATURES)
        self.down = nn.Linear(FEATURES, WIDTH)

    def forward(self, rows):
        cache = torch.zeros(CACHE, WIDTH)
        for layer in self.layers:
            rows = layer(rows)
        for step in range(4):
            cache[step] = rows[step]
        hidden = self.up(rows)
        hidden = torch.relu(hidden)
        return self.down(hidden) + cache.sum()
"""

# What is planted, and the line and the tensor that the comment has to name.
PLANTS = {
    "hidden states kept in a list": (
        [
            ("        for layer in self.layers:", "        states = []\n        for layer in self.layers:"),
            ("            rows = layer(rows)", "            rows = layer(rows)\n            states.append(rows)"),
        ],
        "            rows = layer(rows)",
        "float32[32,64]",
    ),
    "a longer cache": (
        [("CACHE = 64, 128, 32", "CACHE = 64, 128, 512")],
        "        cache = torch.zeros",
        "float32[512,64]",
    ),
    "cat in the cache": (
        [
            ("        cache = torch.zeros(CACHE, WIDTH)", "        cache = torch.zeros(0, WIDTH)"),
            ("            cache[step] = rows[step]", "            cache = torch.cat([cache, rows.repeat(2, 1)])"),
        ],
        "            cache = torch.cat",
        "float32[256,64]",
    ),
    "a wider layer": (
        [("FEATURES, CACHE = 64, 128", "FEATURES, CACHE = 64, 512")],
        "        hidden = ",
        "float32[32,512]",
    ),
}


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", PLANTS)
def test_comment__planted_memory__row_names_the_tensor_and_its_line(name: str, tmp_path: Path) -> None:
    changes, starts, tensor = PLANTS[name]
    planted = BASE
    for old, new in changes:
        assert old in planted
        planted = planted.replace(old, new)
    lines = [f"model.py:{at}" for at, line in enumerate(planted.splitlines(), 1) if line.startswith(starts)]

    decision = judged(counted(BASE, tmp_path / "base"), counted(planted, tmp_path / "head"))

    assert decision.verdict == "FAIL"
    comment = render_comment(decision, CommentContext(marker="<!-- perfgate -->"))
    (row,) = [line for line in comment.splitlines() if line.startswith("| **FAIL** | peak memory")]
    cause = cause_of(row, comment)
    assert any(f"`{line}`" in cause for line in lines), comment
    assert f"held in `{tensor}`" in comment.partition("<details>")[0], comment
    title = next(line for line in comment.splitlines() if line.startswith("## "))
    assert any(f"`{line}`" in title for line in lines), comment


def test_count_calls__known_model__sites_add_up_to_the_counters(tmp_path: Path) -> None:
    counters = counted(BASE, tmp_path)

    for metric in ("memory.peak", "counters.allocations"):
        assert sum(site.count for site in counters.sites if site.metric == metric) == counters.values[metric]


def test_count_calls__result_written_into_an_older_tensor__takes_no_block(tmp_path: Path) -> None:
    written = torch.zeros(8)
    device = open_device("cpu")
    workload = Workload(
        build=lambda _: None, inputs=lambda batch, seed: torch.ones(8), call=lambda _, x: written.add_(x)
    )
    counters = count_calls(BoundWorkload("w", workload, device, seed=1, root=tmp_path), "default")

    assert [site for site in counters.sites if site.metric == "counters.allocations"] == []


class Storage:
    """A weak reference that a test expires."""

    gone = False

    def expired(self) -> bool:
        return self.gone


def test_live_blocks__freed_before_the_peak__not_among_what_was_held() -> None:
    live = LiveBlocks()
    blocks = [AllocatedBlock(Storage(), f"op{number}", None, size) for number, size in enumerate((100, 50, 80, 20))]
    for block in blocks[:2]:
        live.add(block)
    blocks[0].storage.gone = True
    for block in blocks[2:]:
        live.add(block)

    # 100 + 50 is the peak of the first two; 50 + 80 + 20 is no more than that.
    assert [block.op for block in live.at_peak] == ["op0", "op1"]
    live.add(AllocatedBlock(Storage(), "op4", None, 1))
    assert [block.op for block in live.at_peak] == ["op1", "op2", "op3", "op4"]


def counted(source: str, folder: Path) -> CounterSet:
    folder.mkdir(exist_ok=True)
    file = folder / "model.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"memory_{folder.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    device = open_device("cpu")
    workload = Workload(
        build=lambda _: module.Model().eval(),
        inputs=lambda batch, seed: torch.randn(batch, 64, generator=torch.Generator().manual_seed(seed)),
        batch=32,
    )
    return count_calls(BoundWorkload("encoder", workload, device, seed=1, root=folder), "default")


def judged(base: CounterSet, head: CounterSet) -> DecisionDocument:
    documents = [
        changed(make_run(side), counters=[counters], replicates=[], steps=[])
        for side, counters in (("base", base), ("head", head))
    ]
    return decide(*documents, policy=Policy(), history=History())

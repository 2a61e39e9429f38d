"""A model of a few written-out lines, counted as base and with one more line as head, and what the gate says to it."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path

import torch

from perfgate.document.comparison import Comparison
from perfgate.document.decision import Policy
from perfgate.document.run import CounterSet
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.work_table import WorkTable
from perfgate.measuring.counting.compiled import with_compilations
from perfgate.measuring.counting.counters import count_calls
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.documents import make_run
from tests.fakes.records import changed

HEADER = """import torch


class Model:
    def __init__(self):
        generator = torch.Generator().manual_seed(0)
        self.weight = torch.randn(16, 16, generator=generator)
        self.buffer = torch.zeros(8, 16)
        self.kept = []
        self.seen = self.result = None
        self.calls = 0

    def __call__(self, x):
        h = x
"""
FIRST_LINE = HEADER.count("\n") + 1
BODY = (
    "h = h @ self.weight",
    "h = h.relu()",
    "h = h + 1",
    "h = h.t().contiguous().t()",
    "h = h @ self.weight",
    "h = h.softmax(-1)",
)


def write_model(root: Path, body: Sequence[str]) -> type:
    """Write the model below ``root`` and return its class."""
    file = root / "model.py"
    root.mkdir(parents=True)
    file.write_text(HEADER + "".join(f"        {line}\n" for line in body) + "        return h\n")
    spec = importlib.util.spec_from_file_location(f"planted_{root.name}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model: type = module.Model
    return model


def count(root: Path, body: Sequence[str], *, compiled: bool = False, repeats: int = 3) -> list[CounterSet]:
    """Return the counters of the model for two shapes."""
    model = write_model(root, body)()
    call = torch.compile(model.__call__, backend="eager") if compiled else model
    workload = Workload(
        build=lambda device: call,
        inputs=lambda batch, seed, rows: torch.randn(rows, 16, generator=torch.Generator().manual_seed(seed)),
        shapes={"eight": {"rows": 8}} if not compiled else {"eight": {"rows": 8}, "four": {"rows": 4}},
    )
    device = open_device("cpu")
    bound = BoundWorkload("encoder", workload, device, seed=1, root=root)
    counters = [count_calls(bound, shape, repeats=repeats) for shape in bound.shapes]
    return with_compilations(bound, counters)


def judged(base: list[CounterSet], head: list[CounterSet]) -> list[Comparison]:
    """Return what the gate makes of the two, the comparisons of the first shape."""
    before = changed(make_run("base"), counters=base)
    after = changed(make_run("head"), counters=head)
    found = compare_counters(WorkTable(Evidence(before, after)).counted, Policy())
    return [comparison for comparison in found if comparison.shape == base[0].shape]


def regressed(comparisons: list[Comparison]) -> dict[str, str | None]:
    """Return metric -> line of the largest part, of what fails the gate."""
    return {
        found.metric: found.parts[0].line if found.parts else None
        for found in comparisons
        if found.gating and found.outcome == "regressed"
    }

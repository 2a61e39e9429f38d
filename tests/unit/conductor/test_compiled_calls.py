"""The speed-up by compiling on both sides in turns, on real workers; what the gate makes of it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from perfgate.conductor.sides.checklist.compiled_calls import CompiledSide, time_compiled_calls
from perfgate.conductor.sides.checklist.turns import FEWEST_TURNS, ChecklistSide
from perfgate.conductor.workers.checkout import Checkout
from perfgate.config import WorkloadReference, load_config
from perfgate.document.message import Message
from perfgate.document.run import REPEAT, StepResult, Value
from perfgate.flows.check.checklist import SPEEDUP, with_speedup
from tests.shared_bench import SharedBench

WORKLOAD = """
import torch

from perfgate import Workload

model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
plain = Workload(build=lambda device: model.eval(), inputs=lambda batch, seed: torch.ones(batch, 8), batch=8)
"""
STEP = StepResult(
    number=9,
    slug="graph",
    workload="plain",
    status="ok",
    values=[
        Value(metric="graph.breaks", value=0.0),
        Value(metric=SPEEDUP, value=None, reason=Message("graph.not-compiled-for-check"), labels={"shape": "default"}),
    ],
)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="inductor needs a C++ compiler")
def test_time_compiled_calls__both_sides__one_compilation_each_and_a_speedup_in_every_turn(
    shared_bench: SharedBench, tmp_path: Path
) -> None:
    (tmp_path / "model.py").write_text(WORKLOAD)
    (tmp_path / "perfgate.toml").write_text('project = "compiled"\nworkload = "model.py:plain"\n')
    checkout = Checkout(root=tmp_path, harness=tmp_path)
    sides = [ChecklistSide(name, checkout, tmp_path / name) for name in ("base", "head")]
    for side in sides:
        side.folder.mkdir()
    reference = WorkloadReference(name="plain", file="model.py", attribute="plain")
    with shared_bench.configured(load_config(tmp_path)) as bench:
        results = time_compiled_calls(bench, reference, sides, layout_seed=1)
    for result in results:
        assert result.reason is None
        assert result.cold_seconds is not None
        assert len(result.speedups) == FEWEST_TURNS
    assert [list(side.folder.iterdir()) for side in sides] == [[], []]


def test_with_speedup__turns_of_a_side__replace_the_missing_number() -> None:
    step = with_speedup(STEP, CompiledSide(cold_seconds=3.0, speedups=[1.5, 1.7, 1.6]), "default")
    speedups = {value.labels.get(REPEAT): value.value for value in step.values if value.metric == SPEEDUP}
    assert speedups == {None: 1.6, "1": 1.5, "2": 1.7, "3": 1.6}
    assert "graph.breaks" in {value.metric for value in step.values}


def test_with_speedup__side_that_does_not_compile__reason_in_its_place() -> None:
    reason = Message("graph.too-slow")
    step = with_speedup(STEP, CompiledSide(reason=reason), "default")
    (missing,) = [value for value in step.values if value.metric == SPEEDUP]
    assert (missing.value, missing.reason) == (None, reason)

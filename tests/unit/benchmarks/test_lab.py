"""The variance lab: its heads differ in text and in nothing they compute, and its bound on biases is the one it names."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.unit.benchmarks.conftest import GATE

sys.path.insert(0, str(GATE / "lab"))

import models
import workloads
from bias import largest_bias
from table import robust_sd

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("workload", models.SOURCES)
def test_variants__other_text__same_output(workload: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    outputs, texts = [], set()
    harness = workloads.write_harness(tmp_path / "harness", workload)
    for root in workloads.write_checkouts(tmp_path, workload, seed=3):
        with monkeypatch.context() as patch:
            patch.syspath_prepend(str(root))
            for name in ("model", "layers"):
                patch.delitem(sys.modules, name, raising=False)
            module = importlib.import_module("model")
            torch.manual_seed(1)
            model = module.make()
            with torch.inference_mode():
                outputs.append(model(_inputs(harness)))
        texts.add("".join(path.read_text() for path in sorted(root.glob("*.py"))))
    for name in ("model", "layers"):
        sys.modules.pop(name, None)
    assert len(texts) == workloads.VARIANTS + 1
    assert all(torch.equal(outputs[0], one) for one in outputs[1:])


def test_modules__same_seed__same_text() -> None:
    assert workloads.modules("tblock", 8, seed=7) == workloads.modules("tblock", 8, seed=7)
    assert workloads.modules("tblock", 8, seed=7) != workloads.modules("tblock", 8, seed=8)


def test_write_harness__twin__prelude_runs_before_the_model_is_imported(tmp_path: Path) -> None:
    folder = workloads.write_harness(tmp_path / "twin", "mlp", dead_functions=3, objects=5, seed=1)
    names: dict[str, object] = {}
    exec((folder / "prelude.py").read_text(), names)
    assert (folder / "workload.py").read_text().startswith("import prelude\n")
    assert len(names["kept"]) == 5
    assert sum(callable(one) for name, one in names.items() if name != "__builtins__") == 3


def test_largest_bias__hardly_noise__chi_square_of_eight() -> None:
    # The 5 % point of chi-square with 8 degrees of freedom is 2.733 (any table): eight biases of 1 % give sqrt(8 / 2.733) %.
    assert largest_bias(np.full(8, 0.01), np.full(8, 1e-6)) == pytest.approx(0.0171, abs=1e-4)
    assert largest_bias(np.zeros(8), np.full(8, 0.01)) == 0.0


def test_robust_sd__one_wild_value__ignored() -> None:
    assert robust_sd(np.array([-0.01, 0.0, 0.01, 5.0, -0.02])) == pytest.approx(1.4826 * 0.01)


def _inputs(harness):
    workload = runpy.run_path(str(harness / "workload.py"))["workload"]
    inputs = workload.inputs(workload.batch, 2, **list(workload.shapes.values())[-1])
    return workload.preprocess(inputs) if workload.preprocess else inputs

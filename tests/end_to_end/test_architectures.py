"""A run of main is kept whatever the model: what a compiler or another experiment makes of it is a finding."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Perfgate, make_clone

MODELS = Path(__file__).parents[1] / "data" / "workloads" / "architectures.py"
NAMES = ("encoder", "vit", "resnet", "unet", "lstm", "moe", "mamba", "gnn", "diffusion", "decoder")


def _repository(root: Path, name: str) -> Path:
    clone = make_clone(root)
    clone.git("checkout", "-q", "main")
    (root / "perf" / "models.py").write_text(MODELS.read_text())
    (root / "perfgate.toml").write_text(f'project = "architectures"\nworkload = "perf/models.py:{name}"\n')
    clone.commit("the model")
    return root


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_baseline_record__public_architecture__kept(perfgate: Perfgate, tmp_path: Path, name: str) -> None:
    root = _repository(tmp_path / "repository", name)

    recorded = perfgate("baseline", "record", "--quick", cwd=root)

    assert recorded.returncode == 0, recorded.stderr
    listed = perfgate("baseline", "list", cwd=root)
    assert listed.stdout.count("testbed") == 1


@pytest.mark.slow
def test_run__transformer_encoder_in_eval__compiler_fails_and_the_run_is_measured(
    perfgate: Perfgate, tmp_path: Path
) -> None:
    """Torch's compiler fails on this model of torch's own; where there is time for it, the step says so."""
    root = _repository(tmp_path / "repository", "encoder")

    done = perfgate("run", "--quick", "--steps", "8,9,13,14", cwd=root)

    assert done.returncode == 0, done.stdout + done.stderr
    run: dict[str, Any] = json.loads((root / "perfgate-out" / "run.json").read_text())
    assert [step["error"] for step in run["checklist"]["steps"] if step.get("error")] == []

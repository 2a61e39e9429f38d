"""Common models on the software NPU: inference and training steps give the values of the CPU, without its help."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.softnpu.checkout import OnNpu

HERE = Path(__file__).parent
PROGRAM = HERE / "models.py"
DEMO = HERE.parents[1] / "perfgate" / "demo"

# Read, not imported: this process has no software NPU, and torch would look for one.
NAMES = [
    ast.literal_eval(key)
    for node in ast.parse(PROGRAM.read_text()).body
    if isinstance(node, ast.AnnAssign) and node.target.id == "MODELS"
    for key in node.value.keys
]


@pytest.fixture(scope="module")
def outcomes(npu_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each model printed; one process for all, because torch_npu takes seconds to import."""
    result = subprocess.run(
        [sys.executable, str(PROGRAM), *NAMES],
        cwd=tmp_path_factory.mktemp("models"),
        env=npu_environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr
    return dict(line.split(": ", 1) for line in result.stdout.splitlines() if line.split(":")[0] in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_model__inference_and_training__values_of_the_cpu(name: str, outcomes: dict[str, str]) -> None:
    assert outcomes[name].startswith("inference "), outcomes[name]


def test_demo_model__on_npu__scores_of_the_cpu(on_npu: OnNpu) -> None:
    result = on_npu(
        f"""
import sys
sys.path[:0] = [{str(DEMO / "main")!r}, {str(DEMO / "main" / "perf")!r}]
from workload import ranker
torch.manual_seed(0)
model = ranker.build(torch.device("cpu"))
sessions = ranker.inputs(8, 1)
with torch.no_grad():
    expected = model(sessions)
    scores = model.npu()(sessions.npu())
ranker.check(scores, sessions)
assert torch.allclose(scores.cpu(), expected, atol=1e-4)
"""
    )
    assert result.returncode == 0, result.stderr

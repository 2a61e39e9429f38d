"""Steps 7, 8 and 14 on the real torch_npu: TransData with the line that asked for it, casts, and copies that rearrange."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import msgspec
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.checklist.steps import {{module}}
from perfgate.measuring.devices.registry import open_device
from tests.fakes.workloads import context_on
from tests.softnpu import npu_workloads

device = open_device("npu")
context = context_on(
    device, npu_workloads.{{workload}}, root=Path(npu_workloads.__file__).parent, artifacts=Path.cwd()
)
result, _ = run_step({{module}}.STEP, context)
Path(sys.argv[1]).write_bytes(msgspec.json.encode(result))
"""


@pytest.fixture
def step(npu_environment: dict[str, str], tmp_path: Path) -> Callable[[str, str], dict[str, Any]]:
    """Run one step on the software NPU, quickly, and return its result."""

    def run(module: str, workload: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(module=module, workload=workload), "result.json"],
            check=False, cwd=tmp_path, env=npu_environment, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        assert found.get("error") is None, found["error"]
        return found

    return run


def numbers(found: dict[str, Any], metric: str, label: str) -> dict[str, float]:
    """Return the values of a metric by one of their labels."""
    return {
        value["labels"][label]: value["value"]
        for value in found["values"]
        if value["metric"] == metric and label in value["labels"]
    }


def test_format__casts_to_a_private_format_and_back__pairs_and_line(step: Callable[[str, str], dict[str, Any]]) -> None:
    found = step("s07_format", "formats")

    assert numbers(found, "format.conversions", "pair") == {"ND -> FRACTAL_NZ": 1.0, "FRACTAL_NZ -> ND": 1.0}
    assert numbers(found, "format.boundaries", "shape") == {"default": 0}
    (finding,) = found["findings"]
    text = (Path(__file__).parent / "npu_workloads.py").read_text().splitlines()
    file, _, number = finding["evidence"]["line"].partition(":")
    assert (file, finding["evidence"]["op"]) == ("npu_workloads.py", "TransData")
    assert "npu_format_cast" in text[int(number) - 1]


def test_format__plain_model__zero_and_ok(step: Callable[[str, str], dict[str, Any]]) -> None:
    found = step("s07_format", "plain")

    assert (found["status"], numbers(found, "format.share", "shape")) == ("ok", {"default": 0.0})


def test_precision__autocast__kernels_in_half_and_casts_with_their_line(
    step: Callable[[str, str], dict[str, Any]],
) -> None:
    found = step("s08_precision", "autocast")

    assert numbers(found, "precision.low_share", "of") == {"flops": 1.0, "time": 1.0}
    # The input, two weights and two biases.
    assert numbers(found, "precision.casts", "shape") == {"default": 5.0}
    (casts,) = (finding for finding in found["findings"] if finding["rule"] == "precision.cast_share")
    assert casts["evidence"]["change"] == "FLOAT -> FLOAT16"
    assert casts["evidence"]["line"].startswith("npu_workloads.py:")


def test_contiguity__plain_model__nothing_rearranged(step: Callable[[str, str], dict[str, Any]]) -> None:
    found = step("s14_contiguity", "plain")

    assert (found["status"], numbers(found, "contiguity.kernel_share", "shape")) == ("ok", {"default": 0.0})

"""Steps 16, 17 and 19 on the real torch_npu: collectives over HCCL, the caching allocator, and sensors through npu-smi."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.wording import worded

ROOT = Path(__file__).parents[2]
PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
import msgspec
import torch
from perfgate.measuring.checklist.runner import run_step
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Workload
from perfgate.measuring.checklist.steps import {{module}}
from tests.fakes.workloads import context_on

KEPT = []

def leaky(model, inputs):
    outputs = model(inputs)
    KEPT.append(outputs.relu())
    return outputs

def plain(model, inputs):
    return model(inputs)

workload = Workload(
    build=lambda device: torch.nn.Linear(64, 64).to(device),
    inputs=lambda batch, seed: torch.randn(batch, 64),
    call={{call}},
    batch=8,
)
device = open_device("npu")
context = context_on(
    device, workload, limits={{limits}}, root=Path(sys.argv[1]).parent, artifacts=Path.cwd()
)
result, _ = run_step({{module}}.STEP, context)
Path(sys.argv[2]).write_bytes(msgspec.json.encode(result))
"""


@pytest.fixture
def step(npu_environment: dict[str, str], tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """Run one step on the software NPU, quickly, and return its result."""

    def run(module: str, *, call: str = "plain", limits: str = "{}", **switches: str) -> dict[str, Any]:
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.format(module=module, call=call, limits=limits))
        done = subprocess.run(
            [sys.executable, str(program), str(program), "result.json"],
            check=False, cwd=tmp_path, env={**npu_environment, **switches}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, Any] = json.loads((tmp_path / "result.json").read_text())
        assert found["status"] != "error", found
        return found

    return run


def numbers(result: dict[str, Any]) -> dict[str, Any]:
    return {value["metric"]: value["value"] for value in result["values"]}


def rules(result: dict[str, Any]) -> dict[str, str]:
    return {finding["rule"]: finding["severity"] for finding in result["findings"]}


def test_communication__two_npus__collectives_over_hccl(step: Callable[..., dict[str, Any]]) -> None:
    result = step("s16_communication", SOFTNPU_DEVICES="2", limits="{'communication.peak': 1e15}")

    assert "communication.wrong_result" not in rules(result)
    operations = {value["labels"]["op"] for value in result["values"] if value["metric"] == "communication.time"}
    assert operations == {"all_reduce", "all_gather", "reduce_scatter"}
    assert numbers(result)["communication.start_up"] > 0
    assert rules(result)["communication.peak_share"] == "severe"


def test_communication__one_npu__not_applicable(step: Callable[..., dict[str, Any]]) -> None:
    result = step("s16_communication")

    assert result["status"] == "not_applicable"
    assert "sees one device of kind npu" in worded(result["reason"])


def test_memory__calls_that_keep_nothing__the_allocators_statistics(step: Callable[..., dict[str, Any]]) -> None:
    result = step("s17_memory")

    found = numbers(result)
    # Two megabytes are the smallest segment of the allocator.
    assert found["memory.reserved"] >= 2 << 20
    assert 0 < found["memory.allocated"] <= found["memory.reserved"]
    assert found["memory.growth"] == 0
    assert found["memory.segments"] == 0
    assert "memory.growth" not in rules(result)


def test_memory__outputs_kept__growth_with_operator_and_line(step: Callable[..., dict[str, Any]]) -> None:
    result = step("s17_memory", call="leaky")

    # 8 x 64 floats in blocks of 512 bytes; torch_npu asks for 32 bytes more than a tensor has, which takes a fifth.
    assert numbers(result)["memory.growth"] == 5 * 512
    (finding,) = (one for one in result["findings"] if one["rule"] == "memory.growth")
    assert finding["evidence"]["op"] == "aten::relu"
    line = PROGRAM.splitlines().index("    KEPT.append(outputs.relu())") + 1
    assert finding["evidence"]["line"] == f"program.py:{line}"


def test_thermal__card_below_its_clock_while_it_works__attention(step: Callable[..., dict[str, Any]]) -> None:
    result = step(
        "s19_thermal", SOFTNPU_SMI_FREQUENCY="1200", SOFTNPU_SMI_UTILIZATION="95", SOFTNPU_SMI_TEMPERATURE="98"
    )

    found = numbers(result)
    assert rules(result)["thermal.throttled"] == "warning"
    assert found["thermal.throttled"] == 1
    assert found["thermal.temperature"] == 98
    # npu-smi tells 94.8 W throughout.
    assert found["thermal.power"] == pytest.approx(94.8)
    assert found["thermal.energy"] > 0
    assert result["status"] == "attention"


def test_thermal__card_at_its_clock__not_throttled(step: Callable[..., dict[str, Any]]) -> None:
    result = step("s19_thermal", SOFTNPU_SMI_UTILIZATION="95")

    assert numbers(result)["thermal.throttled"] == 0
    assert numbers(result)["thermal.clock"] == 1
    assert "thermal.throttled" not in rules(result)

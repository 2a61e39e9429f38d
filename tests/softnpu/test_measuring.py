"""perfgate's own measuring on the real torch_npu: blocks, counters and traces of what users do on an NPU, and its refusals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.wording import worded
from tests.softnpu.checkout import OnNpu

ROOT = Path(__file__).parents[2]
IMPORTS = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.registry import open_device
"""
MEASURE = """
import json
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.counting.collect import read_calls
from perfgate.measuring.counting.counters import count_calls
from perfgate.trace import read
from perfgate.measuring.counting.counters import kernel_counters
from perfgate.trace.model.spans import work_by_span
from perfgate.measuring.workload.bound import BoundWorkload
from tests.softnpu import npu_workloads

device = open_device("npu")
found, recordings = {}, {}
for name in ("plain", "autocast", "formats", "ranges", "waiting", "graph"):
    root = Path(npu_workloads.__file__).parent
    bound = BoundWorkload(name, getattr(npu_workloads, name), device, seed=1, root=root)
    block = BlockRecorder(bound).record("default", calls=5, quad=0, sequence=0)
    counted = count_calls(bound, "default")
    recordings[name] = device.record_raw(bound.caller("default"), calls=4, folder=Path.cwd())
    found[name] = {
        "timed": bool((block.calls.wall > 0).all() and (block.calls.cpu > 0).all()),
        "host": counted.values,
        "unstable": counted.unstable,
    }
assert device.analyse_raw(Path.cwd(), list(recordings.values())) == list(recordings.values())
for name, recording in recordings.items():
    trace = read_calls(recording)
    works = work_by_span(trace.events, trace.spans())
    assert len(works) == 4 and all(work == works[0] for work in works), works
    [timeline] = read(recording).timelines
    found[name]["device"] = kernel_counters(works[0])
    found[name]["products"] = sorted({kernel.inputs.dtypes[0] for kernel in timeline.kernels if "MatMul" in kernel.type})
Path(sys.argv[1]).write_text(json.dumps(found))
"""


@pytest.fixture(scope="module")
def measured(npu_environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Measure every workload in one process, all recordings analysed in one go."""
    folder = tmp_path_factory.mktemp("measured")
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS + MEASURE, "found.json"],
        check=False, cwd=folder, env=npu_environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "found.json").read_text())


@pytest.mark.parametrize("name", ["plain", "autocast", "formats", "ranges", "waiting", "graph"])
def test_measuring__each_workload__timed_and_counted_alike_each_time(measured: dict[str, Any], name: str) -> None:
    assert measured[name]["timed"]
    assert measured[name]["unstable"] == []
    assert measured[name]["device"]["counters.kernels"] >= 3


def test_measuring__autocast__half_precision_on_host_and_device(measured: dict[str, Any]) -> None:
    assert measured["plain"]["host"]["counters.low_precision_ops"] == 0
    assert measured["plain"]["products"] == ["FLOAT"]
    assert measured["autocast"]["host"]["counters.low_precision_ops"] >= 3
    assert measured["autocast"]["products"] == ["FLOAT16"]


def test_measuring__private_format_and_back__two_conversions(measured: dict[str, Any]) -> None:
    assert measured["plain"]["device"]["counters.format_conversions"] == 0
    assert measured["formats"]["device"]["counters.format_conversions"] == 2
    assert measured["formats"]["device"]["counters.kernels"] == measured["plain"]["device"]["counters.kernels"] + 2


def test_measuring__ranges_of_mstx__count_as_nothing(measured: dict[str, Any]) -> None:
    assert measured["ranges"]["host"] == measured["plain"]["host"]
    assert measured["ranges"]["device"] == measured["plain"]["device"]


def test_measuring__call_that_waits__two_waits_and_three_values_for_python(measured: dict[str, Any]) -> None:
    assert measured["plain"]["host"]["counters.syncs"] == 0
    assert measured["waiting"]["host"]["counters.syncs"] == 5


def test_measuring__replayed_graph__one_operator_on_the_host_and_every_kernel_on_the_device(
    measured: dict[str, Any],
) -> None:
    # The copy into the graph's input is all that the host dispatches.
    assert measured["graph"]["host"]["counters.framework_ops"] == 1
    assert measured["graph"]["host"]["counters.allocations"] == 0
    assert measured["graph"]["device"]["counters.kernels"] == measured["plain"]["device"]["counters.kernels"] + 1


def test_open_device__every_operator_waits__refused(on_npu: OnNpu) -> None:
    found = on_npu(IMPORTS + 'open_device("npu")', ASCEND_LAUNCH_BLOCKING="1")

    assert found.returncode == 1
    assert "unset ASCEND_LAUNCH_BLOCKING" in found.stderr


def test_open_device__no_such_npu__says_which_there_are(on_npu: OnNpu) -> None:
    found = on_npu(IMPORTS + 'open_device("npu:5")', SOFTNPU_DEVICES="2")

    assert found.returncode == 1
    assert "npu:5 does not exist, torch_npu sees 2; write npu:0 to npu:1" in found.stderr


def test_open_device__no_cann__says_what_the_linker_misses(npu_environment: dict[str, str], tmp_path: Path) -> None:
    environment = {**npu_environment, "LD_LIBRARY_PATH": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    found = subprocess.run(
        [sys.executable, "-c", IMPORTS + 'open_device("npu")'],
        check=False, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600,
    )  # fmt: skip

    assert found.returncode == 1
    assert "torch_npu cannot be imported: " in found.stderr
    assert "libhccl.so" in found.stderr


def test_record_trace__no_msprof__says_so_before_anything_is_recorded(
    on_npu: OnNpu, npu_environment: dict[str, str], tmp_path: Path
) -> None:
    # Only what holds the interpreter stays on the PATH.
    program = IMPORTS + 'open_device("npu").record_trace(lambda: None, calls=1, folder=Path.cwd(), name="trace")'
    found = on_npu(program, PATH=str(Path(sys.executable).parent))

    assert found.returncode == 1
    assert "msprof is not on PATH" in found.stderr
    assert [path.name for path in tmp_path.iterdir() if path.name != "fusion_result.json"] == []


def test_out_of_memory__told_from_other_errors(on_npu: OnNpu) -> None:
    program = """
device = open_device("npu")
try:
    torch.empty(1 << 34, device=device.handle())
except RuntimeError as error:
    assert device.is_out_of_memory(error), error
else:
    raise SystemExit("it fitted")
"""
    found = on_npu(IMPORTS + program)

    assert found.returncode == 0, found.stderr


def test_telemetry__npu_smi__temperature_and_clock(on_npu: OnNpu) -> None:
    found = on_npu(IMPORTS + 'print(open_device("npu").telemetry())')

    assert found.returncode == 0, found.stderr
    assert "DeviceState(temperature=" in found.stdout
    assert "temperature=None" not in found.stdout


STEPS = '''
"""The first call of a process fails once, in whichever step comes first; lgamma has no kernel on the device."""

import os
from pathlib import Path

import torch

from perfgate import Workload


def build(device):
    return torch.nn.Linear(32, 32).eval().to(device)


def inputs(batch, seed):
    return torch.randn(batch, 32, generator=torch.Generator().manual_seed(seed))


def call_fallback(model, x):
    return torch.lgamma(model(x).abs() + 1)


def call_failing(model, x):
    failed = Path(os.environ["HOME"], "failed once")
    if not failed.exists():
        failed.touch()
        os.environ["SOFTNPU_FAIL"] = "*"
    return model(x).relu()


fallback = Workload(build=build, inputs=inputs, batch=4, call=call_fallback)
failing = Workload(build=build, inputs=inputs, batch=4, call=call_failing)
'''


def run_checklist(folder: Path, environment: dict[str, str], workload: str, steps: str) -> dict:
    (folder / "workload.py").write_text(STEPS)
    (folder / "perfgate.toml").write_text(f'project = "npu"\ndevice = "npu"\nworkload = "workload.py:{workload}"\n')
    command = [sys.executable, "-m", "perfgate", "run", "--quick", "--steps", steps, "--out", "out", "-C", str(folder)]
    lock = os.environ.get("PERFGATE_LOCK", str(folder / "lock"))
    # In CI a workload is not tried first, so that a document says what fails.
    around = {**environment, "PERFGATE_LOCK": lock, "CI": "true"}
    done = subprocess.run(command, check=False, cwd=folder, env=around, capture_output=True, text=True, timeout=600)
    written = folder / "out" / "run.json"
    assert written.is_file(), done.stdout + done.stderr
    return json.loads(written.read_text())


def test_checklist__operator_without_a_kernel__counted_and_found_with_its_line(
    npu_environment: dict[str, str], tmp_path: Path
) -> None:
    run = run_checklist(tmp_path, npu_environment, "fallback", "4")

    [step] = run["checklist"]["steps"]
    [finding] = [finding for finding in step["findings"] if finding["rule"] == "ops.fallback"]
    line = STEPS[: STEPS.index("return torch.lgamma")].count("\n") + 1
    assert finding["evidence"] == {"op": "aten::lgamma", "calls": 1, "shape": "default", "line": f"workload.py:{line}"}
    assert run["checklist"]["counters"][0]["values"]["counters.fallbacks"] == 1


def test_checklist__operator_fails_in_one_step__error_there_and_the_next_is_clean(
    npu_environment: dict[str, str], tmp_path: Path
) -> None:
    run = run_checklist(tmp_path, npu_environment, "failing", "1,2")

    first, second = run["checklist"]["steps"]
    assert (first["number"], first["status"]) == (1, "error")
    assert "507015" in worded(first["reason"])
    assert (second["number"], second["status"] in ("ok", "attention")) == (2, True), second
    assert [result["status"] for result in run["checklist"]["correctness"]] == ["not_checked"]

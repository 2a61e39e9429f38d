"""What lets sides stay on the card: forks after a build on the host, weights that are parked, the busy time of kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.softnpu.checkout import PROJECT, OnNpu, Project

IMPORT = "import torch\nfrom torch import nn"
# Builds on the host, and forks two processes that open the NPU at the same time. Each computes, waits for the other, and
# computes again. Argument: the project.
FORKED = """
import os
import sys

from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.host_build import build_on_host
from perfgate.protocol import LoadRequest

root = sys.argv[1]
request = LoadRequest(
    name="model", file=root + "/perf/workload.py", attribute="model", root=root, python_path=["."], device="npu",
    seed=0, threads=1,
)
built = build_on_host(request)
x = built.workload.inputs(16, 1)
with torch.inference_mode():
    expected = built.model(x)

def work(arrived, other):
    device = open_device("npu")
    model = device.place(built.model)
    for round in range(2):
        with torch.inference_mode():
            output = device.to_host(model(device.to_device(x)))
        torch.testing.assert_close(output, expected, rtol=1e-3, atol=1e-3)
        if round == 0:
            os.write(arrived, b"1")
            assert os.read(other, 1) == b"1"

pipes = [os.pipe(), os.pipe()]
children = []
for index in range(2):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work(pipes[index][1], pipes[1 - index][0])
            code = 0
        finally:
            os._exit(code)
    children.append(child)
assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [0, 0]
"""
PARKED = """
from perfgate.measuring.devices.registry import open_device

torch.set_grad_enabled(False)  # a graph would keep the weights
device = open_device("npu")
model = torch.nn.Linear(4096, 4096, bias=False).to(device.handle())
x = device.to_device(torch.ones(1, 4096))
expected = device.to_host(model(x))
loaded, free = device.memory_statistics().allocated, device.free_memory().free
device.park(model)
assert model.weight.device.type == "cpu" and model.weight.is_pinned()
assert loaded - device.memory_statistics().allocated >= 4096 * 4096 * 4
assert device.free_memory().free - free >= 4096 * 4096 * 4
device.unpark(model)
torch.testing.assert_close(device.to_host(model(x)), expected)
"""
# Of every operator on the device, in microseconds: more than it takes itself.
DELAY = 2000
BUSY = """
import json
import os
import sys
from pathlib import Path

from torch import nn

os.environ["SOFTNPU_DELAY_US"] = "*=3000,aclnnRelu=5000"
from perfgate.measuring.counting.profile import recorded_calls
from perfgate.measuring.devices.registry import open_device

device = open_device("npu")
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64)).to(device.handle())
x = torch.randn(16, 64).to(device.handle())
model(x)
device.synchronize()
recording = device.record_raw(lambda: model(x), calls=4, folder=Path.cwd())
(calls,) = recorded_calls(device, Path.cwd(), [recording]).values()
rows = {row.name: [row.count, row.ns] for row in calls.kernels.rows}
Path(sys.argv[1]).write_text(json.dumps([calls.kernels.calls, calls.kernels.busy_ns, rows]))
"""


def delayed(microseconds: int) -> str:
    setting = f'os.environ["SOFTNPU_DELAY_US"] = "*={DELAY},aclnnRelu={microseconds}"'
    return f"import os\n\n{IMPORT}\n\n{setting}"


def test_build_on_host__two_forks_on_one_npu__both_stay_and_compute_what_the_host_does(on_npu: OnNpu) -> None:
    done = on_npu(FORKED, str(PROJECT))
    assert done.returncode == 0, done.stdout + done.stderr


def test_park__weights_of_64_mib__pinned_on_the_host_and_their_memory_given_back(on_npu: OnNpu) -> None:
    done = on_npu(PARKED)
    assert done.returncode == 0, done.stdout + done.stderr


def test_recorded_calls__planted_durations__their_sum_is_the_busy_time(on_npu: OnNpu, tmp_path: Path) -> None:
    done = on_npu(BUSY, str(tmp_path / "busy.json"), SOFTNPU_EXACT="1")
    assert done.returncode == 0, done.stdout + done.stderr
    calls, busy, rows = json.loads((tmp_path / "busy.json").read_text())
    assert calls == [4]
    assert rows["Relu"] == [1, pytest.approx(5e6, rel=1e-3)]
    others = sum(count for name, (count, _) in rows.items() if name != "Relu")
    assert others >= 2
    assert busy == [pytest.approx(4 * (5e6 + others * 3e6), rel=1e-3)]


def test_check__all_kernels_together_a_percent_longer__fails_by_busy_time_and_names_the_kernel(
    project: Project,
) -> None:
    project.git("checkout", "-q", "main")
    project.commit("kernels of two milliseconds", (IMPORT, delayed(DELAY)))
    project.git("checkout", "-q", "-B", "feature")
    # Five kernels of equal length: a twentieth of one is a hundredth of all.
    project.commit("a slower activation", (f"aclnnRelu={DELAY}", f"aclnnRelu={DELAY + DELAY // 20}"))
    _, decision, comment = project.check(SOFTNPU_EXACT="1")
    assert decision["verdict"] == "FAIL", comment
    (busy,) = [row for row in decision["comparisons"] if row["metric"] == "device.busy"]
    assert busy["outcome"] == "regressed"
    assert busy["delta"] == pytest.approx(0.01, abs=0.002)
    assert decision["explained"]["causes"][busy["cause"]]["op"] == "Relu"

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.errors import MeasuringError
from perfgate.measuring.counting.profile import OperatorProfile, recorded_calls, typical_times
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice
from tests.fakes.workloads import FakeKernel, fake_workload
from tests.unit.counting.models import MODELS

US = 1000


def on_cpu(workload: Workload) -> OperatorProfile:
    device = open_device("cpu")
    return OperatorProfile(BoundWorkload("real", workload, device, seed=1))


def test_typical_times__as_many_events_in_every_call__lower_quartile_of_each_event() -> None:
    calls = [{"aten::mm": [10.0, 90.0]}, {"aten::mm": [12.0, 20.0]}, {"aten::mm": [14.0, 30.0]}, {"aten::mm": [80.0, 25.0]},
             {"aten::mm": [16.0, 35.0]}]  # fmt: skip
    # Sorted: 10 12 14 16 80 and 20 25 30 35 90; the second of five is the lower quartile.
    assert typical_times(calls) == {"aten::mm": pytest.approx(37e-9)}


def test_typical_times__calls_with_different_numbers_of_events__lower_quartile_of_the_sums() -> None:
    calls = [{"aten::mm": [10.0]}, {"aten::mm": [10.0, 10.0]}, {}, {"aten::mm": [30.0]}, {"aten::mm": [40.0]}]
    assert typical_times(calls) == {"aten::mm": pytest.approx(10e-9)}


def test_operator_profile__device_with_a_timeline__time_of_its_kernels() -> None:
    # The fourth softmax of all is slow: the fake device says so to the nanosecond.
    device = FakeDevice(launch_ns=500, kernel_times={"aten::softmax": [30 * US, 30 * US, 30 * US, 900 * US, 30 * US]})
    workload = fake_workload(
        FakeKernel("aten::mm", 100 * US), FakeKernel("aten::softmax", 0), FakeKernel("aten::mm", 50 * US)
    )
    profile = OperatorProfile(BoundWorkload("fake", workload, device, seed=1))
    for _ in range(4):
        profile.run("default", calls=3)

    assert profile.typical_times() == {
        # 0.5 us before the device has its first kernel.
        "default": {
            "mm_kernel": pytest.approx(150e-6),
            "softmax_kernel": pytest.approx(30e-6),
            OUTSIDE_OPERATORS: pytest.approx(0.5e-6),
        }
    }


def test_recorded_calls__recordings_left_behind__each_by_itself_and_the_incomplete_left_out(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=500, kernel_times={"aten::softmax": [30 * US, 30 * US, 900 * US, 30 * US]})
    workload = fake_workload(FakeKernel("aten::mm", 100 * US), FakeKernel("aten::softmax", 0))
    profile = OperatorProfile(BoundWorkload("fake", workload, device, seed=1))
    first, second = (profile.leave("default", calls=3, folder=tmp_path) for _ in range(2))
    elsewhere = tmp_path / "elsewhere" / "lost"

    recorded = recorded_calls(device, tmp_path, [first, second, elsewhere])

    assert {recording: calls.operators for recording, calls in recorded.items()} == {
        first: {
            "mm_kernel": pytest.approx(100e-6),
            "softmax_kernel": pytest.approx(30e-6),
            OUTSIDE_OPERATORS: pytest.approx(0.5e-6),
        },
        second: {
            "mm_kernel": pytest.approx(100e-6),
            "softmax_kernel": pytest.approx(30e-6),
            OUTSIDE_OPERATORS: pytest.approx(0.5e-6),
        },
    }
    assert profile.typical_times() == {}
    # Three calls each; one of the first recording's was slow.
    assert [calls.kernels.busy_ns for calls in recorded.values()] == [[1_260 * US], [390 * US]]
    assert [calls.kernels.calls for calls in recorded.values()] == [[3], [3]]
    assert [row.name for row in recorded[second].kernels.rows] == ["mm_kernel", "softmax_kernel"]
    assert len({work for calls in recorded.values() for work in calls.kernels.work}) == 1


class _DroppingDevice(FakeDevice):
    """Its profiler loses a call."""

    def record_trace(self, call: Callable[[], Any], *, calls: int, folder: Path, name: str) -> Path:
        return super().record_trace(call, calls=calls - 1, folder=folder, name=name)


def test_operator_profile__device_whose_trace_drops_calls__error() -> None:
    device = _DroppingDevice()
    workload = fake_workload(FakeKernel("aten::mm", 10 * US))
    profile = OperatorProfile(BoundWorkload("fake", workload, device, seed=1))

    with pytest.raises(MeasuringError, match="the trace holds 2 of 3 calls"):
        profile.run("default", calls=3)


def test_operator_profile__shapes__each_has_its_own_operators() -> None:
    def inputs(batch: int, seed: int, *, width: int) -> torch.Tensor:
        return torch.ones(batch, width)

    workload = Workload(
        build=lambda device: lambda x: x.tanh() if x.shape[1] > 8 else x.exp(),
        inputs=inputs,
        shapes={"narrow": {"width": 4}, "wide": {"width": 16}},
    )
    profile = on_cpu(workload)
    assert profile.typical_times() == {}
    profile.run("narrow", calls=3)
    assert profile.typical_times().keys() == {"narrow"}
    profile.run("wide", calls=3)

    times = profile.typical_times()
    assert times["narrow"].keys() == {"aten::exp", OUTSIDE_OPERATORS}
    assert times["wide"].keys() == {"aten::tanh", OUTSIDE_OPERATORS}


def test_operator_profile__real_model__self_time_of_its_operators_and_no_span_of_the_user() -> None:
    def call(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.profiler.record_function("the user's own span"):
            return model(x)

    workload = Workload(
        build=lambda device: torch.nn.Linear(512, 512), inputs=lambda batch, seed: torch.ones(256, 512), call=call
    )
    profile = on_cpu(workload)
    for _ in range(3):
        profile.run("default", calls=3)
    (times,) = profile.typical_times().values()

    # Views are kept, as in the operator table: their self time is what the framework itself costs.
    assert {"aten::linear", "aten::t", "aten::addmm"} <= times.keys()
    assert all(name.startswith("aten::") for name in times.keys() - {OUTSIDE_OPERATORS})
    # 67 million multiplications; linear only calls addmm, and its self time is what that takes.
    assert times["aten::addmm"] > times["aten::linear"] > 0


def test_operator_profile__training__operators_of_the_backward_thread_too() -> None:
    profile = on_cpu(MODELS["train"])
    profile.run("default", calls=3)
    (times,) = profile.typical_times().values()

    assert {"aten::addmm", "aten::mm", "aten::threshold_backward"} <= times.keys()
    assert all(time > 0 for name, time in times.items() if name.endswith("mm"))


def test_operator_profile__host_code_between_operators__is_the_time_outside_them() -> None:
    def call(model: object, x: torch.Tensor) -> torch.Tensor:
        until = time.perf_counter() + 3e-3
        while time.perf_counter() < until:
            pass
        return x + 1

    profile = on_cpu(Workload(build=lambda device: 0, inputs=lambda batch, seed: torch.ones(2), call=call))
    profile.run("default", calls=3)
    assert profile.typical_times()["default"][OUTSIDE_OPERATORS] > 3e-3


def test_operator_profile__call_fails__its_error_and_the_profiler_is_off() -> None:
    def call(model: object, x: torch.Tensor) -> torch.Tensor:
        if torch.autograd._profiler_enabled():
            raise ValueError("from the workload")
        return x

    profile = on_cpu(Workload(build=lambda device: 0, inputs=lambda batch, seed: torch.ones(2), call=call))
    with pytest.raises(ValueError, match="from the workload"):
        profile.run("default", calls=3)

    assert not torch.autograd._profiler_enabled()
    assert profile.typical_times() == {}

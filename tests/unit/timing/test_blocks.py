"""Interleaved blocks: what is recorded, what is not, and the warm-up before the first of them."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from perfgate.document.samples import unpack
from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.timing.warm_up import warm_up
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice, FakeTensor, KernelTime
from tests.fakes.workloads import FakeKernel, FakeModel, curve

MS = 1_000_000


def _bound(device: FakeDevice, workload: Workload) -> BoundWorkload:
    return BoundWorkload("fake", workload, device, seed=1)


def test_run_block__first_call_slow__executed_but_not_recorded() -> None:
    device = FakeDevice(kernel_times={"mm": [90 * MS, 2 * MS]}, launch_ns=1000)
    block = run_block(lambda: device.launch("mm"), device, calls=3)
    assert block.calls.wall.tolist() == [2_001_000, 2_001_000, 2_001_000]
    assert device.launches == {"mm": 4}


def test_run_block__device_with_queue__second_column_is_device_time() -> None:
    device = FakeDevice(launch_ns=1000)

    def call() -> None:
        device.launch("mm", 2 * MS)
        device.synchronize()
        device.host_works(5 * MS)

    block = run_block(call, device, calls=2)
    assert block.calls.wall.tolist() == [7_001_000, 7_001_000]
    assert block.calls.end_ns - block.calls.start_ns == 14_002_000


def test_run_block__device_without_queue__second_column_is_cpu_time() -> None:
    device = FakeDevice(kernel_times={"mm": [MS, 2 * MS, 3 * MS]}, capabilities=frozenset())
    block = run_block(lambda: device.launch("mm"), device, calls=2)
    assert block.calls.cpu.tolist() == [2 * MS, 3 * MS]
    assert block.calls.wall.tolist() == [2 * MS, 3 * MS]


@pytest.mark.parametrize("capabilities", [frozenset(), frozenset({"queue"})])
def test_run_block__output_with_a_destructor_that_works__is_gap_and_no_call(capabilities: frozenset[Any]) -> None:
    device = FakeDevice(capabilities=capabilities)

    class Output:
        def __del__(self) -> None:
            device.host_works(5 * MS)

    def call() -> Output:
        device.host_works(2 * MS)
        return Output()

    block = run_block(call, device, calls=3)
    assert block.calls.wall.tolist() == [2 * MS, 2 * MS, 2 * MS]
    # Else a busy machine, where CPU time decides, blames the call for what happens after it.
    assert block.calls.cpu.tolist() == [2 * MS, 2 * MS, 2 * MS]
    assert block.calls.end_ns - block.calls.start_ns == 21 * MS


def test_run_block__collector_on__is_off_inside_and_on_again_after() -> None:
    device = FakeDevice()
    seen: list[bool] = []

    def call() -> None:
        seen.append(gc.isenabled())
        device.launch("mm", MS)

    run_block(call, device, calls=2)
    assert seen == [False, False, False]
    assert gc.isenabled()


def test_run_block__any__counts_switches_and_faults() -> None:
    device = FakeDevice()
    block = run_block(lambda: device.launch("mm", MS), device, calls=2)
    assert block.involuntary_switches >= 0
    assert block.minor_faults >= 0


def test_block_recorder__blocks_of_a_shape__columns_in_the_order_they_ran() -> None:
    device = FakeDevice(kernel_times={"aten::mm": [9 * MS, 1 * MS, 2 * MS, 9 * MS, 3 * MS]})
    recorder = BlockRecorder(_bound(device, curve(0, 0)), counters=None)
    recorder.record("default", calls=2, quad=4, sequence=8)
    recorder.record("default", calls=1, quad=5, sequence=11)
    columns = recorder.columns()["default"]
    assert (columns.quad, columns.sequence, columns.calls) == ([4, 5], [8, 11], [2, 1])
    assert unpack(columns.times.wall).tolist() == [1 * MS, 2 * MS, 3 * MS]
    assert unpack(columns.times.cpu).tolist() == [1 * MS, 2 * MS, 3 * MS]
    assert columns.times.cpu_source == "device"
    assert columns.worker.start_ns[1] - columns.worker.end_ns[0] == 9 * MS


def test_block_recorder__wait_booked_within_a_short_call__no_time_is_negative() -> None:
    """The kernel may book a wait later than it happened."""

    class LateBooks(FakeDevice):
        def launch(self, op: str, *arguments: Any) -> None:
            super().launch(op, *arguments)
            self.waited_ns += 9 * MS

    device = LateBooks()
    recorder = BlockRecorder(_bound(device, curve(MS, 0)), counters=None)
    recorder.record("default", calls=2, quad=0, sequence=0, as_served=True)

    columns = recorder.columns()["default"]
    assert unpack(columns.times.wall).tolist() == [1, 1]
    assert columns.times.host is not None
    assert unpack(columns.times.host).tolist() == [1, 1]


def test_block_recorder__shape_without_block__is_left_out() -> None:
    device = FakeDevice(capabilities=frozenset())
    recorder = BlockRecorder(_bound(device, curve(MS, 0, shapes={"short": {}, "long": {}})), counters=None)
    recorder.record("long", calls=1, quad=0, sequence=0)
    assert list(recorder.columns()) == ["long"]
    assert recorder.columns()["long"].times.cpu_source == "thread_cpu"


def test_block_recorder__unknown_shape__key_error() -> None:
    device = FakeDevice()
    with pytest.raises(KeyError, match="wide"):
        BlockRecorder(_bound(device, curve(MS, 0)), counters=None).record("wide", calls=1, quad=0, sequence=0)


def test_warm_up__constant_calls__steady_after_three_equal_blocks() -> None:
    device = FakeDevice()
    found = warm_up(_bound(device, curve(MS, 0)), block_seconds=0.02, cap_seconds=5.0)
    assert found.steady
    assert found.block_calls == {"default": 20}
    # The first, then blocks of 1, 5 and 5, quarters of those to come.
    assert found.calls == 1 + 1 + 5 + 5


def test_warm_up__call_longer_than_a_block__at_least_three_calls() -> None:
    device = FakeDevice()
    found = warm_up(_bound(device, curve(50 * MS, 0)), block_seconds=0.02, cap_seconds=5.0)
    assert found.block_calls == {"default": 3}


@pytest.mark.parametrize(
    ("script", "calls"), [(2600 * MS, 2), (lambda index: (9000, 2600, 2600)[min(index, 2)] * MS, 3)]
)
def test_warm_up__calls_of_seconds__warm_once_they_get_no_faster_and_one_a_block(
    script: KernelTime, calls: int
) -> None:
    device = FakeDevice(kernel_times={"aten::mm": script})
    found = warm_up(_bound(device, curve(0, 0)), block_seconds=0.02, cap_seconds=8.0)
    assert found.steady
    assert (found.calls, found.block_calls) == (calls, {"default": 1})
    assert found.call_seconds == pytest.approx(2.6, rel=0.01)


def test_warm_up__two_shapes__block_calls_of_each() -> None:
    device = FakeDevice()
    workload = Workload(
        build=lambda handle: FakeModel(handle, (FakeKernel("mm", 0, MS),)),
        inputs=lambda batch, seed, length: FakeTensor(length, 0),
        shapes={"short": {"length": 1}, "long": {"length": 4}},
    )
    found = warm_up(_bound(device, workload), block_seconds=0.02, cap_seconds=5.0)
    assert found.block_calls == {"short": 20, "long": 5}


def _warm(script: KernelTime, cap_seconds: float, noise: float = 0.0) -> tuple[bool, float]:
    device = FakeDevice(kernel_times={"aten::mm": script}, noise=noise)
    started = device.host_ns
    found = warm_up(_bound(device, curve(0, 0)), block_seconds=0.02, cap_seconds=cap_seconds)
    return found.steady, (device.host_ns - started) / 1e9


def test_warm_up__noise_keeps_calls_apart__steady_after_a_twentieth_of_a_second() -> None:
    steady, seconds = _warm(10 * MS, cap_seconds=5.0, noise=0.5)
    assert steady
    assert 0.05 < seconds < 0.4


def test_warm_up__still_falling_at_the_cap__not_steady() -> None:
    steady, seconds = _warm(lambda number: round(100 * MS * 0.97**number), cap_seconds=2.0)
    assert not steady
    assert 2.0 <= seconds < 2.2

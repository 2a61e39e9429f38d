"""The fake device itself: what the proofs of the steps stand on."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from perfgate.measuring.devices.device import Device, MemoryCount
from tests.fakes.device import FakeDevice, FakeOutOfMemoryError, FakeTensor

MS = 1_000_000
MB = 1_000_000


def test_fake_device__protocol__fulfilled() -> None:
    device: Device = FakeDevice()
    assert device.handle() is device


def test_launch__two_kernels__run_one_after_another_while_the_host_goes_on() -> None:
    device = FakeDevice(launch_ns=1000)
    started = device.clock_ns()
    device.launch("mm", 5 * MS)
    device.launch("mm", 5 * MS)
    assert device.clock_ns() - started == 2000
    device.synchronize()
    assert device.clock_ns() - started == 10 * MS + 1000
    assert device.cpu_clock_ns() == 2000


def test_to_device__pageable__host_waits_even_when_asked_not_to() -> None:
    device = FakeDevice(pageable_bandwidth=1e9)
    started = device.clock_ns()
    device.to_device(FakeTensor(1, MB), non_blocking=True)
    assert device.clock_ns() - started == MS


def test_to_device__pinned_and_non_blocking__host_goes_on() -> None:
    device = FakeDevice(pinned_bandwidth=4e9)
    started = device.clock_ns()
    device.to_device(device.pin(FakeTensor(1, MB)), non_blocking=True)
    assert device.clock_ns() == started
    device.synchronize()
    assert device.clock_ns() - started == MS // 4


def test_copy_stream__kernel_running__copy_overlaps_and_the_next_kernel_waits() -> None:
    device = FakeDevice(pinned_bandwidth=1e9)
    started = device.clock_ns()
    device.launch("mm", 2 * MS)
    with device.copy_stream():
        device.to_device(device.pin(FakeTensor(1, 5 * MB)), non_blocking=True)
    device.launch("mm", MS)
    device.synchronize()
    assert device.clock_ns() - started == 6 * MS


def test_event__between_kernels__time_of_the_queue_not_of_the_host() -> None:
    device = FakeDevice()
    before, after = device.event(), device.event()
    before.record()
    device.launch("mm", 3 * MS)
    after.record()
    device.launch("mm", 4 * MS)
    assert after.time_ns() - before.time_ns() == 3 * MS
    after.wait()
    assert device.clock_ns() == after.time_ns()


def test_kernel_times__sequence_function_and_number__scripted_by_launch() -> None:
    device = FakeDevice(kernel_times={"a": [5, 3], "b": lambda number: 10 + number, "c": 7}, capabilities=frozenset())
    for op in "aaabbc":
        device.launch(op)
    assert device.cpu_clock_ns() == 5 + 3 + 3 + 10 + 11 + 7


def test_noise__same_seed__same_times() -> None:
    first, second, other = (FakeDevice(noise=0.1, seed=seed) for seed in (5, 5, 6))
    for device in (first, second, other):
        device.launch("mm", MS)
    assert first.free_ns == second.free_ns != other.free_ns


def test_memory__limit__full_until_a_tensor_is_gone() -> None:
    device = FakeDevice(memory_limit=100)
    kept = device.allocate(80)
    with pytest.raises(FakeOutOfMemoryError) as caught:
        device.allocate(30)
    assert device.is_out_of_memory(caught.value)
    del kept
    assert device.allocate(30).bytes == 30


def test_count_memory__two_blocks_one_at_a_time__two_allocations_and_the_larger_peak() -> None:
    device = FakeDevice()
    kept = device.allocate(1000)

    def call() -> None:
        device.allocate(30)
        device.allocate(50)

    assert device.count_memory([call]) == [MemoryCount(allocations=2, peak_bytes=50)]
    assert kept.bytes == 1000


def test_bytes_of__nested_batch__sum() -> None:
    device = FakeDevice()
    assert device.bytes_of({"a": (FakeTensor(1, 3), FakeTensor(1, 4)), "b": [FakeTensor(1, 5)], "c": None}) == 12


def test_record_trace__two_calls__kineto_events_in_microseconds(tmp_path: Path) -> None:
    device = FakeDevice(launch_ns=1500, pinned_bandwidth=1e9)
    device.host_ns = 0

    def call() -> None:
        device.to_device(device.pin(FakeTensor(1, 10_000)), non_blocking=True)
        device.launch("aten::mm", 20_250)

    path = device.record_trace(call, calls=2, folder=tmp_path, name="trace")
    assert path == tmp_path / "trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    assert [event["cat"] for event in events] == ["cpu_op", "gpu_memcpy", "cpu_op", "kernel", "user_annotation"] * 2
    copy, kernel, annotation = events[1], events[3], events[4]
    assert (copy["name"], copy["ts"], copy["dur"]) == ("Memcpy HtoD (Pinned -> Device)", 1.5, 10.0)
    assert copy["args"]["bytes"] == 10_000
    assert (kernel["name"], kernel["ts"], kernel["dur"]) == ("mm_kernel", 11.5, 20.25)
    assert kernel["args"]["External id"] == events[2]["args"]["External id"]
    assert (annotation["name"], annotation["ts"], annotation["dur"]) == ("perfgate.call", 0.0, 31.75)


def test_clock_ns__no_time_passes__fails_instead_of_never_ending() -> None:
    device = FakeDevice()

    def wait_a_second() -> None:
        while device.clock_ns() < 1_000_000_000:
            device.launch("mm", 0)

    with pytest.raises(AssertionError, match="no virtual time passes"):
        wait_a_second()

"""What every device promises, run over each backend that can be opened here and over the fake device."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch

from perfgate.errors import MeasuringError
from perfgate.measuring.counting.collect import record_calls
from perfgate.measuring.devices.device import Capability, Device
from perfgate.measuring.devices.kernels import work_of as hash_of
from perfgate.measuring.devices.registry import device_kinds, open_device
from perfgate.measuring.timing.open_loop import run_open_loop
from tests.each import each
from tests.fakes.device import FakeDevice, FakeTensor

# What the drivers of NVIDIA's and AMD's devices make, on Linux and on the Linux of Windows.
DRIVERS = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")


@dataclass
class Case:
    """A device, a host batch of 64 bytes, and a call that does some work and allocates at least once."""

    device: Device
    batch: Any
    call: Callable[[], Any]


def _fake_case() -> Case:
    device = FakeDevice(launch_ns=10_000)

    def call() -> FakeTensor:
        device.launch("aten::mm", 50_000)
        return device.allocate(64)

    return Case(device, FakeTensor(4, 64), call)


def _torch_case(kind: str) -> Case:
    import torch

    try:
        device = open_device(kind)
    except MeasuringError as error:
        pytest.skip(str(error))
    batch = torch.arange(16, dtype=torch.float32).reshape(4, 4)
    on_device = device.to_device(batch)
    return Case(device, batch, lambda: on_device @ on_device)


def _may_be_here(kind: str) -> bool:
    """Whether this machine may have a device of a kind: told without opening one, which would forbid its process to fork."""
    if kind == "cuda":
        built = torch.version.cuda or torch.version.hip
        return bool(built) and any(Path(file).exists() for file in DRIVERS)
    return kind != "npu" or find_spec("torch_npu") is not None


@pytest.fixture(params=[*filter(_may_be_here, device_kinds()), "fake"])
def case(request: pytest.FixtureRequest) -> Case:
    return _fake_case() if request.param == "fake" else _torch_case(request.param)


def test_leave_out_waits__work__the_timer_goes_on_and_no_faster_than_the_clock(case: Case) -> None:
    device, clock, timer = case.device, [], []
    with device.leave_out_waits():
        for _ in range(20):
            timer.append(device.timer_ns())
            case.call()
            device.synchronize()
            clock.append(device.clock_ns())
        timer.append(device.timer_ns())
    assert sorted(timer) == timer
    assert timer[0] < timer[-1]
    assert timer[-2] - timer[0] <= clock[-1] - clock[0] + timer[1] - timer[0]
    assert abs(device.timer_ns() - device.clock_ns()) < 1e9


def test_device__opened__says_what_it_is(case: Case) -> None:
    device = case.device

    assert device.kind in (*device_kinds(), "fake")
    assert device.name
    assert device.capabilities <= set(get_args(Capability))
    assert device.handle() is not None


def test_device__properties__texts_and_the_same_each_time(case: Case) -> None:
    properties = case.device.properties()

    assert properties
    assert all(isinstance(word, str) and word for pair in properties.items() for word in pair)
    assert case.device.properties() == properties


def test_device__idle_until__never_early_and_at_once_where_it_is_past(case: Case) -> None:
    device = case.device
    until = device.clock_ns() + 3_000_000
    device.idle_until(until)
    woken = device.clock_ns()
    device.idle_until(until - 3_600_000_000_000)

    assert woken >= until
    assert device.clock_ns() - woken < 1_800_000_000_000  # an hour ago, and not in an hour


def test_device__calls_sent_at_their_times__latency_between_nothing_and_what_passed(case: Case) -> None:
    started = case.device.clock_ns()
    found = run_open_loop(case.call, case.device, np.arange(5) * 0.002)
    passed = case.device.clock_ns() - started

    assert len(found.latencies) == 5
    assert (found.latencies > 0).all()
    assert (found.latencies <= passed).all()


@each("clock", ["clock_ns", "cpu_clock_ns", "process_cpu_ns"])
def test_device__clocks__integers_that_never_go_back(case: Case, clock: str) -> None:
    read = getattr(case.device, clock)
    times = [read()]
    for _ in range(20):
        case.call()
        times.append(read())

    assert all(isinstance(time, int) for time in times)
    assert times == sorted(times)
    assert times[-1] > times[0]


def test_device__events_around_a_call__in_order(case: Case) -> None:
    first, second = case.device.event(), case.device.event()
    first.record()
    case.call()
    second.record()
    second.wait()
    case.device.synchronize()

    assert isinstance(first.time_ns(), int)
    assert second.time_ns() > first.time_ns()


@each("build", [lambda x: x, lambda x: (x, x), lambda x: [x], lambda x: {"input": x}])
def test_device__to_device_and_back__keeps_the_structure_and_the_bytes(
    case: Case, build: Callable[[torch.Tensor], Any]
) -> None:
    batch = build(case.batch)
    moved = case.device.to_device(case.device.pin(batch), non_blocking=True)
    back = case.device.to_host(moved)
    case.device.synchronize()

    assert type(moved) is type(back) is type(batch)
    assert case.device.bytes_of(batch) == case.device.bytes_of(back) == 64 * (2 if isinstance(batch, tuple) else 1)
    if isinstance(batch, dict):
        assert back.keys() == batch.keys()


def test_device__bytes_of_what_is_no_tensor__none(case: Case) -> None:
    assert case.device.bytes_of({"mask": None, "length": 3}) == 0


def test_device__copy_stream__entered_and_left(case: Case) -> None:
    with case.device.copy_stream():
        moved = case.device.to_device(case.batch, non_blocking=True)
    case.device.synchronize()

    assert case.device.bytes_of(moved) == 64


def test_device__record_trace__every_call_named_and_one_file_left(case: Case, tmp_path: Path) -> None:
    trace = record_calls(case.device, case.call, calls=7, folder=tmp_path, name="trace")

    assert list(tmp_path.iterdir()) == [trace.path]
    assert trace.path.name.partition(".")[0] == "trace"
    assert len(trace.host_ops()) >= 7
    assert (len(trace.kernels()) >= 7) == ("kernel_timeline" in case.device.capabilities)


def test_device__call_fails_while_traced__error_and_no_file(case: Case, tmp_path: Path) -> None:
    def call():
        raise ValueError("from the workload")

    with pytest.raises(ValueError, match="from the workload"):
        case.device.record_trace(call, calls=3, folder=tmp_path, name="trace")

    assert list(tmp_path.iterdir()) == []
    record_calls(case.device, case.call, calls=2, folder=tmp_path, name="next")


def test_device__count_memory__repeatable_or_absent(case: Case) -> None:
    if "allocation_count" not in case.device.capabilities:
        assert case.device.count_memory([case.call]) is None
        return
    for _ in range(3):
        case.call()
    counts = case.device.count_memory([case.call] * 4)

    # One result of 4 x 4 floats, which nobody keeps.
    assert set(counts) == {(1, 64, 0)}


def test_device__count_memory__what_calls_leave_behind_is_kept(case: Case) -> None:
    if "allocation_count" not in case.device.capabilities:
        return
    left = []
    first, *steady = case.device.count_memory([lambda: left.append(case.call())] * 4)

    assert [count.kept_bytes for count in steady] == [64, 64, 64]
    assert first.allocations == 1


def test_device__count_memory__a_result_that_replaces_the_last_is_not_kept(case: Case) -> None:
    if "allocation_count" not in case.device.capabilities:
        return
    state = {}
    _, *steady = case.device.count_memory([lambda: state.update(last=case.call())] * 4)

    assert [count.kept_bytes for count in steady] == [0, 0, 0]


def test_device__host_waits__can_be_called_and_have_names_of_their_own(case: Case) -> None:
    waits = case.device.host_waits()

    assert all(callable(getattr(wait.owner, wait.name)) for wait in waits)
    assert len({wait.label for wait in waits}) == len(waits)


def test_device__other_errors__are_not_out_of_memory(case: Case) -> None:
    assert not case.device.is_out_of_memory(ValueError("shape"))
    assert not case.device.is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))


def test_device__inference_mode_and_empty_cache__usable(case: Case) -> None:
    with case.device.inference_mode():
        case.call()
    case.device.empty_cache()


FORKED = """
import os, sys
from pathlib import Path
import torch
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))  # to destroy torch takes half a second
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.timing.open_loop import run_open_loop
from perfgate.measuring.counting.collect import record_calls
device = open_device("cpu")
matrix = torch.ones(64, 64)
assert device.count_memory([lambda: matrix @ matrix]) == [(1, 64 * 64 * 4, 0)]
trace = record_calls(device, lambda: matrix @ matrix, calls=5, folder=Path(sys.argv[1]), name="trace")
assert len(trace.host_ops()) >= 5
sys.stdout.write("measured")
sys.stdout.flush()
os._exit(0)
"""


def test_cpu__forked_from_a_server_that_only_imported_torch__traces_and_counts(tmp_path: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", FORKED, str(tmp_path)],
        check=False, capture_output=True, text=True, timeout=600, cwd=Path(__file__).parents[2],
    )  # fmt: skip

    assert (found.returncode, found.stdout) == (0, "measured"), found.stderr


def test_device__memory__peaks_begin_anew_and_hold_what_is_in_use(case: Case) -> None:
    kept = case.call()
    case.device.reset_memory_peaks()
    case.call()
    case.device.synchronize()
    statistics, host = case.device.memory_statistics(), case.device.host_memory()

    assert kept is not None
    assert host.resident > 0
    assert host.minor_faults >= 0
    assert (statistics is not None) == ("own_memory" in case.device.capabilities)
    if statistics is not None:
        assert 0 < statistics.allocated <= statistics.peak_allocated <= statistics.peak_reserved
        assert statistics.segments > 0


def test_device__cache__its_size_or_nothing_and_a_sweep_that_takes_time(case: Case) -> None:
    size, sweep = case.device.cache_bytes(), case.device.cache_sweeper()

    assert size is None or size > 0
    assert size is not None or sweep is None
    if sweep is not None:
        before = case.device.clock_ns()
        sweep()
        assert case.device.clock_ns() > before


def test_device__among_its_kind__its_index_is_one_that_is_visible(case: Case) -> None:
    assert 0 <= case.device.index < case.device.visible_devices()


def test_device__record_kernels__those_of_every_call_where_they_are_known(case: Case) -> None:
    if "kernel_times" not in case.device.capabilities:
        with pytest.raises(MeasuringError):
            case.device.record_kernels(case.call, calls=3)
        return

    kernels = case.device.record_kernels(case.call, calls=3)

    assert kernels
    assert len(kernels) % 3 == 0
    assert all(kernel.name and kernel.ns > 0 for kernel in kernels)
    assert hash_of(kernels) == hash_of(case.device.record_kernels(case.call, calls=3))


@pytest.mark.parametrize("case", [*filter(_may_be_here, device_kinds())], indirect=True)
def test_device__model_of_the_host__computes_the_same_once_placed_and_after_it_was_parked(case: Case) -> None:
    device = case.device
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4)).eval()
    expected = model(case.batch)

    placed = device.place(model)
    first = device.to_host(placed(device.to_device(case.batch)))
    device.park(placed)
    device.unpark(placed)
    again = device.to_host(placed(device.to_device(case.batch)))

    torch.testing.assert_close(first, expected, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(again, first)


def test_device__free_memory__part_of_all_or_absent(case: Case) -> None:
    memory = case.device.free_memory()
    assert memory is None or 0 <= memory.free <= memory.total

"""Hardware counters: what is asked of the kernel, what is made of its answers, and what is said where it refuses."""

from __future__ import annotations

import errno
import platform
import struct
import threading
from pathlib import Path

import pytest

from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.timing.hardware import (
    CounterReading,
    HardwareCounters,
    HardwareCounts,
    attribute_bytes,
    counted,
    open_counter,
)
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.workload.bound import BoundWorkload
from tests.fakes.device import FakeDevice
from tests.fakes.processor import CACHE_MISSES, INSTRUCTIONS, FakeProcessor, no_processor
from tests.fakes.workloads import curve

ALL = "instructions, cycles, cache misses of calls are not counted: "
MS = 1_000_000


def recorder(counters: HardwareCounters | None) -> BlockRecorder:
    device = FakeDevice(capabilities=frozenset())
    return BlockRecorder(BoundWorkload("fake", curve(MS, 0), device, seed=1), counters=counters)


def test_attribute_bytes__cache_misses__are_those_of_the_header() -> None:
    """Offsets of linux/perf_event.h, struct perf_event_attr: PERF_ATTR_SIZE_VER0 is 64."""
    attributes = attribute_bytes(CACHE_MISSES)
    assert len(attributes) == 64
    assert struct.unpack_from("=I", attributes, 0) == (0,)  # PERF_TYPE_HARDWARE
    assert struct.unpack_from("=I", attributes, 4) == (64,)
    assert struct.unpack_from("=Q", attributes, 8) == (3,)  # PERF_COUNT_HW_CACHE_MISSES
    assert struct.unpack_from("=Q", attributes, 32) == (0b11,)  # TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING
    # disabled 0, inherit 1, pinned 2, exclusive 3, exclude_user 4, exclude_kernel 5, exclude_hv 6
    assert struct.unpack_from("=Q", attributes, 40) == (0b1100010,)
    assert set(attributes[16:32] + attributes[48:]) == {0}


def test_open_counter__another_architecture__not_available(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(OSError, match="not implemented") as error:
        open_counter(INSTRUCTIONS)
    assert error.value.errno == errno.ENOSYS


def test_run_block__counters__what_they_grew_by() -> None:
    block = run_block(lambda: None, FakeDevice(), calls=3, counters=FakeProcessor().counters())
    assert block.counts == HardwareCounts(instructions=3000, cycles=2000, cache_misses=10)


def test_block_recorder__counters__one_count_a_block() -> None:
    recording = recorder(FakeProcessor().counters())
    for sequence in range(2):
        recording.record("default", calls=2, quad=0, sequence=sequence)
    columns = recording.columns()["default"]
    assert (columns.worker.instructions, columns.worker.cycles, columns.worker.cache_misses) == (
        [3000, 3000],
        [2000, 2000],
        [10, 10],
    )
    assert recording.uncounted is None


def test_block_recorder__counters_that_others_had_half_of_a_block__what_was_seen_stands_for_all_of_it() -> None:
    recording = recorder(FakeProcessor(shared={3: 0.5}).counters())
    for sequence in range(2):
        recording.record("default", calls=2, quad=0, sequence=sequence)
    assert recording.columns()["default"].worker.instructions == [3000, 3000]
    assert recording.uncounted is None


@pytest.mark.slow
def test_block_recorder__counters_that_others_had_all_of_a_block__no_column_and_the_reason() -> None:
    recording = recorder(FakeProcessor(shared={3: 0.0}).counters())
    for sequence in range(3):
        recording.record("default", calls=2, quad=0, sequence=sequence)
    assert recording.columns()["default"].worker.instructions == []
    assert recording.uncounted == (ALL + "something else had the hardware counters for all of a block")


def test_block_recorder__nobody_counts__empty_columns_and_nothing_to_say() -> None:
    recording = recorder(None)
    recording.record("default", calls=2, quad=0, sequence=0)
    assert recording.columns()["default"].worker.instructions == []
    assert recording.uncounted is None


def test_block_recorder__one_counter_refused__the_others_count() -> None:
    recording = recorder(FakeProcessor(refused={CACHE_MISSES: errno.ENOENT}).counters())
    recording.record("default", calls=2, quad=0, sequence=0)
    columns = recording.columns()["default"]
    assert (columns.worker.instructions, columns.worker.cycles, columns.worker.cache_misses) == ([3000], [2000], [])
    assert recording.uncounted is not None
    assert recording.uncounted.startswith("cache misses of calls are not counted: ")


@pytest.mark.parametrize(
    ("error", "level", "reason"),
    [
        (errno.ENOENT, "2", "this machine has no hardware counters (a virtual machine?)"),
        (errno.EOPNOTSUPP, "2", "this machine has no hardware counters (a virtual machine?)"),
        (errno.ENOSYS, "2", "there is no perf_event_open here (a container that hides it?)"),
        (errno.EACCES, "3", "kernel.perf_event_paranoid is 3: allow 2, or give CAP_PERFMON"),
        (errno.EPERM, "4", "kernel.perf_event_paranoid is 4: allow 2, or give CAP_PERFMON"),
        (
            errno.EPERM,
            "2",
            "perf_event_open is forbidden (a container?): allow it in its seccomp profile, or give CAP_PERFMON",
        ),
        (
            errno.EACCES,
            "",
            "perf_event_open is forbidden (a container?): allow it in its seccomp profile, or give CAP_PERFMON",
        ),
        (errno.EMFILE, "2", "perf_event_open: Too many open files"),
    ],
)
def test_hardware_counters__refused__absent_with_what_to_do(
    error: int, level: str, reason: str, tmp_path: Path
) -> None:
    paranoid = tmp_path / "perf_event_paranoid"
    paranoid.write_text(level)
    counters = no_processor(error).counters(paranoid)
    assert counters.absent == ALL + reason
    assert counted(counters.read(), counters.read()) == HardwareCounts(None, None, None)


def test_hardware_counters__descriptor_that_user_code_closed__no_count() -> None:
    def closed(descriptor: int, size: int) -> bytes:
        raise OSError(errno.EBADF, "Bad file descriptor")

    assert HardwareCounters(lambda config: config, closed).read() == [None, None, None]


def test_counted__counter_that_never_ran__no_count_and_not_zero() -> None:
    never, half = CounterReading(value=0, enabled=500, running=0), CounterReading(value=900, enabled=500, running=250)
    start = CounterReading(0, 0, 0)
    assert counted([start, start, start], [never, half, start]) == HardwareCounts(None, 1800, None)


def test_hardware_counters__the_real_kernel__counts_the_work_of_this_thread_and_of_later_ones() -> None:
    counters = HardwareCounters()
    if counters.absent:
        pytest.skip(counters.absent)

    def instructions(rounds: int, *, in_thread: bool) -> int:
        before = counters.read()
        if in_thread:
            thread = threading.Thread(target=work, args=(rounds,))
            thread.start()
            thread.join()
        else:
            work(rounds)
        found = counted(before, counters.read()).instructions
        if found is None:
            pytest.skip("something else uses the hardware counters too")
        return found

    def work(rounds: int) -> None:
        for number in range(rounds):
            _ = number * number

    once, twice = (instructions(rounds, in_thread=False) for rounds in (200_000, 400_000))
    elsewhere = instructions(200_000, in_thread=True)
    assert once > 200_000
    assert twice == pytest.approx(2 * once, rel=0.1)
    assert elsewhere == pytest.approx(once, rel=0.1)

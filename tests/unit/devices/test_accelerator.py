"""What the backends over torch modules share, on a module whose device keeps a clock of its own."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.backends import _shared
from perfgate.measuring.devices.backends._shared import AcceleratorDevice
from perfgate.measuring.devices.device import MemoryCount


class Clock:
    """A host clock and a device clock that is a little faster; work is queued and run at once."""

    def __init__(self):
        self.host_ns = 5_000_000_000
        self.device_ns = 77

    def passes(self, ns):
        self.host_ns += ns
        self.device_ns += round(ns * 1.0001)


class FakeModule:
    """As much of ``torch.npu`` as an event needs; elapsed_time gives float32 milliseconds, as torch's do."""

    def __init__(self, clock):
        module = self

        class Event:
            def __init__(self, enable_timing=False):
                assert enable_timing
                self.at = None

            def record(self):
                assert self.at is None, "an event that others count from was recorded anew"
                self.at = clock.device_ns
                module.recorded += 1

            def synchronize(self):
                assert self.at is not None

            def elapsed_time(self, other):
                assert other.at >= self.at, "device times of events are taken forwards only"
                return float(np.float32((other.at - self.at) / 1e6))

        self.Event = Event
        self.recorded = 0

    def set_device(self, index):
        self.index = index

    def synchronize(self):
        pass


class FakeAccelerator(AcceleratorDevice):
    """A device without a vendor's tool."""

    kind = "fake"

    def read_tool(self) -> DeviceState:
        return DeviceState()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(_shared, "perf_counter_ns", lambda: made.host_ns)
    return made


def test_event_times__hours_after_the_first__differences_still_exact_to_nanoseconds(clock: Clock) -> None:
    device = FakeAccelerator(FakeModule(clock), 0)
    lot = random.Random(1)
    for _ in range(5):
        device.event().record()
        clock.passes(3600 * 10**9)
        marks, real = [], []
        for _ in range(40):
            before, after = device.event(), device.event()
            before.record()
            start = clock.device_ns
            clock.passes(lot.randrange(1_000, 2_000_000))
            after.record()
            real.append(clock.device_ns - start)
            marks.append((before, after))

        found = [after.time_ns() - before.time_ns() for before, after in marks]
        # Float32 milliseconds within 50 ms are exact to 4 ns.
        assert found == pytest.approx(real, abs=8)


def test_event_times__asked_backwards__same_as_forwards(clock: Clock) -> None:
    device = FakeAccelerator(FakeModule(clock), 0)
    events = []
    for _ in range(2_000):
        clock.passes(60_000_000)
        events.append(device.event())
        events[-1].record()

    backwards = [event.time_ns() for event in reversed(events)]
    assert backwards[::-1] == [event.time_ns() for event in events]
    assert np.diff(backwards[::-1]) == pytest.approx(60_006_000, abs=8)


def test_event__recorded_again__the_new_time(clock: Clock) -> None:
    device = FakeAccelerator(FakeModule(clock), 0)
    event = device.event()
    event.record()
    first = event.time_ns()
    clock.passes(1_000_000)
    event.record()

    assert event.time_ns() - first == pytest.approx(1_000_100, abs=8)


def test_event__never_recorded__says_so(clock: Clock) -> None:
    with pytest.raises(RuntimeError, match="never recorded"):
        FakeAccelerator(FakeModule(clock), 0).event().time_ns()


class Allocator(FakeModule):
    """The statistics of a caching allocator, in blocks of 512 bytes; ``requested`` says whether it keeps real sizes too."""

    def __init__(self, clock, *, requested):
        super().__init__(clock)
        self.sizes = ["requested_bytes", "allocated_bytes"] if requested else ["allocated_bytes"]
        self.current = dict.fromkeys(self.sizes, 0)
        self.peak = dict.fromkeys(self.sizes, 0)
        self.count = 0

    def take(self, size):
        self.count += 1
        for name in self.sizes:
            self.current[name] += self._rounded(name, size)
            self.peak[name] = max(self.peak[name], self.current[name])

    def give(self, size):
        for name in self.sizes:
            self.current[name] -= self._rounded(name, size)

    def _rounded(self, name, size):
        return size if name == "requested_bytes" else -(-size // 512) * 512

    def reset_peak_memory_stats(self, index):
        self.peak = dict(self.current)

    def memory_stats(self, index):
        stats = {"allocation.all.allocated": self.count}
        for name in self.sizes:
            stats[f"{name}.all.current"], stats[f"{name}.all.peak"] = self.current[name], self.peak[name]
        return stats


@pytest.mark.parametrize(("requested", "unit"), [(True, 100), (False, 512)])
def test_count_memory__what_each_call_took_and_left(clock: Clock, requested: bool, unit: int) -> None:
    allocator = Allocator(clock, requested=requested)
    allocator.take(100)

    def call():
        allocator.take(100)
        allocator.take(100)
        allocator.give(100)

    counts = FakeAccelerator(allocator, 0).count_memory([call, call])

    assert counts == [MemoryCount(allocations=2, peak_bytes=2 * unit, kept_bytes=unit)] * 2


def test_is_out_of_memory__as_torch_npu_words_it_before_it_has_a_class_for_it(clock: Clock) -> None:
    device = FakeAccelerator(FakeModule(clock), 0)
    device.kind = "npu"

    # torch_npu 2.13 with soft-npu: torch.OutOfMemoryError, a RuntimeError, of this text.
    assert device.is_out_of_memory(
        RuntimeError("NPU out of memory. Tried to allocate 16.00 GiB (NPU 0; 8.00 GiB total")
    )
    assert device.is_out_of_memory(MemoryError())
    assert not device.is_out_of_memory(RuntimeError("The aicore execution is abnormal."))


def test_to_device__structures__kept_with_what_is_no_tensor() -> None:
    record = SimpleNamespace(length=3)
    batch = {"ids": [1, (2, record)], "none": None}

    assert _shared.each_tensor(batch, lambda tensor: pytest.fail("there is no tensor")) == batch

"""A fake asynchronous device: own memory, a compute and a copy queue, a virtual clock. No wall time ever passes."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.device import (
    Capability,
    Device,
    FreeMemory,
    HostMemory,
    HostWait,
    KernelRun,
    MemoryCount,
    MemoryStatistics,
)
from tests.fakes.kineto import TraceLog, write_trace
from tests.fakes.power import PowerCap

KernelTime = int | Sequence[int] | Callable[[int], int]
Queue = Literal["compute", "copy", "side"]

ALL_CAPABILITIES: frozenset[Capability] = frozenset(
    {"own_memory", "queue", "kernel_timeline", "kernel_times", "allocation_count"}
)

MOST_READS = 10_000


class FakeOutOfMemoryError(RuntimeError):
    """The device's memory is full."""


class FakeTensor:
    """So many bytes of so many items, on the host or on the device; it holds no data."""

    def __init__(
        self, items: int, size: int, place: Literal["host", "device"] = "host", *, pinned: bool = False
    ) -> None:
        self.items = items
        self.bytes = size
        self.place = place
        self.pinned = pinned


@dataclass
class FakeEvent:
    """A mark in a queue; it is reached when all before it in that queue has run."""

    device: FakeDevice
    reached_ns: int = 0

    def record(self) -> None:
        self.device.refuse_standstill()
        self.reached_ns = max(self.device.host_ns, self.device.free_ns[self.device.current])

    def wait(self) -> None:
        self.device.host_ns = max(self.device.host_ns, self.reached_ns)

    def time_ns(self) -> int:
        return self.reached_ns


class FakeDevice(Device):
    """Fulfils ``Device``. Times are virtual nanoseconds, bandwidths bytes per second.

    ``kernel_times`` scripts an op by name: always the same, by number of its launch (a sequence repeats its last), or
    a function of that number. ``noise`` is the sigma of a seeded log-normal factor on every kernel. A launch costs the
    host ``launch_ns``, with a factor of sigma ``launch_jitter``. The power limit ``cap`` lowers the clock of its kernels by
    what the card has heated up. Without capability ``queue`` the host itself runs the kernel and its CPU clock counts it.
    """

    kind = "fake"
    index = 0
    name = "fake accelerator"

    def __init__(
        self,
        *,
        kernel_times: Mapping[str, KernelTime] | None = None,
        launch_ns: int = 0,
        launch_jitter: float = 0.0,
        cap: PowerCap | None = None,
        pageable_bandwidth: float = 1e9,
        pinned_bandwidth: float = 4e9,
        memory_limit: int | None = None,
        noise: float = 0.0,
        seed: int = 1,
        capabilities: frozenset[Capability] = ALL_CAPABILITIES,
    ) -> None:
        self.capabilities = capabilities
        self.kernel_times = dict(kernel_times or {})
        self.launch_ns = launch_ns
        self.launch_jitter = launch_jitter
        self.cap = cap
        self.pageable_bandwidth = pageable_bandwidth
        self.pinned_bandwidth = pinned_bandwidth
        self.memory_limit = memory_limit
        self.host_ns = 1_000_000
        self.cpu_ns = 0
        self.free_ns: dict[Queue, int] = {"compute": 0, "copy": 0, "side": 0}
        self.current: Queue = "compute"
        self.used_bytes = 0
        self.peak_bytes = 0
        self.allocations = 0
        # Of its pool, which begins empty and gives nothing back: it grows by what it lacks.
        self.reserved_bytes = 0
        self.segments = 0
        self.retries = 0
        self.resident_bytes = 1 << 20
        self.minor_faults = 0
        self.cache: int | None = None  # bytes of its cache, and what the first kernel after a sweep takes longer
        self.cold_ns = 0
        self._swept = False
        self.launches: dict[str, int] = {}
        self._noise = noise
        self._random = np.random.default_rng(seed)
        self._log: TraceLog | None = None
        self._kernels: list[KernelRun] | None = None
        self.conditions: list[DeviceState] = []  # what it reports block by block; then an untroubled one
        self.reported: DeviceState | None = None
        self.fallen_back: set[str] | None = None  # operators it pretends to have run on the host
        self.waited_ns = 0
        self._waited_before: int | None = None  # while its timer leaves out waits
        self._reads = 0
        self._read_at = 0

    # What a fake model calls.

    def launch(self, op: str, ns: int = 0) -> None:
        """Queue one kernel of an operator; ``ns`` is its time where ``kernel_times`` does not script it."""
        duration = self._duration(op, ns)
        began = self.host_ns
        self._host_works(self._jittered(self.launch_ns, self.launch_jitter))
        duration = self._at_limit(duration)
        start, end = self._run(self.current, duration)
        if "queue" not in self.capabilities:
            self._host_works(end - self.host_ns)
        if self._log:
            self._log.kernel(op, began, self.host_ns, start, end, stream=self.current)
        if self._kernels is not None:
            self._kernels.append(KernelRun(op, "", list(self.free_ns).index(self.current), start, end - start))

    def allocate(self, size: int, items: int = 1) -> FakeTensor:
        """Return a tensor on the device; its memory is free again when the tensor is gone."""
        if self.memory_limit is not None and self.used_bytes + size > self.memory_limit:
            raise FakeOutOfMemoryError(f"{size} bytes wanted, {self.memory_limit - self.used_bytes} free")
        tensor = FakeTensor(items, size, "device")
        self.used_bytes += size
        self.allocations += 1
        if self.used_bytes > self.reserved_bytes:
            self.reserved_bytes = self.used_bytes
            self.segments += 1
        self.peak_bytes = max(self.peak_bytes, self.used_bytes)
        weakref.finalize(tensor, self._release, size)
        return tensor

    @contextmanager
    def side_stream(self) -> Iterator[None]:
        """Launch on a second stream meanwhile, which the first does not wait for."""
        before, self.current = self.current, "side"
        try:
            yield
        finally:
            self.current = before

    def join_side_stream(self) -> None:
        """Let the stream in use wait for the second one."""
        self.free_ns[self.current] = max(self.free_ns[self.current], self.free_ns["side"])

    def host_works(self, ns: int) -> None:
        """Let the host be busy: Python code between launches."""
        self._host_works(ns)

    def waits_for_cpu(self, ns: int) -> None:
        """Let another process have the host's CPU."""
        self.host_ns += ns
        self.waited_ns += ns

    def host_takes(self, size: int) -> None:
        """Let the process touch so many bytes of host memory for the first time, in pages of 4 KiB."""
        self.resident_bytes += size
        self.minor_faults += -(-size // 4096)

    def refuse_standstill(self) -> None:
        """Fail where the clock is read again and again and no time passes: a loop that waits for it would never end."""
        self._reads = self._reads + 1 if self.host_ns == self._read_at else 0
        self._read_at = self.host_ns
        if self._reads > MOST_READS:
            raise AssertionError("no virtual time passes; give the kernels of the workload a time above zero")

    # What the Protocol asks for.

    def handle(self) -> FakeDevice:
        return self

    def identity(self) -> str:
        return ""

    def visible_devices(self) -> int:
        return 1

    def properties(self) -> dict[str, str]:
        return {"model": self.name}

    def clock_ns(self) -> int:
        self.refuse_standstill()
        return self.host_ns

    def timer_ns(self) -> int:
        return self.clock_ns() - (0 if self._waited_before is None else self.waited_ns - self._waited_before)

    @contextmanager
    def leave_out_waits(self) -> Iterator[None]:
        self._waited_before = self.waited_ns
        try:
            yield
        finally:
            self._waited_before = None

    def cpu_clock_ns(self) -> int:
        return self.cpu_ns

    def process_cpu_ns(self) -> int:
        return self.cpu_ns

    def run_delay_ns(self) -> int:
        return self.waited_ns

    def idle_until(self, time_ns: int) -> None:
        self.host_ns = max(self.host_ns, time_ns)

    def synchronize(self) -> None:
        self.host_ns = max(self.host_ns, *self.free_ns.values())

    def event(self) -> FakeEvent:
        return FakeEvent(self)

    def to_device(self, batch: Any, *, non_blocking: bool = False) -> Any:
        if "own_memory" not in self.capabilities:
            return batch
        return _each(batch, lambda tensor: self._upload(tensor, non_blocking))

    def pin(self, batch: Any) -> Any:
        return _each(batch, lambda tensor: FakeTensor(tensor.items, tensor.bytes, pinned=True))

    def to_host(self, output: Any) -> Any:
        if "own_memory" not in self.capabilities:
            return output
        return _each(output, self._download)

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        self.current = "copy"
        try:
            yield
        finally:
            self.current = "compute"
            self.free_ns["compute"] = max(self.free_ns["compute"], self.free_ns["copy"])

    def bytes_of(self, batch: Any) -> int:
        sizes: list[int] = []
        _each(batch, lambda tensor: sizes.append(tensor.bytes))
        return sum(sizes)

    def record_trace(self, call: Callable[[], Any], *, calls: int, folder: Path, name: str) -> Path:
        path = folder / f"{name}.json.gz"
        self._log = TraceLog()
        try:
            for _ in range(calls):
                began = self.host_ns
                call()
                self.synchronize()
                self._log.annotation("perfgate.call", began, self.host_ns)
            write_trace(self._log, path)
        finally:
            self._log = None
        return path

    def record_kernels(self, call: Callable[[], Any], *, calls: int) -> list[KernelRun]:
        if "kernel_times" not in self.capabilities:
            raise MeasuringError("a fake device without kernel_times has no kernels")
        self._kernels = kernels = []
        try:
            for _ in range(calls):
                call()
                self.synchronize()
        finally:
            self._kernels = None
        return kernels

    def record_raw(self, call: Callable[[], Any], *, calls: int, folder: Path) -> Path:
        return self.record_trace(call, calls=calls, folder=folder, name=f"raw-{len(list(folder.iterdir()))}")

    def analyse_raw(self, folder: Path, recordings: Sequence[Path]) -> list[Path]:
        return [recording for recording in recordings if recording.parent == folder]

    def count_memory(self, calls: Sequence[Callable[[], Any]]) -> list[MemoryCount] | None:
        if "allocation_count" not in self.capabilities:
            return None
        return [self._count_memory(call) for call in calls]

    def _count_memory(self, call: Callable[[], Any]) -> MemoryCount:
        used, count = self.used_bytes, self.allocations
        self.peak_bytes = used
        call()
        return MemoryCount(self.allocations - count, self.peak_bytes - used, self.used_bytes - used)

    def memory_statistics(self) -> MemoryStatistics | None:
        if "own_memory" not in self.capabilities:
            return None
        return MemoryStatistics(
            allocated=self.used_bytes,
            peak_allocated=self.peak_bytes,
            peak_reserved=self.reserved_bytes,
            segments=self.segments,
            retries=self.retries,
        )

    def reset_memory_peaks(self) -> None:
        self.peak_bytes = self.used_bytes

    def host_memory(self) -> HostMemory:
        return HostMemory(self.resident_bytes, self.minor_faults)

    def cache_bytes(self) -> int | None:
        return self.cache

    def cache_sweeper(self) -> Callable[[], None] | None:
        return None if self.cache is None else self._sweep

    def _sweep(self) -> None:
        self._host_works(1_000_000)
        self._swept = True

    def fallbacks(self) -> frozenset[str] | None:
        return None if self.fallen_back is None else frozenset(self.fallen_back)

    def host_waits(self) -> list[HostWait]:
        # A framework's own waits are operators; the fake has none, and calls its copies as the trace does.
        return [
            HostWait(self, "synchronize", "FakeDevice.synchronize"),
            HostWait(self, "wait_for_copy", "aten::copy_"),
        ]

    def condition(self) -> DeviceState:
        share, capped = (1.0, None) if self.cap is None else self.cap.clocked
        untroubled = DeviceState(
            throttled=False, power_capped=capped, clock=share * 1e9, rated_clock=1e9, foreign_processes=[]
        )
        return self.conditions.pop(0) if self.conditions else untroubled

    def telemetry(self) -> DeviceState | None:
        return self.reported

    def place(self, model: Any) -> Any:
        return model

    def park(self, model: Any) -> None:
        """Do nothing: a model of the fake holds no memory."""

    def unpark(self, model: Any) -> None:
        """As ``park``."""

    def free_memory(self) -> FreeMemory | None:
        limit = self.memory_limit
        return None if limit is None else FreeMemory(limit - self.used_bytes, limit)

    def empty_cache(self) -> None:
        """There is no cache."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, FakeOutOfMemoryError)

    def inference_mode(self) -> AbstractContextManager[None]:
        return nullcontext()

    # How it works.

    def _duration(self, op: str, ns: int) -> int:
        number = self.launches.get(op, 0)
        self.launches[op] = number + 1
        script = self.kernel_times.get(op, ns)
        if callable(script):
            ns = script(number)
        elif isinstance(script, Sequence):
            ns = script[min(number, len(script) - 1)]
        else:
            ns = script
        ns, self._swept = ns + self._swept * self.cold_ns, False
        return self._jittered(ns, self._noise)

    def _jittered(self, ns: int, sigma: float) -> int:
        return round(ns * self._random.lognormal(0.0, sigma)) if sigma else ns

    def _at_limit(self, duration: int) -> int:
        """The duration of a kernel at the clock that the power limit leaves, which heats the card up."""
        if self.cap is None:
            return duration
        idle_ns = max(0, self.host_ns - self.free_ns[self.current])
        self.cap.pass_time(idle_ns / 1e9, load=0.0)
        duration = round(duration / self.cap.clocked.share)
        self.cap.pass_time(duration / 1e9, load=1.0)
        return duration

    def _run(self, queue: Queue, duration: int) -> tuple[int, int]:
        start = max(self.host_ns, self.free_ns[queue])
        self.free_ns[queue] = start + duration
        return start, start + duration

    def _host_works(self, ns: int) -> None:
        self.host_ns += ns
        self.cpu_ns += ns

    def _upload(self, tensor: FakeTensor, non_blocking: bool) -> FakeTensor:
        if tensor.place == "device":
            return tensor
        uploaded = self.allocate(tensor.bytes, tensor.items)
        kind = "Memcpy HtoD (Pinned -> Device)" if tensor.pinned else "Memcpy HtoD (Pageable -> Device)"
        # "For transfers between device memory and pageable host memory, the function might be synchronous with respect
        # to host" (CUDA driver API, "API synchronization behavior", Memcpy, asynchronous).
        waits = not (tensor.pinned and non_blocking)
        bandwidth = self.pinned_bandwidth if tensor.pinned else self.pageable_bandwidth
        self._copy(kind, tensor.bytes, bandwidth, waits=waits)
        return uploaded

    def _download(self, tensor: FakeTensor) -> FakeTensor:
        if tensor.place == "device":
            self._copy("Memcpy DtoH (Device -> Pageable)", tensor.bytes, self.pageable_bandwidth, waits=True)
        return FakeTensor(tensor.items, tensor.bytes)

    def _copy(self, kind: str, size: int, bandwidth: float, *, waits: bool) -> None:
        began = self.host_ns
        self._host_works(self.launch_ns)
        start, end = self._run(self.current, round(size / bandwidth * 1e9))
        if waits:
            self.wait_for_copy(end)
        if self._log:
            self._log.copy(kind, size, began, self.host_ns, start, end, stream=self.current)

    def wait_for_copy(self, end: int) -> None:
        """Let the host wait until a copy is done."""
        self.host_ns = end

    def _release(self, size: int) -> None:
        self.used_bytes -= size


def _each(batch: Any, function: Callable[[FakeTensor], Any]) -> Any:
    if isinstance(batch, FakeTensor):
        return function(batch)
    if isinstance(batch, dict):
        return {key: _each(value, function) for key, value in batch.items()}
    if isinstance(batch, (list, tuple)):
        return type(batch)(_each(value, function) for value in batch)
    return batch

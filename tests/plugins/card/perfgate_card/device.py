"""The card as a device of perfgate, with the CPU's tensors in place of its own."""

from __future__ import annotations

import gc
import gzip
import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.device import (
    Capability,
    Device,
    FreeMemory,
    HostWait,
    KernelRun,
    MemoryCount,
    MemoryStatistics,
)
from perfgate.system.garbage import all_objects
from perfgate.trace.model.events import CALL
from perfgate_card.driver import (
    CLOCK_HZ,
    COPY_BANDWIDTH,
    MEMORY_BYTES,
    Card,
    CardMemoryError,
    Graph,
    Kernel,
    card,
    wait_until,
)

KIND = "card"
_HOST, _STREAM = 1, 7


def open_device(index: int = 0) -> CardDevice:
    del index
    return CardDevice(card())


def to_card(model: Any) -> Any:
    """Take the memory of a module on the card: ``bytes_on_card`` of it, in a block that is free once the module is."""
    opened = card()
    model.block_on_card = opened.allocate(model.bytes_on_card)
    opened.launch("copy to card", model.bytes_on_card / COPY_BANDWIDTH)
    opened.synchronize()
    return model


class CardEvent:
    """A mark in the queue: the time at which everything before it has run."""

    def __init__(self, opened: Card) -> None:
        self._card = opened
        self._time_ns = 0

    def record(self) -> None:
        now = _clock_ns()
        self._time_ns = max(now, self._card.free_ns)

    def wait(self) -> None:
        wait_until(self._time_ns)

    def time_ns(self) -> int:
        return self._time_ns


class CardDevice(Device):
    """Fulfils ``Device``."""

    kind = KIND
    index = 0
    name = "software card"
    capabilities: frozenset[Capability] = frozenset(
        {"own_memory", "queue", "kernel_timeline", "kernel_times", "allocation_count"}
    )

    def __init__(self, opened: Card) -> None:
        self.card = opened

    def handle(self) -> Any:
        import torch

        # The host's is cpu, without a number.
        return torch.device("cpu", 0)

    def place(self, model: Any) -> Any:
        return to_card(model)

    def park(self, model: Any) -> None:
        if any(isinstance(entry, Graph) for entry in all_objects()):
            # Its kernels have the addresses of the weights.
            raise UnmeasuredError(Message("device.captured-graph"))
        self.synchronize()
        del model.block_on_card

    def unpark(self, model: Any) -> None:
        to_card(model)

    def visible_devices(self) -> int:
        return 1

    def properties(self) -> dict[str, str]:
        return {"model": self.name, "memory": str(MEMORY_BYTES)}

    def synchronize(self) -> None:
        self.card.synchronize()

    def event(self) -> CardEvent:
        return CardEvent(self.card)

    def to_device(self, batch: Any, *, non_blocking: bool = False) -> Any:
        self.card.launch("copy to card", self.bytes_of(batch) / 1e10)
        if not non_blocking:
            self.synchronize()
        return batch

    def pin(self, batch: Any) -> Any:
        return batch

    def to_host(self, output: Any) -> Any:
        self.card.launch("copy to host", self.bytes_of(output) / 1e10)
        self.synchronize()
        return output

    def copy_stream(self) -> AbstractContextManager[None]:
        return nullcontext()

    def record_trace(self, call: Callable[[], Any], *, calls: int, folder: Path, name: str) -> Path:
        """Write calls and kernels as torch's profiler does (Chrome trace events of Kineto)."""
        path = folder / f"{name}.json.gz"
        kernels, spans = self._profile(call, calls)
        events = [_span(began, ended) for began, ended in spans]
        for number, kernel in enumerate(kernels):
            events += _launched(number, kernel)
        document = {"schemaVersion": 1, "baseTimeNanoseconds": 0, "traceEvents": events}
        path.write_bytes(gzip.compress(json.dumps(document).encode()))
        return path

    def record_kernels(self, call: Callable[[], Any], *, calls: int) -> list[KernelRun]:
        kernels, _ = self._profile(call, calls)
        runs: list[KernelRun] = []
        for kernel in kernels:
            if not kernel.name.startswith("copy"):
                ns = kernel.end_ns - kernel.start_ns
                runs.append(KernelRun(kernel.name, "", _STREAM, kernel.start_ns, ns, kernel.cycles))
        return runs

    def _profile(self, call: Callable[[], Any], calls: int) -> tuple[list[Kernel], list[tuple[int, int]]]:
        """The kernels of these calls, and when each call began and ended."""
        spans: list[tuple[int, int]] = []
        kernels = self.card.log = []
        try:
            for _ in range(calls):
                began = _clock_ns()
                call()
                self.synchronize()
                spans.append((began, _clock_ns()))
        finally:
            self.card.log = None
        return kernels, spans

    def count_memory(self, calls: Sequence[Callable[[], Any]]) -> list[MemoryCount]:
        return [self._memory_of(call) for call in calls]

    def _memory_of(self, call: Callable[[], Any]) -> MemoryCount:
        gc.collect()
        used, allocations = self.card.used_bytes, self.card.allocations
        self.card.peak_bytes = used
        output = call()
        del output
        gc.collect()
        return MemoryCount(
            self.card.allocations - allocations, self.card.peak_bytes - used, self.card.used_bytes - used
        )

    def memory_statistics(self) -> MemoryStatistics:
        return MemoryStatistics(
            allocated=self.card.used_bytes,
            peak_allocated=self.card.peak_bytes,
            peak_reserved=self.card.peak_bytes,
            segments=1,
            retries=0,
        )

    def free_memory(self) -> FreeMemory:
        return FreeMemory(self.card.free_bytes(), MEMORY_BYTES)

    def reset_memory_peaks(self) -> None:
        self.card.peak_bytes = self.card.used_bytes

    def cache_bytes(self) -> int | None:
        return None

    def cache_sweeper(self) -> Callable[[], None] | None:
        return None

    def host_waits(self) -> list[HostWait]:
        return [HostWait(Card, "synchronize", "Card.synchronize")]

    def condition(self) -> DeviceState:
        """The card says at once what it is held by."""
        clock = self.card.clock_share * CLOCK_HZ
        return DeviceState(
            throttled=False, power_capped=self.card.is_limited, clock=clock, rated_clock=CLOCK_HZ, foreign_processes=[]
        )

    def telemetry(self) -> None:
        return None

    def empty_cache(self) -> None:
        """Do nothing: the card keeps no memory that is free."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        return isinstance(error, CardMemoryError)


def _clock_ns() -> int:
    from time import perf_counter_ns

    return perf_counter_ns()


def _span(began: int, ended: int) -> dict[str, Any]:
    return _event("user_annotation", CALL, began, ended, _HOST, {})


def _launched(number: int, kernel: Kernel) -> list[dict[str, Any]]:
    """The launch of a kernel on the host, and the kernel."""
    correlation = {"correlation": number}
    launch = _event("cuda_runtime", "launch", kernel.start_ns - 2_000, kernel.start_ns - 1_000, _HOST, correlation)
    on_card = {**correlation, "device": 0, "stream": _STREAM}
    return [launch, _event("kernel", kernel.name, kernel.start_ns, kernel.end_ns, _STREAM, on_card)]


def _event(category: str, name: str, start: int, end: int, thread: int, values: dict[str, Any]) -> dict[str, Any]:
    process = 0 if thread == _STREAM else _HOST
    times = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread, **times, "args": values}

"""End-to-end calls in three ways of copying, timed as a whole or with events around each copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from perfgate.measuring.devices.device import Device, Event
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload

DEVICE_ONLY = "device"
PLAIN = "pageable"
MODES = (PLAIN, "pinned", "prefetch")


class Transfers:
    """Makes end-to-end calls on a pool of host batches made beforehand: making them is no part of the transfer."""

    def __init__(self, workload: BoundWorkload, device: Device, shape: str) -> None:
        self._workload = workload
        self._device = device
        self._hosts = [workload.host_inputs(shape, index=index) for index in range(POOL_SIZE)]
        self._pinned = [device.pin(host) for host in self._hosts]
        self._next = device.to_device(self._pinned[0], non_blocking=True)
        self._cursor = 0
        self.input_bytes = device.bytes_of(self._hosts[0])
        self.calls: dict[str, Callable[[], Any]] = {
            DEVICE_ONLY: workload.caller(shape),
            **{mode: self._caller(mode) for mode in MODES},
        }

    def _caller(self, mode: str) -> Callable[[], Any]:
        return lambda: self.end_to_end(mode)

    def end_to_end(self, mode: str, marks: _Marks | None = None) -> Any:
        """Bring an input over, call, bring the output back. With ``prefetch`` the next input travels meanwhile."""
        self._cursor = (self._cursor + 1) % POOL_SIZE
        inputs = self._next if mode == "prefetch" else self._upload(mode, marks)
        with marks.around("compute") if marks else nullcontext():
            output = self._workload.invoke(inputs)
        if mode == "prefetch":
            with self._device.copy_stream():
                self._next = self._upload(mode, marks)
        with marks.around("down") if marks else nullcontext():
            self._device.to_host(output)
        return output

    def _upload(self, mode: str, marks: _Marks | None) -> Any:
        with marks.around("up") if marks else nullcontext():
            if mode == PLAIN:
                return self._device.to_device(self._hosts[self._cursor])
            return self._device.to_device(self._pinned[self._cursor], non_blocking=True)


class _Marks:
    """Pairs of events around the copies and the compute of one call."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pairs: list[tuple[str, Event, Event]] = []

    @contextmanager
    def around(self, kind: str) -> Iterator[None]:
        """Mark what is queued in the context, in the stream that is current there."""
        before, after = self._device.event(), self._device.event()
        self._pairs.append((kind, before, after))
        before.record()
        yield
        after.record()

    def spans(self, kind: str) -> list[tuple[int, int]]:
        """Return begin and end in device nanoseconds; valid after a synchronisation."""
        return [(before.time_ns(), after.time_ns()) for name, before, after in self._pairs if name == kind]


@dataclass(frozen=True)
class MarkedCall:
    """Nanoseconds of one call: as a whole, copying up and down, and copying while nothing was computed."""

    wall: int
    up: int
    down: int
    exposed: int


@dataclass(frozen=True)
class Marked:
    """Calls of one way of copying, and the bytes that one call copies up and down."""

    calls: list[MarkedCall]
    input_bytes: int
    output_bytes: int


def mark_calls(device: Device, transfers: Transfers, mode: str, *, calls: int) -> Marked:
    """Make calls with events around copies and compute; apart from the timed ones, which the events would slow down.

    Compute is all the time from the first kernel of a call to its last, pauses between them included.
    """
    output_bytes, marked = 0, []
    for _ in range(calls):
        marks = _Marks(device)
        started = device.clock_ns()
        output = transfers.end_to_end(mode, marks)
        device.synchronize()
        wall = device.clock_ns() - started
        output_bytes = device.bytes_of(output)
        up, down, compute = (marks.spans(kind) for kind in ("up", "down", "compute"))
        exposed = sum(_outside(span, compute) for span in up + down)
        marked.append(MarkedCall(wall=wall, up=_length(up), down=_length(down), exposed=exposed))
    return Marked(marked, transfers.input_bytes, output_bytes)


def _length(spans: list[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in spans)


def _outside(span: tuple[int, int], others: list[tuple[int, int]]) -> int:
    """Return how much of a span lies outside the others, which do not overlap each other."""
    begin, end = span
    return end - begin - sum(max(0, min(end, stop) - max(begin, start)) for start, stop in others)

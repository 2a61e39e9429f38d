"""Shared by the backends: a device behind a module of torch (``torch.npu``,
``torch.cuda``).
"""

from __future__ import annotations

import abc
import gc
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

# The functions themselves, taken before user code runs: it may put others into the
# module.
from time import perf_counter_ns
from typing import Any, TypeVar

from perfgate.document.message import Message, MessageValue, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.batches import each_tensor, tensors
from perfgate.measuring.devices.device import (
    Call,
    Device,
    DeviceEvent,
    FreeMemory,
    HostWait,
    MemoryCount,
    MemoryStatistics,
)
from perfgate.system.garbage import all_objects

GIB = 1 << 30
# elapsed_time gives milliseconds as float32: a quarter of a second apart a step is 15
# ns, ten seconds apart 1 us. So event times span no longer interval than this if
# possible.
ANCHOR_SECONDS = 0.05
# Allocations of one call, from the allocator's statistics. Requested bytes if the
# allocator keeps them (not in torch_npu 2.1), else rounded up to its blocks of 512 B.
_GRAPHS = ("CUDAGraph", "NPUGraph")
_ALLOCATIONS = "allocation.all.allocated"
_REQUESTED_BYTES, _ROUNDED_BYTES = "requested_bytes.all", "allocated_bytes.all"


class AcceleratorDevice(Device, abc.ABC):
    """The part of ``Device`` that ``torch.npu`` and ``torch.cuda`` do alike; ``module``
    is one of them.

    Opening takes the device: it becomes the current one of this process.
    """

    def __init__(self, module: Any, index: int) -> None:
        module.set_device(index)
        self.index = index
        self.module = module
        self._synchronize: Callable[[], None] = module.synchronize
        self._timeline = _Timeline(module)
        self._copies: Any | None = None
        self._main: Any | None = None

    def handle(self) -> Any:
        import torch

        return torch.device(self.kind, self.index)

    def visible_devices(self) -> int:
        return int(self.module.device_count())

    def synchronize(self) -> None:
        self._synchronize()

    def event(self) -> DeviceEvent:
        return AcceleratorEvent(self._timeline)

    def to_device(self, batch: Any, *, non_blocking: bool = False) -> Any:
        place = self.handle()
        moved = each_tensor(
            batch, lambda tensor: tensor.to(place, non_blocking=non_blocking)
        )
        if self._main is not None:
            for tensor in tensors(moved):
                # It was made in the copy stream. Without this the allocator would give
                # its memory to the next copy while the main stream still reads it.
                tensor.record_stream(self._main)
        return moved

    def pin(self, batch: Any) -> Any:
        def pinned(tensor: Any) -> Any:
            if tensor.device.type != "cpu" or tensor.is_pinned():
                return tensor
            return tensor.pin_memory()

        return each_tensor(batch, pinned)

    def to_host(self, output: Any) -> Any:
        return each_tensor(output, lambda tensor: tensor.cpu())

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        if self._copies is None:
            self._copies = self.module.Stream()
        before, self._main = self._main, self.module.current_stream()
        main = self._main
        try:
            with self.module.stream(self._copies):
                yield
        finally:
            self._main = before
        main.wait_stream(self._copies)

    def count_memory(self, calls: Sequence[Call]) -> list[MemoryCount] | None:
        """The allocations of each call, from the statistics of the caching allocator.

        ``peak_bytes`` is the peak above the memory held before, so memory that the call
        itself frees before it allocates more is not counted. Allocations outside
        torch's allocator are invisible: workspaces of torch_npu, the plans of a
        library.
        """
        return [self._memory_of(call) for call in calls]

    def _memory_of(self, call: Call) -> MemoryCount:
        self._settle()
        self.reset_memory_peaks()
        before = self._memory()
        output = call()
        self._settle()
        peak = _held(self._memory(), "peak")
        del output
        self._settle()
        after = self._memory()
        return MemoryCount(
            allocations=after[_ALLOCATIONS] - before[_ALLOCATIONS],
            peak_bytes=peak - _held(before, "current"),
            kept_bytes=_held(after, "current") - _held(before, "current"),
        )

    def _settle(self) -> None:
        """Let everything end that may still take memory or give it back: garbage, and a
        queue behind the host's back.
        """
        gc.collect()
        self._synchronize()

    def _memory(self) -> Mapping[str, int]:
        statistics: Mapping[str, int] = self.module.memory_stats(self.index)
        return statistics

    def memory_statistics(self) -> MemoryStatistics | None:
        stats = self._memory()
        return MemoryStatistics(
            allocated=stats["allocated_bytes.all.current"],
            peak_allocated=stats["allocated_bytes.all.peak"],
            peak_reserved=stats["reserved_bytes.all.peak"],
            segments=stats["segment.all.allocated"],
            retries=stats["num_alloc_retries"],
        )

    def park(self, model: Any) -> None:
        self._settle()
        for tensor in weights_of(model):
            tensor.data = tensor.data.cpu().pin_memory()
        self.empty_cache()

    def unpark(self, model: Any) -> None:
        for tensor in weights_of(model):
            tensor.data = tensor.data.to(self.handle(), non_blocking=True)
        self._synchronize()

    def free_memory(self) -> FreeMemory | None:
        return FreeMemory(*self.module.mem_get_info(self.index))

    def reset_memory_peaks(self) -> None:
        self.module.reset_peak_memory_stats(self.index)

    def cache_bytes(self) -> int | None:
        """The size of the L2 cache; not in the properties of an older torch."""
        size = getattr(
            self.module.get_device_properties(self.index), "L2_cache_size", None
        )
        return size or None

    def telemetry(self) -> DeviceState | None:
        try:
            return self.read_tool()
        except MeasuringError:
            return None

    @abc.abstractmethod
    def read_tool(self) -> DeviceState:
        """The state as the vendor's tool prints it.

        Raises MeasuringError if it does not.
        """

    def cache_sweeper(self) -> Callable[[], None] | None:
        """A function that reads twice the L2 cache; None also if the device's memory is
        too full for that.
        """
        size = self.cache_bytes()
        if size is None:
            return None
        try:
            return sweeper(self.handle(), 2 * size, self.synchronize)
        except RuntimeError as error:
            if self.is_out_of_memory(error):
                return None
            raise

    def host_waits(self) -> list[HostWait]:
        import torch

        return [
            HostWait(self.module, "synchronize", f"torch.{self.kind}.synchronize"),
            HostWait(self.module.Event, "synchronize", "Event.synchronize"),
            HostWait(self.module.Stream, "synchronize", "Stream.synchronize"),
            HostWait(torch.accelerator, "synchronize", "torch.accelerator.synchronize"),
        ]

    def empty_cache(self) -> None:
        self.module.empty_cache()

    def is_out_of_memory(self, error: BaseException) -> bool:
        import torch

        # Some allocators (torch_npu's of old) raise a plain RuntimeError.
        oom = f"{self.kind.upper()} out of memory" in text_of_error(error)
        return oom or isinstance(error, (torch.OutOfMemoryError, MemoryError))


Accelerator = TypeVar("Accelerator", bound=AcceleratorDevice)


class AcceleratorEvent:
    """A mark in the device's queue; fulfils ``DeviceEvent``."""

    def __init__(self, timeline: _Timeline) -> None:
        self._timeline = timeline
        # Created here, outside the timed region.
        self._event = timeline.event()
        self._mark: _Mark | None = None

    def record(self) -> None:
        if self._mark is not None:  # it may be the anchor of others
            self._event = self._timeline.event()
        self._mark = self._timeline.mark(self._event)

    def wait(self) -> None:
        self._recorded.event.synchronize()

    def time_ns(self) -> int:
        return self._recorded.time_ns()

    @property
    def _recorded(self) -> _Mark:
        if self._mark is None:
            raise RuntimeError("the event was never recorded")
        return self._mark


class _Timeline:
    """Device time as a chain of anchors: events, each a short while after its
    predecessor.

    An event's time is its anchor's plus the elapsed time, in device time throughout:
    the host clock only provides the origin, so the difference of two events never
    contains a jump of the host's clock.
    """

    def __init__(self, module: Any) -> None:
        self._module = module
        self._anchor: _Mark | None = None

    def event(self) -> Any:
        return self._module.Event(enable_timing=True)

    def mark(self, event: Any) -> _Mark:
        now = perf_counter_ns()
        anchor = self._anchor
        event.record()
        mark = _Mark(event, now, anchor, known_ns=now if anchor is None else None)
        if anchor is None or now - anchor.host_ns > ANCHOR_SECONDS * 1e9:
            self._anchor = mark
        return mark


@dataclass
class _Mark:
    """One recorded event, and the anchor recorded before it; the first of all knows its
    time from the host.
    """

    event: Any
    host_ns: int
    anchor: _Mark | None
    known_ns: int | None

    def time_ns(self) -> int:
        """Its device time, computed along with any unknown times in the chain behind
        it.
        """
        unknown = []
        mark: _Mark | None = self
        while mark is not None and mark.known_ns is None:
            unknown.append(mark)
            mark = mark.anchor
        for mark in reversed(unknown):
            anchor = mark.anchor
            assert anchor is not None
            assert anchor.known_ns is not None
            anchor.event.synchronize()
            mark.event.synchronize()
            mark.known_ns = anchor.known_ns + round(
                anchor.event.elapsed_time(mark.event) * 1e6
            )
            # The chain behind a known time is no longer needed.
            mark.anchor = None
        assert self.known_ns is not None
        return self.known_ns


def text_of_error(error: BaseException) -> str:
    """The text of an exception; empty if it fails to print itself, as a user's own
    class may.
    """
    try:
        return str(error)
    except Exception:  # noqa: BLE001
        return ""


def _held(stats: Mapping[str, int], kind: str) -> int:
    name = f"{_REQUESTED_BYTES}.{kind}"
    if name not in stats:
        name = f"{_ROUNDED_BYTES}.{kind}"
    return stats[name]


def sweeper(
    place: Any, size: int, synchronize: Callable[[], None]
) -> Callable[[], None]:
    """A function that reads ``size`` bytes of memory of a ``torch.device`` and waits
    until that is done.
    """
    import torch

    # Written once: memory that was never written is one page of zeros over and over,
    # and reading it evicts no other.
    buffer = torch.ones(
        size // torch.float32.itemsize, dtype=torch.float32, device=place
    )

    def sweep() -> None:
        buffer.sum()
        synchronize()

    return sweep


def weights_of(model: Any) -> list[Any]:
    """The parameters and buffers of a module, which are moved one by one.

    Raises MeasuringError if that would change what they are: for views of one storage,
    or under a captured graph, which keeps the addresses.
    """
    weights = list(
        {
            id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())
        }.values()
    )
    addresses = [
        tensor.untyped_storage().data_ptr() for tensor in weights if tensor.numel()
    ]
    if len(set(addresses)) < len(addresses):
        raise UnmeasuredError(Message("device.shared-weights"))
    if any(type(entry).__name__ in _GRAPHS for entry in all_objects()):
        raise UnmeasuredError(Message("device.captured-graph"))
    return weights


def open_accelerator(
    device: type[Accelerator],
    module: Any,
    index: int,
    *,
    package: str,
    absent: str,
    taken: str,
) -> Accelerator:
    """Raises UnmeasuredError if there is no such device, or another process has taken
    it.
    """
    count = int(module.device_count())
    if count == 0:
        raise UnmeasuredError(Message(absent))
    if index >= count:
        values: dict[str, MessageValue] = {
            "kind": device.kind,
            "package": package,
            "index": index,
            "count": count,
        }
        raise UnmeasuredError(
            Message("device.not-there", {**values, "last": count - 1})
        )
    try:
        return device(module, index)
    except RuntimeError as error:
        raise UnmeasuredError(
            Message(taken, {"index": index, "error": first_line(error)})
        ) from error


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def require_packages(*names: str, install: Message | str) -> None:
    """Raise MeasuringError, with the command to install, if this interpreter lacks one
    of the packages.
    """
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise UnmeasuredError(
                Message("device.not-installed", {"name": name, "install": install})
            )

"""What devices behind a torch module of their own share (``torch.npu``, ``torch.cuda``): queue, copies, memory, events."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager

# The functions themselves, taken before user code runs: it may put others into the module.
from time import perf_counter_ns
from typing import Any

from perfgate.measuring.devices.backends._shared import HostReadings, sweeper
from perfgate.measuring.devices.batches import bytes_of, each_tensor, tensors
from perfgate.measuring.devices.device import Event, HostWait, MemoryCount, MemoryStatistics

# elapsed_time gives milliseconds as float32: a quarter of a second apart a step is 15 ns, ten seconds apart 1 us. So no
# event's time is taken over a longer way than this where it can be helped.
ANCHOR_SECONDS = 0.05
# What one call took, from the allocator's statistics. Bytes as asked for where the allocator keeps them (not in torch_npu
# 2.1), else rounded up to its blocks of 512 B.
_ALLOCATIONS = "allocation.all.allocated"
_BYTES = ("requested_bytes.all", "allocated_bytes.all")


class AcceleratorDevice(HostReadings):
    """The part of ``Device`` that ``torch.npu`` and ``torch.cuda`` do alike; ``module`` is one of them.

    Opening takes the device: it becomes the current one of this process.
    """

    kind: str

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

    def identity(self) -> str:
        return ""

    def visible_devices(self) -> int:
        return int(self.module.device_count())

    def synchronize(self) -> None:
        self._synchronize()

    def event(self) -> Event:
        return AcceleratorEvent(self._timeline)

    def to_device(self, batch: Any, *, pinned: bool = False, non_blocking: bool = False) -> Any:
        """Copy a batch to the device; ``pinned`` puts it into page-locked memory first."""
        import torch

        def upload(tensor: Any) -> Any:
            host = tensor.pin_memory() if pinned and not _is_pinned(tensor) else tensor
            return host.to(torch.device(self.kind, self.index), non_blocking=non_blocking)

        moved = each_tensor(batch, upload)
        if self._main is not None:
            for tensor in tensors(moved):
                # It was made in the copy stream: told nothing, the allocator would give its memory to the next copy while
                # the main stream still reads it.
                tensor.record_stream(self._main)
        return moved

    def pin(self, batch: Any) -> Any:
        return each_tensor(batch, lambda tensor: tensor if _is_pinned(tensor) else tensor.pin_memory())

    def to_host(self, output: Any) -> Any:
        return each_tensor(output, lambda tensor: tensor.cpu())

    @contextmanager
    def copy_stream(self) -> Iterator[None]:
        """A context whose copies go to a stream of their own; after it the main stream waits for them."""
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

    def bytes_of(self, batch: Any) -> int:
        return bytes_of(batch)

    def count_memory(self, calls: Sequence[Callable[[], Any]]) -> list[MemoryCount] | None:
        """What each call allocates, from the statistics of the caching allocator.

        ``peak_bytes`` is what it holds at most beyond what was held before it, so memory that the call itself gives back
        before it takes more is not counted. What an operator takes past torch's allocator does not show: workspaces of
        torch_npu, the plans of a library.
        """
        return [self._memory_of(call) for call in calls]

    def memory_statistics(self) -> MemoryStatistics | None:
        stats = self._memory()
        return MemoryStatistics(
            allocated=stats["allocated_bytes.all.current"],
            peak_allocated=stats["allocated_bytes.all.peak"],
            reserved=stats["reserved_bytes.all.current"],
            peak_reserved=stats["reserved_bytes.all.peak"],
            inactive_split=stats["inactive_split_bytes.all.current"],
            segments=stats["segment.all.allocated"],
            retries=stats["num_alloc_retries"],
        )

    def reset_memory_peaks(self) -> None:
        self.module.reset_peak_memory_stats(self.index)

    def cache_bytes(self) -> int | None:
        return None

    def cache_sweeper(self) -> Callable[[], None] | None:
        """A function that reads twice the L2 cache; None also where the device's memory is too full for that."""
        size = self.cache_bytes()
        try:
            return None if size is None else sweeper(self.handle(), 2 * size, self.synchronize)
        except RuntimeError as error:
            if self.is_out_of_memory(error):
                return None
            raise

    def _memory_of(self, call: Callable[[], Any]) -> MemoryCount:
        self._settle()
        self.module.reset_peak_memory_stats(self.index)
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
        """Let everything end that may still take memory or give it back: garbage, and a queue behind the host's back."""
        gc.collect()
        self._synchronize()

    def _memory(self) -> Mapping[str, int]:
        statistics: Mapping[str, int] = self.module.memory_stats(self.index)
        return statistics

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
        oom = f"{self.kind.upper()} out of memory" in str(error)
        return oom or isinstance(error, (torch.OutOfMemoryError, MemoryError))

    def inference_mode(self) -> AbstractContextManager[Any]:
        import torch

        return torch.inference_mode()


class _Timeline:
    """Device time as a chain of anchors: events, each a short while after the one before it.

    An event's time is its anchor's and what elapsed since, in device time throughout: the host clock gives nothing but the
    origin, so the difference of two events never holds a jump of the host's.
    """

    def __init__(self, module: Any) -> None:
        self.module = module
        self._anchor: _Mark | None = None

    def event(self) -> Any:
        return self.module.Event(enable_timing=True)

    def mark(self, event: Any) -> _Mark:
        """Put an event into the current stream."""
        now = perf_counter_ns()
        anchor = self._anchor
        event.record()
        if anchor is None:
            mark = _Mark(event, host_ns=now, anchor=None, time_ns=now)
        else:
            mark = _Mark(event, host_ns=now, anchor=anchor)
        if anchor is None or now - anchor.host_ns > ANCHOR_SECONDS * 1e9:
            self._anchor = mark
        return mark


class _Mark:
    """One recorded event, and the anchor recorded before it; the first of all knows its time from the host."""

    def __init__(self, event: Any, *, host_ns: int, anchor: _Mark | None, time_ns: int | None = None) -> None:
        self.event = event
        self.host_ns = host_ns
        self._anchor = anchor
        self._time_ns = time_ns

    def time_ns(self) -> int:
        """Its device time; what is not known yet of the chain behind it is worked out on the way."""
        unknown = []
        mark: _Mark | None = self
        while mark is not None and mark._time_ns is None:
            unknown.append(mark)
            mark = mark._anchor
        for later in reversed(unknown):
            later._measure()
        assert self._time_ns is not None
        return self._time_ns

    def _measure(self) -> None:
        anchor = self._anchor
        assert anchor is not None
        assert anchor._time_ns is not None
        for event in (anchor.event, self.event):
            event.synchronize()
        self._time_ns = anchor._time_ns + round(anchor.event.elapsed_time(self.event) * 1e6)
        # What lies behind a known time is not needed any more.
        self._anchor = None


class AcceleratorEvent:
    """A mark in the device's queue; fulfils ``Event``."""

    def __init__(self, timeline: _Timeline) -> None:
        self._timeline = timeline
        # Made here, so that making it is no part of what is timed.
        self._event = timeline.event()
        self._mark: _Mark | None = None

    def record(self) -> None:
        # One that was recorded may be the anchor of others.
        event = self._event if self._mark is None else self._timeline.event()
        self._mark = self._timeline.mark(event)

    def wait(self) -> None:
        self._recorded.event.synchronize()

    def time_ns(self) -> int:
        return self._recorded.time_ns()

    @property
    def _recorded(self) -> _Mark:
        if self._mark is None:
            raise RuntimeError("the event was never recorded")
        return self._mark


def _is_pinned(tensor: Any) -> bool:
    return bool(tensor.device.type != "cpu" or tensor.is_pinned())


def _held(stats: Mapping[str, int], kind: str) -> int:
    name = next((name for name in _BYTES if f"{name}.{kind}" in stats), _BYTES[-1])
    return stats[f"{name}.{kind}"]

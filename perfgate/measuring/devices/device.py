"""The operations of a device, and the capabilities that it may have."""

from __future__ import annotations

import gzip
import os
import resource
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

# The functions themselves, taken before user code runs: it may put others into the module.
from time import perf_counter_ns, process_time_ns, sleep, thread_time_ns
from typing import Any, Literal, NamedTuple, Protocol

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.batches import bytes_of
from perfgate.system.processes import RunDelay, run_delay_ns

Capability = Literal[
    "own_memory",  # host and device memory are two: inputs must be copied
    "queue",  # calls return before the device is done
    "kernel_timeline",  # the trace has a timeline of the device
    "kernel_times",  # the durations of a call's kernels are known as soon as it ended
    "allocation_count",  # allocations of one call can be counted
    "spoiled_by_errors",  # after one failed operator the process cannot be trusted
    "forkable",  # a process can be forked: no driver holds state that would not survive
    "own_formats",  # tensors may be stored in formats of the device
    "late_analysis",  # a trace takes seconds to be analysed, so it had better be recorded now and analysed later
]


# A sleeping thread wakes up to a few hundred microseconds late, so the end of a wait is spent awake.
_WATCHED_NS = 500_000
_STATM = Path("/proc/self/statm")
_PAGE = os.sysconf("SC_PAGE_SIZE")
# One call of a workload, or of another function that is timed like one.
Call = Callable[[], Any]


class MemoryCount(NamedTuple):
    """The memory that one call took from the allocator.

    ``peak_bytes`` is the most its own blocks held at once. ``kept_bytes`` is by how much more is held after the call than
    before it, its output gone and garbage collected; of the first of several calls it may be too much, for a block that
    took the place of an older one.
    """

    allocations: int
    peak_bytes: int
    kept_bytes: int = 0


class MemoryStatistics(NamedTuple):
    """The state of the framework's caching allocator on a device.

    ``allocated`` are the bytes in use; the peaks, also of the bytes taken from the driver (``peak_reserved``), are those since
    they were reset. ``segments`` counts how often the driver was asked for memory, ``retries`` how often it had none left and
    the cache was given back first.
    """

    allocated: int
    peak_allocated: int
    peak_reserved: int
    segments: int
    retries: int


class FreeMemory(NamedTuple):
    """The unused bytes of a device, and all of them."""

    free: int
    total: int


class HostMemory(NamedTuple):
    """The process's memory on the host: resident bytes, and the minor page faults so far, which read no disk."""

    resident: int
    minor_faults: int


class KernelRun(NamedTuple):
    """A kernel that ran: its name and launch size, its stream, when it began, its nanoseconds, and cycles if counted."""

    name: str
    launch: str
    stream: int
    start_ns: int
    ns: int
    cycles: int | None = None


class HostWait(NamedTuple):
    """A function by which user code makes the host wait for the device: ``owner.name``, called ``label`` in reports."""

    owner: Any
    name: str
    label: str


class DeviceEvent(Protocol):
    """A mark in the device's queue."""

    def record(self) -> None:
        """Put the mark into the current stream."""

    def wait(self) -> None:
        """Block the host until the device has passed the mark; work queued behind it goes on."""

    def time_ns(self) -> int:
        """The device time of the mark in nanoseconds; valid after ``wait`` or a synchronisation."""


class HostEvent:
    """A mark on a device without a queue: the host clock when it was recorded."""

    def __init__(self) -> None:
        self._time_ns = 0

    def record(self) -> None:
        self._time_ns = perf_counter_ns()

    def wait(self) -> None:
        """Return at once: the mark is passed when it is recorded."""

    def time_ns(self) -> int:
        return self._time_ns


class Device(Protocol):
    """One accelerator, or the CPU. All times are integer nanoseconds of ``clock_ns``, a monotonic host clock.

    A backend inherits the methods that are the same for all devices of torch, and those that say that it lacks a feature. A
    fake device in tests keeps a virtual clock, so measuring code asks the device for the time and never the system.
    """

    kind: str
    index: int
    name: str
    capabilities: frozenset[Capability]
    _run_delay: RunDelay | None = None

    def handle(self) -> Any:
        """The argument of a workload's ``build`` (a ``torch.device``)."""

    def visible_devices(self) -> int:
        """How many devices of this kind the process sees; the CPU is one."""
        return 1

    def properties(self) -> dict[str, str]:
        """Properties that must be equal for two runs to be comparable: model, memory, driver, runtime versions."""

    def identity(self) -> str:
        """The vendor tools' name of this very device, independent of its index; empty if unknown."""
        return ""

    # --- time

    def clock_ns(self) -> int:
        return perf_counter_ns()

    def timer_ns(self) -> int:
        """What calls are timed by: ``clock_ns``, or within ``leave_out_waits`` a clock that stands still during waits."""
        if self._run_delay is None:
            return perf_counter_ns()
        while True:
            waited_ns = self._run_delay.ns()
            now = perf_counter_ns()
            # A wait between two readings would be in one of them only.
            if self._run_delay.ns() == waited_ns:
                return now - waited_ns

    @contextmanager
    def leave_out_waits(self) -> Iterator[None]:
        """Let ``timer_ns`` stand still while the main thread is ready to run without a CPU.

        Where the kernel does not say how long that was, the timer is the clock all the same.
        """
        try:
            self._run_delay = RunDelay()
        except (OSError, ValueError):
            yield
            return
        try:
            yield
        finally:
            self._run_delay.close()
            self._run_delay = None

    def cpu_clock_ns(self) -> int:
        """The CPU time of the calling thread."""
        return thread_time_ns()

    def process_cpu_ns(self) -> int:
        """The CPU time of the process, all threads."""
        return process_time_ns()

    def run_delay_ns(self) -> int | None:
        """The time that the main thread was ready to run without a CPU; None if the kernel does not report it."""
        return run_delay_ns(os.getpid())

    def idle_until(self, time_ns: int) -> None:
        """Let the host idle until its clock shows a time; return at once if that is past."""
        while (left_ns := time_ns - perf_counter_ns()) > 0:
            if left_ns > _WATCHED_NS:
                sleep((left_ns - _WATCHED_NS) / 1e9)

    def synchronize(self) -> None:
        """Wait until everything queued has run; without a queue a call returns when it is done."""
        return

    def event(self) -> DeviceEvent:
        """A new mark; on a device without a queue its time is the host clock."""
        return HostEvent()

    # --- moving

    def place(self, model: Any) -> Any:
        """Copy a ``torch.nn.Module`` that was built on the host to the device, and return it."""
        return model.to(self.handle())

    def to_device(self, batch: Any, *, non_blocking: bool = False) -> Any:  # noqa: ARG002
        """Copy a batch (tensor, or tuple, list or dict of tensors) to the device; the CPU returns it unchanged."""
        return batch

    def pin(self, batch: Any) -> Any:
        """The batch in page-locked host memory; the CPU returns it unchanged."""
        return batch

    def to_host(self, output: Any) -> Any:
        """Copy an output to the host; the CPU returns it unchanged."""
        return output

    def copy_stream(self) -> AbstractContextManager[None]:
        """A context with a separate stream for copies; after it the main stream waits for them."""
        return nullcontext()

    def park(self, model: Any) -> None:  # noqa: ARG002
        """Move the weights of a module into page-locked memory of the host, and give the device's back."""
        return

    def unpark(self, model: Any) -> None:  # noqa: ARG002
        """Move them back."""
        return

    def bytes_of(self, batch: Any) -> int:
        return bytes_of(batch)

    def inference_mode(self) -> AbstractContextManager[Any]:
        import torch

        return torch.inference_mode()

    # --- profiles

    def record_trace(self, call: Call, *, calls: int, folder: Path, name: str) -> Path:
        """Profile ``calls`` calls and write one file into ``folder``: ``name`` with the suffix of the device's format.

        Returns its path; ``perfgate.trace.read`` understands it. Every call is waited for and stands in a host event
        ``CALL``. A failure leaves no file. By default torch's own profiler writes ``name.json.gz``, which appears under its
        name only when complete.
        """
        from torch.autograd.profiler import record_function

        from perfgate.trace.model.events import CALL

        with self.profiler() as profiler:
            for _ in range(calls):
                with record_function(CALL):
                    call()
                    self.synchronize()
        path = folder / f"{name}.json.gz"
        plain = path.with_name(f".{path.name}.{os.getpid()}.json")
        packed = plain.with_suffix(".gz")
        try:
            profiler.export_chrome_trace(str(plain))
            if not plain.is_file() or not plain.stat().st_size:
                raise UnmeasuredError(
                    Message("device.no-trace-written", {"path": str(path)})
                )
            with (
                plain.open("rb") as source,
                gzip.open(packed, "wb", compresslevel=6) as target,
            ):
                shutil.copyfileobj(source, target, 1 << 20)
            packed.replace(path)
        except OSError as error:
            raise UnmeasuredError(
                Message(
                    "device.trace-not-writable",
                    {"path": str(path), "error": str(error)},
                )
            ) from error
        finally:
            plain.unlink(missing_ok=True)
            packed.unlink(missing_ok=True)
        return path

    def profiler(self) -> Any:
        """A new profiler of torch, to be entered."""
        # torch.profiler.profile imports hundreds of modules when it starts, seconds in a forked worker (torch 2.13: 822
        # modules); the profiler inside it writes the same trace.
        from torch.autograd.profiler import profile

        return profile(use_cpu=True, record_shapes=True, with_stack=True)

    def record_kernels(self, call: Call, *, calls: int) -> list[KernelRun]:  # noqa: ARG002
        """Profile ``calls`` calls, each waited for, and return the kernels that they ran, copies left out.

        Only with capability ``kernel_times``.
        """
        raise MeasuringError(
            "a device of kind {kind} does not report its kernels", kind=self.kind
        )

    def record_raw(self, call: Call, *, calls: int, folder: Path) -> Path:  # noqa: ARG002
        """Profile as ``record_trace`` does, and leave the profiler's output in ``folder`` as it is; return its path.

        Only with capability ``late_analysis``.
        """
        raise MeasuringError(
            "a trace of a device of kind {kind} needs no analysis; record_trace writes it",
            kind=self.kind,
        )

    def analyse_raw(self, folder: Path, recordings: Sequence[Path]) -> list[Path]:  # noqa: ARG002
        """Analyse raw recordings of any process, all in ``folder``; return those that ``perfgate.trace.read`` can now read.

        Raises MeasuringError if none of them can be read.
        """
        return list(recordings)

    # --- memory

    def count_memory(self, calls: Sequence[Call]) -> list[MemoryCount] | None:
        """The allocations of each of these consecutive calls, None without capability ``allocation_count``."""

    def memory_statistics(self) -> MemoryStatistics | None:
        """The state of the caching allocator; None if the framework takes each block from the system."""
        return None

    def reset_memory_peaks(self) -> None:
        """Reset the peaks of ``memory_statistics`` to the memory held now."""
        return

    def host_memory(self) -> HostMemory:
        """The resident bytes (the second number of /proc/self/statm, in pages) and the minor faults of all threads."""
        resident = int(_STATM.read_text().split()[1]) * _PAGE
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        return HostMemory(resident, faults)

    def cache_bytes(self) -> int | None:
        """The size of the last cache before the device's memory, None if unknown."""

    def cache_sweeper(self) -> Callable[[], None] | None:
        """A function that reads twice that cache's size and waits for it, so that other contents are evicted.

        None if the size is unknown or the memory is not free. The memory is held as long as the function is.
        """

    def free_memory(self) -> FreeMemory | None:
        """The device's memory that no process has; None if it is unknown, or the host's."""
        return None

    def empty_cache(self) -> None:
        """Give the allocator's unused memory back to the driver."""
        return

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Whether an exception means that the device's memory is full."""

    # --- state

    def fallbacks(self) -> frozenset[str] | None:
        """The operators (``aten::NAME``) that this process has seen run on the host because the device has none.

        None if that cannot happen or is unknown.
        """
        return None

    def host_waits(self) -> list[HostWait]:
        """The functions that wait without being an operator, such as an explicit synchronize.

        If host and device share memory, functions that pass a tensor's values to Python (``Tensor.tolist``) are among them,
        because no copy to the host reveals them.
        """

    def condition(self) -> DeviceState:
        """Cheap enough to be asked after every block of a few milliseconds.

        Empty by default: a vendor's tool is too slow for that; the conductor asks it in parallel.
        """
        return DeviceState()

    def telemetry(self) -> DeviceState | None:
        """Temperature, power, clock and the like; None if unknown. It may take a second: not while timing."""
        return None

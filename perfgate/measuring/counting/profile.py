"""Profile a few calls at a time, and return each operator's time in a typical one.

Two processes that take turns at this can be compared operator by operator. They share
the machine's momentary state, so a turn is short, and all deferrable work comes after
the last one. Slow calls are sampled by ``locate_stalls``.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

from perfgate.catalogue.names import FUNCTION_TIME, MODULE_TIME
from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.run import OUTSIDE_OPERATORS
from perfgate.document.samples import KernelBlocks
from perfgate.measuring.counting.collect import CallTrace, read_calls, trace_calls
from perfgate.measuring.counting.tally import SourceLines
from perfgate.measuring.devices.device import Call, Device, KernelRun
from perfgate.measuring.devices.kernels import KernelBlock, kernel_columns
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.trace.model.arithmetic import self_times, union_length
from perfgate.trace.model.events import CALL, NO_TEXT, EventTable
from perfgate.trace.model.spans import OUTSIDE, span_of

# Disturbances add time to an operator and never remove any. Of median, lower quartile,
# low quantiles and minimum, each of an operator's sum in a call or of each of its
# events by itself, this one of the events spread least from pair to pair (31 calls of a
# 3 ms transformer on a busy core: 4.5 % for the typical operator, the median 5 to 6 %).
LOW_QUANTILE = 0.25

# One call: for each operator the nanoseconds of self time of its events, in order;
# OUTSIDE_OPERATORS is the rest of the call.
TimesByOperator = dict[str, list[float]]


class OperatorProfile:
    """Profiles calls of a workload, and keeps the profiles until it is asked for the
    operators.

    On a device with kernels in its trace an operator's time is the time of its kernels,
    else its self time on the host.
    """

    def __init__(self, workload: BoundWorkload) -> None:
        self._device = workload.device
        self._callers = {shape: workload.caller(shape) for shape in workload.shapes}
        self._profiles: dict[str, list[Callable[[], list[TimesByOperator]]]] = (
            defaultdict(list)
        )

    def run(self, shape: str, *, calls: int) -> None:
        """Profile some calls of a shape. Raises KeyError for an unknown shape,
        MeasuringError without a profiler.
        """
        call, device = self._callers[shape], self._device
        if "kernel_timeline" in device.capabilities:
            trace = trace_calls(device, call, calls=calls)
            self._profiles[shape].append(partial(_device_calls, trace))
        else:
            # Profile the calls in memory, without shapes and stacks, which cost time
            # for every operator.
            # The profiler is torch's inner one: starting torch.profiler.profile for the
            # first time imports hundreds of modules, seconds in a forked worker (torch
            # 2.13: 822 modules).
            from torch.autograd.profiler import profile, record_function

            with profile(use_cpu=True) as profiler:
                for _ in range(calls):
                    with record_function(CALL):
                        call()
                        device.synchronize()
            if profiler.kineto_results is None:
                raise UnmeasuredError(Message("operators.no-events"))
            self._profiles[shape].append(partial(_host_calls, profiler.kineto_results))

    def leave(self, shape: str, *, calls: int, folder: Path) -> Path:
        """Profile some calls of a shape and leave the recording in ``folder`` for later
        analysis.
        """
        return self._device.record_raw(self._callers[shape], calls=calls, folder=folder)

    def typical_times(self) -> dict[str, dict[str, float]]:
        times: dict[str, dict[str, float]] = {}
        for shape, profiles in self._profiles.items():
            calls: list[TimesByOperator] = []
            for profile in profiles:
                calls += profile()
            if profiles:  # profiling a shape may have failed
                times[shape] = typical_times(calls)
        return times


class RecordedCalls(NamedTuple):
    """The seconds of every operator in a typical call of a recording, and the kernels
    of all its calls as one block.
    """

    operators: dict[str, float]
    kernels: KernelBlocks


def recorded_calls(
    device: Device, folder: Path, recordings: Sequence[Path]
) -> dict[Path, RecordedCalls]:
    """What the recordings in ``folder`` contain; those not complete are left out."""
    recorded = {}
    for recording in device.analyse_raw(folder, recordings):
        trace = read_calls(recording)
        kernels = kernel_columns(
            [KernelBlock(0, trace.calls, _kernel_runs(trace.kernels()))]
        )
        recorded[recording] = RecordedCalls(
            typical_times(_device_calls(trace)), kernels
        )
    return recorded


def _kernel_runs(kernels: EventTable) -> list[KernelRun]:
    """The kernels of a trace by their types, as operators are named.

    Their names and the shapes of their inputs stand for the size of a launch.
    """
    runs = []
    for index in range(len(kernels)):
        launch, shape = kernels.names[kernels.name[index]], int(kernels.shape[index])
        if shape != NO_TEXT:
            launch = f"{launch} {kernels.names[shape]}"
        run = KernelRun(
            name=kernels.names[kernels.group[index]],
            launch=launch,
            stream=int(kernels.track[index]),
            start_ns=int(kernels.start[index]),
            ns=int(kernels.duration[index]),
        )
        runs.append(run)
    return runs


def typical_times(calls: list[TimesByOperator]) -> dict[str, float]:
    """The lower quartile of every operator over the calls, in seconds: per event if
    every call has the same number of them.

    Otherwise it is the lower quartile of the sums.
    """
    typical = {}
    for op in sorted(set().union(*calls)):
        times = [call.get(op, []) for call in calls]
        numbers_of_events = set(map(len, times))
        if len(numbers_of_events) > 1:
            times = [[sum(events)] for events in times]
        typical[op] = (
            float(np.quantile(np.array(times), LOW_QUANTILE, axis=0).sum()) / 1e9
        )
    return typical


def _device_calls(trace: CallTrace) -> list[TimesByOperator]:
    """By the types of kernels; outside them all streams were idle."""
    work, spans = trace.device_work(), trace.spans()
    owners = span_of(work, spans, launches=trace.events.of_kind("runtime"))
    calls: list[TimesByOperator] = []
    for number, length in enumerate((spans.end - spans.start).tolist()):
        busy = union_length(work.select(owners == number).intervals)
        calls.append({OUTSIDE_OPERATORS: [float(max(0, length - busy))]})
    own = self_times(work.start, work.duration, work.track)
    for index in np.argsort(work.start, kind="stable").tolist():
        if owners[index] != OUTSIDE:
            calls[owners[index]].setdefault(work.names[work.group[index]], []).append(
                float(own[index])
            )
    return calls


def _host_calls(results: Any) -> list[TimesByOperator]:
    """The operators of each call; operators of other threads belong to the call in
    which they began.
    """
    from torch._C._profiler import RecordScope, _EventType

    # Looked up once, not per event.
    marks = _EventType.TorchOp, RecordScope.USER_SCOPE
    calls: list[TimesByOperator] = []
    outside = []
    for root in sorted(
        results.experimental_event_tree(), key=lambda root: int(root.start_time_ns)
    ):
        if root.name == CALL:
            calls.append({})
            outside.append(int(root.duration_time_ns))
        if calls:
            # While operators of the backward pass run on another thread, the calling
            # thread waits for them.
            outside[-1] -= _add_operators(root, calls[-1], marks)
    for call, rest in zip(calls, outside):
        call[OUTSIDE_OPERATORS] = [float(max(0, rest))]
    return calls


def _add_operators(node: Any, times: TimesByOperator, marks: tuple[Any, Any]) -> int:
    """Add the self time of every operator at a node and below it; return the
    nanoseconds they cover.

    ``marks`` are the profiler's of operators, and of users' own names.
    """
    operator, named_by_user = marks
    inner = 0
    for child in node.children:
        inner += _add_operators(child, times, marks)
    if node.tag != operator or node.extra_fields.scope == named_by_user:
        return inner
    covered = int(node.duration_time_ns)
    times.setdefault(node.name, []).append(max(0, covered - inner))
    return covered


# The layers of a stack are one subroutine: a change of their code slows them all.
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


class SubroutineTimes:
    """Times calls of a workload, and keeps the times until it is asked for them.

    On a device with a queue these are the times of the host, which launches and does
    not wait.
    """

    def __init__(self, workload: BoundWorkload) -> None:
        self._device = workload.device
        self._callers = {shape: workload.caller(shape) for shape in workload.shapes}
        self._names = _Names(SourceLines(workload.root))
        self._calls: dict[str, list[TimesByOperator]] = defaultdict(list)

    def run(self, shape: str, *, calls: int) -> None:
        for _ in range(calls):
            watch = _Watch(self._names, self._device.clock_ns)
            before = sys.getprofile()
            sys.setprofile(watch.tell)
            try:
                self._callers[shape]()
            finally:
                sys.setprofile(before)
            self._device.synchronize()
            self._calls[shape].append(watch.times)

    def typical_times(self) -> dict[str, dict[str, float]]:
        return {
            shape: typical_times(calls) for shape, calls in self._calls.items() if calls
        }


class _Names:
    """The timed subroutines and their names."""

    def __init__(self, lines: SourceLines) -> None:
        from torch.nn import Module

        self._lines = lines
        self._entry = Module._call_impl.__code__
        self._functions: dict[CodeType, str | None] = {}
        # With the module itself, because the number of a deleted module may be used
        # again.
        self._modules: dict[int, tuple[Any, str]] = {}

    def of(self, frame: FrameType) -> str | None:
        """The name of the subroutine that begins with this frame; None if it is not
        timed.
        """
        code = frame.f_code
        if code is self._entry:
            return self._module(frame.f_locals["self"])
        if code not in self._functions:
            line = self._lines.at(code.co_filename, code.co_firstlineno)
            # Python 3.10 knows no qualified names.
            name = getattr(code, "co_qualname", code.co_name)
            self._functions[code] = (
                f"{FUNCTION_TIME}{line.rpartition(':')[0]}:{name}" if line else None
            )
        return self._functions[code]

    def _module(self, module: Any) -> str:
        if id(module) not in self._modules:
            # The first callee also determines the names of its children.
            top = f"{MODULE_TIME}{type(module).__name__}"
            for path, child in module.named_modules():
                name = _NUMBER.sub("*", f"{top}.{path}") if path else top
                self._modules.setdefault(id(child), (child, name))
        return self._modules[id(module)][1]


class _Watch:
    """The subroutines of one call: nanoseconds of each run of each, in order.

    One inside itself counts once.
    """

    def __init__(self, names: _Names, clock_ns: Callable[[], int]) -> None:
        self._names = names
        self._clock_ns = clock_ns
        self._running: list[tuple[FrameType, str, int]] = []
        self._depth: Counter[str] = Counter()
        self.times: TimesByOperator = {}

    def tell(self, frame: FrameType, event: str, _argument: Any) -> None:
        if event == "call":
            name = self._names.of(frame)
            if name is not None:
                self._depth[name] += 1
                self._running.append((frame, name, self._clock_ns()))
        elif event == "return" and self._running and self._running[-1][0] is frame:
            ended = self._clock_ns()
            _, name, began = self._running.pop()
            self._depth[name] -= 1
            if not self._depth[name]:
                self.times.setdefault(name, []).append(float(ended - began))


# Seconds between two samples of one call, and the slow calls that are enough.
SAMPLE_EVERY = 0.002
ENOUGH_STALLS = 4


def locate_stalls(
    call: Call,
    device: Device,
    lines: SourceLines,
    *,
    longer_than: float,
    calls: int,
    seconds: float,
) -> dict[str, int]:
    """The samples of each line of the project in those of at most ``calls`` calls that
    take ``longer_than`` seconds.

    It takes no more than about ``seconds``. A timer interrupts slow calls, so none of
    them is timed. A call that only waited for a CPU is not slow: on a busy machine the
    wait may come at any line. Only the main thread can set the handler of a signal.
    """
    samples: Counter[str] = Counter()
    of_call: list[str | None] = []
    stalls = 0

    def sample(_signal: int, frame: FrameType | None) -> None:
        of_call.append(lines.of(frame))

    before = signal.signal(signal.SIGALRM, sample)
    ends = device.clock_ns() + int(seconds * 1e9)
    try:
        with device.leave_out_waits():
            for _ in range(calls):
                of_call.clear()
                began = device.timer_ns()
                signal.setitimer(signal.ITIMER_REAL, longer_than, SAMPLE_EVERY)
                try:
                    call()
                    device.synchronize()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
                if of_call and device.timer_ns() - began >= longer_than * 1e9:
                    stalls += 1
                    samples.update(line for line in of_call if line is not None)
                if stalls >= ENOUGH_STALLS or device.clock_ns() > ends:
                    break
    finally:
        signal.signal(signal.SIGALRM, before)
    return dict(samples)

"""Summarize the sampled stacks of a job: the lines of the project and their times, and
a trace of the call hierarchy.
"""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate import trace
from perfgate.conductor.sides.stacks.stacks import (
    ProcessStacks,
    SideStacks,
    StackFrame,
    StackSample,
)
from perfgate.document.job import (
    CalledFunction,
    JobProfile,
    ProfiledLine,
    ProfiledOperator,
)
from perfgate.errors import DocumentError
from perfgate.trace.analysis.stacks import operators_above, project_places, stacks_of
from perfgate.trace.model.arithmetic import NOTHING_AROUND
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.stacks import Stacks

_MOST_LINES = 300
_MOST_FUNCTIONS = 300
_MOST_CALLERS = 8
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|lib/python[\d.]+)/")
_INNER = re.compile(r"(?:\.<locals>)?\.<(?:genexpr|listcomp|dictcomp|setcomp|lambda)>")
# Threads in these functions are idle, or wait for others: event loops, pools, queues,
# joins.
_IDLE = {
    "selectors": ("select",),
    "threading": ("wait", "join", "_wait_for_tstate_lock"),
    "queue": ("get",),
    "thread": ("_worker",),
    "connection": ("_poll", "wait", "_recv"),
    "subprocess": ("_wait", "_try_wait"),
    "socket": ("accept",),
    "_base": ("result",),
}


@dataclass
class _LineTimes:
    """The nanoseconds and samples of a line of the project."""

    cpu: int = 0
    waited: int = 0
    samples: int = 0

    def add(self, sample: StackSample, *, waits: bool) -> None:
        self.cpu += sample.cpu
        if waits:
            self.waited += sample.end - sample.begin
        if sample.cpu or waits:
            self.samples += sample.times


def profile_of(workload: str, stacks: SideStacks, root: Path) -> JobProfile:
    """The lines of the project in ``root`` that took time, each with its callees
    outside of the project.
    """
    times: dict[StackFrame, _LineTimes] = defaultdict(_LineTimes)
    callers: dict[StackFrame, Counter[str]] = defaultdict(Counter)
    code = _Code(root)
    total = 0
    for process in stacks.processes:
        for sample in process.samples:
            total += sample.cpu
            calls = [process.frames[frame] for frame in process.stacks[sample.stack]]
            own = [frame for frame in calls if code.place(frame.file)]
            if own:
                waits = sample.waited and _waits_itself(calls, own[-1], process)
                times[own[-1]].add(sample, waits=waits)
                _note_callers(callers, own, code, sample.times)
    operators = []
    for operator in operators_of(stacks, root):
        operators.append(
            msgspec.structs.replace(operator, function=_plain(operator.function))
        )
    units = max(1, stacks.units)
    return JobProfile(
        workload=workload,
        per=stacks.per,
        units=stacks.units,
        seconds=rounded(stacks.seconds / units),
        cpu=rounded(total / 1e9 / units),
        lines=_lines(times, code, units),
        functions=_functions(callers, code),
        operators=operators,
        operator_units=stacks.operator_units,
    )


def _note_callers(
    callers: dict[StackFrame, Counter[str]],
    own: list[StackFrame],
    code: _Code,
    times: int,
) -> None:
    """Note the caller of each function of the project in a stack.

    A comprehension is a part of the function that holds it, which lies outside it in
    the stack.
    """
    for at, frame in enumerate(own):
        if _plain(frame.function) == frame.function:
            lines = callers[frame._replace(line=0)]
            if at:
                lines[_line(code, own[at - 1])] += times


def _lines(
    times: Mapping[StackFrame, _LineTimes], code: _Code, units: int
) -> list[ProfiledLine]:
    """The lines with the most time, each with its seconds of a unit of work."""
    slowest = sorted(times, key=lambda frame: -(times[frame].cpu + times[frame].waited))
    lines = []
    for frame in slowest[:_MOST_LINES]:
        line = times[frame]
        if line.samples:
            profiled = ProfiledLine(
                function=_plain(frame.function),
                line=_line(code, frame),
                cpu=rounded(line.cpu / 1e9 / units),
                waited=rounded(line.waited / 1e9 / units),
                samples=line.samples,
                code=code.text(frame.file, frame.line),
            )
            lines.append(profiled)
    return lines


def _functions(
    callers: Mapping[StackFrame, Counter[str]], code: _Code
) -> list[CalledFunction]:
    functions = []
    for frame, lines in islice(callers.items(), _MOST_FUNCTIONS):
        function = CalledFunction(
            name=_plain(frame.function),
            file=code.place(frame.file),
            first=frame.first,
            last=frame.last,
            callers=[line for line, _ in lines.most_common(_MOST_CALLERS)],
        )
        functions.append(function)
    return functions


def _plain(function: str) -> str:
    """The name of the function that holds a comprehension or a lambda."""
    return _INNER.sub("", function)


def _line(code: _Code, frame: StackFrame) -> str:
    return f"{code.place(frame.file)}:{frame.line}"


def _waits_itself(
    calls: list[StackFrame], own: StackFrame, process: ProcessStacks
) -> bool:
    """Whether a thread waits because of its line of the project, and is neither idle
    nor waiting for other ranks.

    A wait inside a framework is for others: a collective for all ranks. Python's own
    modules wait for files, sockets and programs, except in an idle pool or loop.
    """
    for frame in calls[calls.index(own) + 1 :]:
        if (
            not frame.file.startswith((process.library, "<frozen"))
            or "-packages/" in frame.file
        ):
            return False
        if frame.function.rpartition(".")[2] in _IDLE.get(
            PurePath(frame.file).stem, ()
        ):
            return False
    return True


class _Code:
    """The files of a project, by their path below its root."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._places: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}

    def place(self, file: str) -> str:
        """The path below the root; empty for other files."""
        if file not in self._places:
            self._places[file] = ""
            if Path(file).is_relative_to(self._root) and not _PACKAGES.match(file):
                self._places[file] = Path(file).relative_to(self._root).as_posix()
        return self._places[file]

    def text(self, file: str, line: int) -> str:
        if file not in self._texts:
            try:
                self._texts[file] = (
                    Path(file)
                    .read_text(encoding="utf-8", errors="replace")
                    .splitlines()
                )
            except OSError:
                self._texts[file] = []
        lines = self._texts[file]
        if 0 < line <= len(lines):
            return lines[line - 1].strip()[:200]
        return ""


# --- as a trace


class _ThreadName(msgspec.Struct, tag_field="ph", tag="M", kw_only=True):
    name: str = "thread_name"
    pid: int
    tid: int
    args: dict[str, str]


class _Call(msgspec.Struct, tag_field="ph", tag="X", kw_only=True):
    """A call; ``ts`` and ``dur`` are microseconds."""

    cat: str = "python_function"
    name: str
    pid: int
    tid: int
    ts: float
    dur: float


def write_trace(stacks: SideStacks, root: Path, file: Path) -> None:
    """Write the stacks as Chrome trace events of Python functions, as torch.profiler
    does: idle threads are left out.
    """
    events: list[_ThreadName | _Call] = []
    for process in stacks.processes:
        events += _events(process, _Code(root))
    document = {"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}
    with gzip.open(file, "wb", compresslevel=5) as packed:
        packed.write(msgspec.json.encode(document))


def _events(process: ProcessStacks, code: _Code) -> Iterator[_ThreadName | _Call]:
    threads: dict[str, list[StackSample]] = defaultdict(list)
    for sample in process.samples:
        # Tasks of one loop overlap, which frames of one thread must not.
        if not sample.waited and sample.thread != "task":
            threads[sample.thread].append(sample)
    for number, (thread, samples) in enumerate(threads.items()):
        yield _ThreadName(pid=process.pid, tid=number, args={"name": thread})
        open_calls: list[tuple[str, int]] = []
        ended = 0
        for sample in samples:
            names = [
                _name(process.frames[frame], code)
                for frame in process.stacks[sample.stack]
            ]
            same = 0
            if sample.begin <= ended:
                same = _shared(open_calls, names)
            while len(open_calls) > same:
                yield _call(*open_calls.pop(), ended, process.pid, number)
            for name in names[same:]:
                open_calls.append((name, sample.begin))
            ended = sample.end
        while open_calls:
            yield _call(*open_calls.pop(), ended, process.pid, number)


def _call(name: str, begin: int, end: int, process: int, thread: int) -> _Call:
    return _Call(
        name=name, pid=process, tid=thread, ts=begin / 1e3, dur=(end - begin) / 1e3
    )


def _shared(open_calls: list[tuple[str, int]], names: list[str]) -> int:
    """The number of open calls that go on in a stack with these names, from the
    outermost on.
    """
    shared = 0
    for (open_name, _), name in zip(open_calls, names):
        if open_name != name:
            break
        shared += 1
    return shared


def _name(frame: StackFrame, code: _Code) -> str:
    file = code.place(frame.file) or _library_name(frame.file)
    return f"{file}({frame.first}): {frame.function}"


@lru_cache(maxsize=4096)
def _library_name(file: str) -> str:
    return _PACKAGES.sub("", file)


# --- the operators in the traces of a side


_MOST_OPERATORS = 300
# On a busy machine some calls hold times in which the thread did not run: those are
# this many interquartile ranges above the usual.
_FAR = 5.0
# A trace of a server's own profiler that is larger takes long to read and to download.
MOST_TRACE_BYTES = 200 << 20
MOST_TRACES = 4
_Floats = npt.NDArray[np.float64]


class _Key(NamedTuple):
    """An operator and the place where the function that calls it begins, as the
    profiler writes it; empty for none.
    """

    name: str
    place: str
    on_device: bool


def kept_traces(sampled: SideStacks) -> list[Path]:
    """The traces that are read and attached: the largest, for launchers write some too.

    A link does not count: it may lead anywhere.
    """
    sizes = {}
    for file in sampled.traces:
        if (
            file.is_file()
            and not file.is_symlink()
            and file.stat().st_size <= MOST_TRACE_BYTES
        ):
            sizes[file] = file.stat().st_size
    largest_first = sorted(sizes, key=lambda file: -sizes[file])
    return largest_first[:MOST_TRACES]


def operators_of(sampled: SideStacks, root: Path) -> list[ProfiledOperator]:
    """The operators of a unit of work, most time first.

    A trace that cannot be read tells none.
    """
    seconds: dict[_Key, list[_Floats]] = defaultdict(list)
    for file in kept_traces(sampled):
        try:
            for timeline in trace.read(file).timelines:
                for key, times in _calls(timeline):
                    seconds[key].append(times)
        except (DocumentError, ValueError):
            continue
    places = _Places(sampled, root)
    units = max(1, sampled.operator_units)
    operators = []
    for key, parts in seconds.items():
        times = np.concatenate(parts)
        # Without the calls that lie far above the others, as an interruption does.
        low, high = np.quantile(times, (0.25, 0.75)).tolist()
        usual = times[times <= max(high + _FAR * (high - low), 2 * high)]
        function, line = places.of(key.place)
        operator = ProfiledOperator(
            name=key.name,
            function=function,
            line=line,
            calls=times.size / units,
            seconds=rounded(float(usual.mean()) * times.size / units),
            spread=rounded(float(usual.std())),
            on_device=key.on_device,
        )
        operators.append(operator)
    operators.sort(key=lambda operator: -operator.seconds)
    return operators[:_MOST_OPERATORS]


def _calls(timeline: Timeline) -> Iterator[tuple[_Key, _Floats]]:
    """Yield the seconds of every call of each operator that Python calls; on a device,
    of the work that the call launched.
    """
    stacks = stacks_of(timeline.events)
    above = operators_above(stacks)
    outermost = stacks.events.is_kind("host_op") & (above == NOTHING_AROUND)
    if not outermost.any():
        return
    on_device = bool(stacks.on_device.any())
    times = (
        _device_times(stacks, above)
        if on_device
        else stacks.events.duration.astype(np.float64)
    )
    nearest, listed = project_places(stacks.events, stacks.called_by)
    calls = np.flatnonzero(outermost)
    groups: dict[_Key, list[int]] = defaultdict(list)
    for call, name, place in zip(
        calls.tolist(), stacks.events.group[calls].tolist(), nearest[calls].tolist()
    ):
        at = "" if place == NOTHING_AROUND else listed[place]
        groups[_Key(stacks.events.names[name], at, on_device)].append(call)
    for key, members in groups.items():
        yield key, times[members] / 1e9


def _device_times(stacks: Stacks, above: npt.NDArray[np.int32]) -> _Floats:
    """For each outermost operator the nanoseconds of the device's work under it."""
    times = np.zeros(len(stacks.events), dtype=np.float64)
    for event in np.flatnonzero(stacks.on_device).tolist():
        operator = above[event]
        while operator != NOTHING_AROUND and above[operator] != NOTHING_AROUND:
            operator = above[operator]
        if operator != NOTHING_AROUND:
            times[operator] += stacks.own[event]
    return times


class _Places:
    """Where the functions that a trace names stand in the project: torch writes paths
    below some folder of ``sys.path``.
    """

    def __init__(self, sampled: SideStacks, root: Path) -> None:
        self._root = root.resolve()
        self._frames: dict[str, set[StackFrame]] = defaultdict(set)
        for process in sampled.processes:
            for frame in process.frames:
                self._frames[Path(frame.file).name].add(frame._replace(line=0))

    def of(self, place: str) -> tuple[str, str]:
        """The name of the function at a place, and where it begins, below the root;
        empty if they are unknown.

        A function that ran before the recording began has the line at which it was
        then.
        """
        file, _, number = place.rpartition(":")
        if not number.isdecimal():
            return "", ""
        line = int(number)
        around = []
        for frame in self._frames[Path(file).name]:
            path = Path(frame.file)
            is_same_file = path.as_posix().endswith(file) and path.is_relative_to(
                self._root
            )
            if is_same_file and frame.first <= line <= frame.last:
                around.append(frame)
        if around:
            inner = min(
                around,
                key=lambda frame: (frame.first != line, frame.last - frame.first),
            )
            return (
                inner.function,
                f"{Path(inner.file).relative_to(self._root).as_posix()}:{inner.first}",
            )
        if (self._root / file).is_file():
            return "", place
        return "", ""


def rounded(seconds: float) -> float:
    """To six digits: a document keeps no noise."""
    return float(f"{seconds:.6g}")

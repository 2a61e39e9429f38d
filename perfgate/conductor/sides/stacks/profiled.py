"""Summarize the sampled stacks of a job: the lines of the project and their times, and a trace of the call hierarchy."""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path, PurePath

import msgspec

from perfgate.conductor.sides.stacks.profiled_operators import operators_of, rounded
from perfgate.conductor.sides.stacks.stacks import (
    ProcessStacks,
    SideStacks,
    StackFrame,
    StackSample,
)
from perfgate.document.profile import CalledFunction, JobProfile, ProfiledLine

_MOST_LINES = 300
_MOST_FUNCTIONS = 300
_MOST_CALLERS = 8
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|lib/python[\d.]+)/")
_INNER = re.compile(r"(?:\.<locals>)?\.<(?:genexpr|listcomp|dictcomp|setcomp|lambda)>")
# Threads in these functions are idle, or wait for others: event loops, pools, queues, joins.
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
    """The lines of the project in ``root`` that took time, each with its callees outside of the project."""
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

    A comprehension is a part of the function that holds it, which lies outside it in the stack.
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
    """Whether a thread waits because of its line of the project, and is neither idle nor waiting for other ranks.

    A wait inside a framework is for others: a collective for all ranks. Python's own modules wait for files, sockets and
    programs, except in an idle pool or loop.
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
    """Write the stacks as Chrome trace events of Python functions, as torch.profiler does: idle threads are left out."""
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
    """The number of open calls that go on in a stack with these names, from the outermost on."""
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

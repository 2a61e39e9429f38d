"""Summarize the sampled stacks of a job: the lines of the project and their times, and a trace of the call hierarchy."""

from __future__ import annotations

import gzip
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath

import msgspec

from perfgate.conductor.sides.stacks.profiled_operators import operators_of, rounded
from perfgate.conductor.sides.stacks.stacks import ProcessStacks, SideStacks, StackFrame, StackSample
from perfgate.document.profile import CalledFunction, JobProfile, ProfiledLine

_MOST_LINES = 300
_MOST_FUNCTIONS = 300
_MOST_CALLERS = 8
_PACKAGES = re.compile(r".*/(?:site-packages|dist-packages|lib/python[\d.]+)/")
_INNER = re.compile(r"(?:\.<locals>)?\.<(?:genexpr|listcomp|dictcomp|setcomp|lambda)>")
# Threads in these functions are idle, or wait for others: event loops, pools, queues, joins.
_IDLE = {
    *(("selectors", "select"), ("threading", "wait"), ("threading", "join"), ("threading", "_wait_for_tstate_lock")),
    *(
        ("queue", "get"),
        ("thread", "_worker"),
        ("connection", "_poll"),
        ("connection", "wait"),
        ("connection", "_recv"),
    ),
    *(("subprocess", "_wait"), ("subprocess", "_try_wait"), ("socket", "accept"), ("_base", "result")),
}


def profile_of(workload: str, stacks: SideStacks, root: Path) -> JobProfile:
    """The lines of the project in ``root`` that took time, each with its callees outside of the project."""
    cpu: dict[StackFrame, int] = defaultdict(int)
    waited: dict[StackFrame, int] = defaultdict(int)
    samples: Counter[StackFrame] = Counter()
    callers: dict[StackFrame, Counter[str]] = defaultdict(Counter)
    code = _Code(root)
    total = 0
    for process in stacks.processes:
        for sample in process.samples:
            total += sample.cpu
            calls = [process.frames[frame] for frame in process.stacks[sample.stack]]
            own = [frame for frame in calls if code.place(frame.file)]
            if not own:
                continue
            # A comprehension is a part of the function that holds it, which lies outside it in the stack.
            named = [(at, frame) for at, frame in enumerate(own) if _plain(frame.function) == frame.function]
            for at, called in named:
                outer = [_line(code, own[at - 1])] if at else []
                callers[called._replace(line=0)].update(dict.fromkeys(outer, sample.times))
            cpu[own[-1]] += sample.cpu
            waits = sample.waited and _waits_itself(calls, own[-1], process)
            waited[own[-1]] += sample.end - sample.begin if waits else 0
            samples[own[-1]] += sample.times if sample.cpu or waits else 0
    each = 1e9 * max(1, stacks.units)
    lines = sorted(samples, key=lambda frame: -(cpu[frame] + waited[frame]))[:_MOST_LINES]
    return JobProfile(
        workload=workload,
        per=stacks.per,
        units=stacks.units,
        seconds=rounded(stacks.seconds / max(1, stacks.units)),
        cpu=rounded(total / each),
        lines=[
            ProfiledLine(
                function=_plain(frame.function),
                line=_line(code, frame),
                cpu=rounded(cpu[frame] / each),
                waited=rounded(waited[frame] / each),
                samples=samples[frame],
                code=code.text(frame.file, frame.line),
            )
            for frame in lines
            if samples[frame]
        ],
        functions=[
            CalledFunction(
                name=_plain(frame.function),
                file=code.place(frame.file),
                first=frame.first,
                last=frame.last,
                callers=[line for line, _ in by.most_common(_MOST_CALLERS)],
            )
            for frame, by in list(callers.items())[:_MOST_FUNCTIONS]
        ],
        operators=[
            msgspec.structs.replace(operator, function=_plain(operator.function))
            for operator in operators_of(stacks, root)
        ],
        operator_units=stacks.operator_units,
    )


def _plain(function: str) -> str:
    """The name of the function that holds a comprehension or a lambda."""
    return _INNER.sub("", function)


def _line(code: _Code, frame: StackFrame) -> str:
    return f"{code.place(frame.file)}:{frame.line}"


def _waits_itself(calls: list[StackFrame], own: StackFrame, process: ProcessStacks) -> bool:
    """Whether a thread waits because of its line of the project, and is neither idle nor waiting for other ranks.

    A wait inside a framework is for others: a collective for all ranks. Python's own modules wait for files, sockets and
    programs, except in an idle pool or loop.
    """
    inner = calls[calls.index(own) + 1 :]
    modules = [(PurePath(frame.file).stem, frame.function.rpartition(".")[2]) for frame in inner]
    is_of_python = all(
        frame.file.startswith((process.library, "<frozen")) and "-packages/" not in frame.file for frame in inner
    )
    return is_of_python and not any(module in _IDLE for module in modules)


class _Code:
    """The files of a project, by their path below its root."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._places: dict[str, str] = {}
        self._texts: dict[str, list[str]] = {}

    def place(self, file: str) -> str:
        """The path below the root; empty for files of anybody else."""
        if file not in self._places:
            path = Path(file)
            is_own = path.is_relative_to(self._root) and not _PACKAGES.match(file)
            self._places[file] = path.relative_to(self._root).as_posix() if is_own else ""
        return self._places[file]

    def text(self, file: str, line: int) -> str:
        if file not in self._texts:
            try:
                self._texts[file] = Path(file).read_text(encoding="utf-8", errors="replace").splitlines()
            except OSError:
                self._texts[file] = []
        lines = self._texts[file]
        return lines[line - 1].strip()[:200] if 0 < line <= len(lines) else ""


# --- as a trace


def write_trace(stacks: SideStacks, root: Path, file: Path) -> None:
    """Write the stacks as Chrome trace events of Python functions, as torch.profiler does: idle threads are left out."""
    events = [event for process in stacks.processes for event in _events(process, _Code(root))]
    document = {"schemaVersion": 1, "traceEvents": events, "displayTimeUnit": "ms"}
    with gzip.open(file, "wb", compresslevel=5) as packed:
        packed.write(msgspec.json.encode(document))


def _events(process: ProcessStacks, code: _Code) -> Iterator[dict[str, object]]:
    threads: dict[str, list[StackSample]] = defaultdict(list)
    for sample in process.samples:
        # Tasks of one loop overlap, which frames of one thread must not.
        if not sample.waited and sample.thread != "task":
            threads[sample.thread].append(sample)
    for number, (thread, samples) in enumerate(threads.items()):
        yield {"ph": "M", "name": "thread_name", "pid": process.pid, "tid": number, "args": {"name": thread}}
        open_calls: list[tuple[str, int]] = []
        ended = 0
        for sample in samples:
            names = [_name(process.frames[frame], code) for frame in process.stacks[sample.stack]]
            same = 0 if sample.begin > ended else _shared([name for name, _ in open_calls], names)
            yield from (_event(name, begin, ended, process.pid, number) for name, begin in reversed(open_calls[same:]))
            open_calls = [*open_calls[:same], *((name, sample.begin) for name in names[same:])]
            ended = sample.end
        yield from (_event(name, begin, ended, process.pid, number) for name, begin in reversed(open_calls))


def _event(name: str, begin: int, end: int, process: int, thread: int) -> dict[str, object]:
    times = {"ts": begin / 1e3, "dur": (end - begin) / 1e3}
    return {"ph": "X", "cat": "python_function", "name": name, "pid": process, "tid": thread, **times}


def _shared(first: list[str], second: list[str]) -> int:
    """How many frames two stacks have in common, from the outermost on."""
    return next((at for at, pair in enumerate(zip(first, second)) if pair[0] != pair[1]), min(len(first), len(second)))


def _name(frame: StackFrame, code: _Code) -> str:
    file = code.place(frame.file) or _library_name(frame.file)
    return f"{file}({frame.first}): {frame.function}"


@lru_cache(maxsize=4096)
def _library_name(file: str) -> str:
    return _PACKAGES.sub("", file)

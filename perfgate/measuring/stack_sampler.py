"""Sample the Python stacks of the process it runs in, in a separate thread, and write
them to the folder of its side.

Only the standard library is imported: the server's environment may lack perfgate's
dependencies. A sample of a thread is its stack, the CPU time since its last one, and
whether it waits in the kernel. Tasks of asyncio that wait in ``asyncio.sleep`` have no
thread; their coroutines are sampled as the thread ``task``.
"""

from __future__ import annotations

import asyncio
import atexit
import dis
import json
import math
import os
import sys
import sysconfig
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from perfgate.system.profiling import PROFILE_VARIABLE, STACKS, STARTED, SWITCH

_PERIOD_SECONDS = 0.002
# Tasks are many, and those that sleep do so for longer than a period.
_TASKS_EVERY = 4
_MOST_SECONDS = 120.0
_MOST_SAMPLES = 200_000
_DEEPEST = 200
# Of a process that is sampled from its start: when it first writes, and how long its
# end waits for the last samples.
_FIRST_WRITE_SECONDS, _JOIN_SECONDS = 0.1, 10.0
# A sample must show the thread at the moment of sampling. By default a thread keeps the
# interpreter for 5 ms more, or until it lets go of it by itself, so that every sample
# would lie in calls that do, such as sending.
_SWITCH_INTERVAL = 1e-5
# The system call in which a thread waits for a lock, and so for the interpreter too
# (asm/unistd.h).
_FUTEX = {"x86_64": b"202", "aarch64": b"98"}.get(os.uname().machine, b"")
_TASK = "task"

_sampler: StackSampler | None = None


def toggle() -> None:
    """Begin to sample if the folder requests it, else stop.

    Called by the signal, in the main thread.
    """
    global _sampler  # noqa: PLW0603 - a process has one
    folder = Path(os.environ.get(PROFILE_VARIABLE, ""))
    running = _sampler is not None and _sampler.pid == os.getpid()
    if (folder / SWITCH).exists():
        if not running:
            _sampler = StackSampler(folder)
            _sampler.start()
    elif running and _sampler is not None:
        _sampler.stop()
        _sampler = None


def sample_from_start(folder: Path) -> None:
    """Sample until the process ends; one that it forks begins its own."""

    def begin() -> None:
        global _sampler  # noqa: PLW0603 - a process has one
        _sampler = StackSampler(folder, first_write=_FIRST_WRITE_SECONDS)
        _sampler.start()

    begin()
    os.register_at_fork(after_in_child=begin)
    atexit.register(_end)


def _end() -> None:
    if _sampler is not None and _sampler.pid == os.getpid():
        _sampler.stop()
        _sampler.join()


@dataclass
class _Sample:
    """``count`` equal samples of a thread in a row; times in nanoseconds.

    Written in this order.
    """

    thread: str
    stack: int
    begin: int
    end: int
    cpu: int
    waited: bool
    count: int = 1


class StackSampler:
    """Samples until it is stopped, and then writes ``PID.stacks``.

    After ``first_write`` seconds, twice as many and so on it writes what there is,
    because a process may end abruptly.
    """

    def __init__(self, folder: Path, *, first_write: float = math.inf) -> None:
        self.pid = os.getpid()
        self._folder = folder
        self._next_write = first_write
        self._ended = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name="perfgate-profile", daemon=True
        )
        self._frames: dict[tuple[CodeType, int], int] = {}
        self._listed: list[tuple[str, str, int, int, int]] = []
        self._stacks: dict[tuple[int, ...], int] = {}
        self._samples: list[_Sample] = []
        self._open: dict[str, _Sample] = {}
        self._clocks: dict[int, _ThreadClock] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()

    def join(self) -> None:
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        before = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_INTERVAL)
        began = time.perf_counter_ns()
        self._sample(began, tasks=False)  # the clocks of all threads begin here
        self._samples.clear()
        self._open.clear()
        self._write(STARTED, b"")
        try:
            number, last = 0, time.perf_counter_ns()
            while (
                not self._ended.wait(_PERIOD_SECONDS)
                and len(self._samples) < _MOST_SAMPLES
            ):
                number += 1
                last = self._sample(last, tasks=number % _TASKS_EVERY == 0)
                seconds = (last - began) / 1e9
                if seconds > _MOST_SECONDS:
                    break
                if seconds > self._next_write:
                    self._write(STACKS, self._document(began, last))
                    self._next_write *= 2
        finally:
            sys.setswitchinterval(before)
        self._write(STACKS, self._document(began, time.perf_counter_ns()))

    def _sample(self, last: int, *, tasks: bool) -> int:
        """Take a sample of every thread; return when."""
        now = time.perf_counter_ns()
        natives = {
            thread.ident: (thread.native_id, thread.name)
            for thread in threading.enumerate()
        }
        main = threading.main_thread()
        natives[main.ident] = (
            self.pid,
            main.name,
        )  # a forked process still has its parent's number there
        loops = []
        for ident, frame in sys._current_frames().items():
            if ident == self._thread.ident or ident not in natives:
                continue
            native, name = natives[ident]
            stack = _stack_of(frame)
            thread = native or 0
            if thread not in self._clocks:
                self._clocks[thread] = _ThreadClock(thread)
            cpu, waited = self._clocks[thread].read()
            calls = []
            for caller in stack:
                calls.append((caller.f_code, line_of(caller)))
                if caller.f_code.co_name == "run_forever":
                    loops.append(caller.f_locals.get("self"))
            self._add(f"{name} {native}", calls, last, now, cpu, waited=waited)
        if tasks:
            for loop in loops:
                self._add_tasks(loop, now)
        return now

    def _add_tasks(self, loop: Any, now: int) -> None:
        """Add the tasks that wait for a timer, with the time until tasks are sampled
        again.
        """
        begin = now - int(_TASKS_EVERY * _PERIOD_SECONDS * 1e9)
        with suppress(
            RuntimeError, TypeError, AttributeError
        ):  # no loop of asyncio, or it changed meanwhile
            for task in asyncio.all_tasks(loop):
                frames = _awaited(task.get_coro())
                if frames and _waits_for_timer(frames[-1]):
                    calls = [(frame.f_code, line_of(frame)) for frame in frames[:-1]]
                    self._add(_TASK, calls, begin, now, 0, waited=True, joined=False)

    def _add(
        self,
        thread: str,
        calls: list[tuple[CodeType, int]],
        begin: int,
        end: int,
        cpu: int,
        *,
        waited: bool,
        joined: bool = True,
    ) -> None:
        """Add a sample, or merge it with the last one of its thread if equal."""
        stack = self._stacks.setdefault(
            tuple(map(self._number_of, calls)), len(self._stacks)
        )
        before = self._open.get(thread)
        if (
            joined
            and before is not None
            and before.stack == stack
            and before.waited == waited
        ):
            before.end = end
            before.cpu += cpu
            before.count += 1
            return
        sample = _Sample(thread, stack, begin, end, cpu, waited)
        self._samples.append(sample)
        self._open[thread] = sample

    def _number_of(self, call: tuple[CodeType, int]) -> int:
        code, line = call
        if call not in self._frames:
            self._frames[call] = len(self._listed)
            last = max(
                (number for _, _, number in code.co_lines() if number),
                default=code.co_firstlineno,
            )
            # Python 3.10 knows no qualified names.
            name = getattr(code, "co_qualname", code.co_name)
            self._listed.append(
                (code.co_filename, name, code.co_firstlineno, last, line)
            )
        return self._frames[call]

    def _document(self, began: int, ended: int) -> bytes:
        return json.dumps(
            {
                "pid": self.pid,
                "rank": int(os.environ.get("RANK", "-1")),
                "began": began,
                "ended": ended,
                "library": sysconfig.get_paths()["stdlib"],
                "frames": self._listed,
                "stacks": list(self._stacks),
                "samples": [list(vars(sample).values()) for sample in self._samples],
            }
        ).encode()

    def _write(self, suffix: str, data: bytes) -> None:
        with suppress(OSError):
            written = self._folder / f"{self.pid}.writing"
            written.write_bytes(data)
            written.replace(self._folder / f"{self.pid}{suffix}")


class _ThreadClock:
    """The CPU time of a thread, and whether it waits, as the kernel has them (proc(5))."""

    def __init__(self, native: int) -> None:
        self._folder = Path(f"/proc/self/task/{native}")
        self._used = self._used_ns()
        self._carried = 0

    def read(self) -> tuple[int, bool]:
        """The nanoseconds of CPU since the last time, and whether the thread waits in
        the kernel.

        A thread that waits now used them before in some other call: they count for the
        next one in which it runs. One that waits for a lock and has run waits for the
        interpreter, which the sampler has.
        """
        before, self._used = self._used, self._used_ns()
        cpu = max(0, self._used - before)
        try:
            call = (self._folder / "syscall").read_bytes().split()[0]
        except (OSError, IndexError):
            call = b"running"
        waits = call != b"running" and (call != _FUTEX or cpu == 0)
        if waits:
            self._carried += cpu
            return 0, True
        cpu, self._carried = cpu + self._carried, 0
        return cpu, False

    def _used_ns(self) -> int:
        try:
            return int((self._folder / "schedstat").read_bytes().split()[0])
        except (OSError, ValueError, IndexError):
            return 0


def line_of(frame: FrameType) -> int:
    """The line at which a frame is.

    The jump back to the head of a loop may have none, and counts for the head.

    Threads give the interpreter to others at just these jumps, so most samples of a
    loop may lie there.
    """
    if frame.f_lineno is not None:
        return frame.f_lineno
    return _line_without_number(frame.f_code, frame.f_lasti)


@lru_cache(maxsize=4096)
def _line_without_number(code: CodeType, at: int) -> int:
    jumps = {*dis.hasjrel, *dis.hasjabs}
    head = at
    for instruction in dis.get_instructions(code):
        if instruction.offset == at and instruction.opcode in jumps:
            head = min(at, instruction.argval)
    last = code.co_firstlineno
    for begin, _, line in code.co_lines():
        if line and begin <= head:
            last = line
    return last


def _stack_of(frame: FrameType | None) -> list[FrameType]:
    """The frames of a thread, the outermost first."""
    frames: list[FrameType] = []
    while frame is not None and len(frames) < _DEEPEST:
        frames.append(frame)
        frame = frame.f_back
    return frames[::-1]


def _waits_for_timer(frame: FrameType) -> bool:
    is_sleep = (
        frame.f_code.co_name == "sleep"
        and frame.f_code.co_filename == asyncio.tasks.__file__
    )
    return is_sleep and frame.f_locals.get("delay", 0) > 0


def _awaited(coroutine: Any) -> list[FrameType]:
    """The frames of coroutines that await one another, the outermost first."""
    frames: list[FrameType] = []
    while len(frames) < _DEEPEST:
        frame = getattr(coroutine, "cr_frame", None) or getattr(
            coroutine, "ag_frame", None
        )
        if frame is None:
            break
        frames.append(frame)
        coroutine = getattr(coroutine, "cr_await", None) or getattr(
            coroutine, "ag_await", None
        )
        # Iterating asynchronously lies between two coroutines and has no frame.
        if type(coroutine).__name__ in ("async_generator_asend", "coroutine_wrapper"):
            break
    return frames

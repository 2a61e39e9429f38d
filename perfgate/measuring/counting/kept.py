"""Count the bytes that calls leave behind outside tensors: in Python by line, and in
malloc alone.

Python knows every block that it holds and the line that took it (``tracemalloc``), the
C library only how much it handed out (``mallinfo2``, glibc 2.33 and later). Tracing
slows Python down, so these calls serve no other count.
"""

from __future__ import annotations

import ctypes
import tracemalloc
from collections import Counter
from collections.abc import Callable
from gc import collect
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.document.job import CalledFunction
from perfgate.document.run import CounterSet
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import counter_sites, with_counts
from perfgate.measuring.counting.tally import Site, SourceLines
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.system.garbage import quiet

KEPT_PYTHON, KEPT_NATIVE = "memory.kept_python", "memory.kept_native"
# Growth is a leak if every stretch of calls adds as much: then twice the calls leave
# twice the bytes.
_STRETCHES = 2
# A stretch of the first look is one round. If that shows no leak, stretches are longer:
# a leak in every hundredth call has rounds without it. A stretch of the look that
# locates a leak is twice as long as one that found it.
_FIRST_ROUNDS, _LOCATING = 1, 2
_LONG_SECONDS, _MOST_ROUNDS = 0.1, 16
# Deep enough to leave a library. Every frame slows down every allocation, so the first
# look takes one.
_FIRST_FRAMES, _LOCATING_FRAMES = 1, 25
# Share of the largest growth at one line; any call grows by less.
_SHARE_OF_LARGEST = 0.1
_PROBE_BYTES = 1 << 20
_PROBES = 3


class _Look(NamedTuple):
    """The growth of consecutive stretches, and the bytes by which each line of the
    project grew in a call.

    A stretch has the bytes that each of its calls added to Python's memory, and to
    malloc's beyond that, if malloc is known.
    """

    stretches: list[dict[str, int]]
    lines: Counter[str]

    def growths(self) -> dict[str, list[int]]:
        """The growth of every stretch by metric."""
        growths = {}
        for name in self.stretches[0]:
            growths[name] = [stretch[name] for stretch in self.stretches]
        return growths

    def leaks(self) -> bool:
        return any(_is_leak(name, growths) for name, growths in self.growths().items())


def with_kept_bytes(workload: BoundWorkload, counted: CounterSet) -> CounterSet:
    """Add to the counters of a shape the bytes that a call leaves behind in Python and
    in malloc.

    Only a leak counts: growth in every stretch of two looks, beyond the normal growth
    of a call; anything else is 0. Without a leak in short stretches nor in long
    stretches no line is located. Nothing is counted if the calls use ``tracemalloc``
    themselves.
    """
    with quiet():
        look = _look(workload, counted)
    if look is None:
        return msgspec.structs.replace(
            counted, uncounted=[*counted.uncounted, KEPT_PYTHON, KEPT_NATIVE]
        )
    values = {}
    ranges: dict[str, tuple[int, int]] = {}
    for name, growths in look.growths().items():
        least, most = min(growths), max(growths)
        values[name] = 0
        if _is_leak(name, growths):
            values[name] = least
            if most - least > metric(name).gate.allowed_more:
                ranges[name] = least, most
    sites = []
    if values[KEPT_PYTHON]:
        for line, size in look.lines.items():
            sites.append(
                (Site(KEPT_PYTHON, _function_at(line, counted.functions), line), size)
            )
    if KEPT_NATIVE not in values:
        counted = msgspec.structs.replace(
            counted, uncounted=[*counted.uncounted, KEPT_NATIVE]
        )
    return with_counts(counted, values, ranges, counter_sites(sites, workload.root))


def _look(workload: BoundWorkload, counted: CounterSet) -> _Look | None:
    """A short look, a longer one if that shows no leak, and one that locates a leak."""
    rounds = _Rounds(workload, counted)
    length = _FIRST_ROUNDS
    began = workload.device.clock_ns()
    look = rounds.look(length, _FIRST_FRAMES)
    round_ns = (workload.device.clock_ns() - began) / (1 + _STRETCHES * length)
    longer = calls_within(
        round_ns, seconds=_LONG_SECONDS, fewest=_FIRST_ROUNDS, most=_MOST_ROUNDS
    )
    if look is not None and not look.leaks() and longer > length:
        length = longer
        look = rounds.look(length, _FIRST_FRAMES)
    if look is None or not look.leaks():
        return look
    locating = rounds.look(_LOCATING * length, _LOCATING_FRAMES)
    if locating is None:
        return None
    return locating._replace(stretches=[*look.stretches, *locating.stretches])


def _is_leak(name: str, growths: list[int]) -> bool:
    return min(growths) > metric(name).gate.allowed_more


class _Rounds:
    """Makes rounds of calls and observes how memory grows."""

    def __init__(self, workload: BoundWorkload, counted: CounterSet) -> None:
        self._workload = workload
        self._kept_in_tensors = counted.values.get("memory.kept", 0)
        self._lines = SourceLines(workload.root)
        # Drivers of accelerators take memory of the host whenever they like.
        self._malloc = (
            _malloc_in_use()
            if "own_memory" not in workload.device.capabilities
            else None
        )
        pool = workload.pool(counted.shape)
        workload.device.synchronize()
        took = timed_call(lambda: workload.invoke(pool[0]), workload.device)
        # A round takes every input of the pool once: caches, free lists and interned
        # objects fill in the first round.
        calls = calls_within(took, seconds=0.7, fewest=2, most=POOL_SIZE)
        self._inputs = pool[:calls]

    def _run(self, rounds: int) -> None:
        for inputs in self._inputs * rounds:
            self._workload.invoke(inputs)
        self._workload.device.synchronize()
        collect()

    def look(self, rounds: int, frames: int) -> _Look | None:
        """The growth of stretches of ``rounds`` rounds, after one; None if the calls
        traced, or stopped the tracing.
        """
        if tracemalloc.is_tracing():
            return None
        tracemalloc.start(frames)
        try:
            traced = object()
            self._run(1)
            # A snapshot's own memory is traced too, so one is taken before the
            # stretches and the other after them.
            snapshot = tracemalloc.take_snapshot() if frames > _FIRST_FRAMES else None
            stretches = [self._stretch(rounds) for _ in range(_STRETCHES)]
            if tracemalloc.get_object_traceback(traced) is None:
                return None
            if snapshot is None:
                return _Look(stretches, Counter())
            lines = _by_line(snapshot, tracemalloc.take_snapshot(), self._lines)
        finally:
            tracemalloc.stop()
        for line in lines:
            lines[line] //= _STRETCHES * rounds * len(self._inputs)
        return _Look(stretches, lines)

    def _stretch(self, rounds: int) -> dict[str, int]:
        python_before, malloc_before = _held(self._malloc)
        self._run(rounds)
        python_after, malloc_after = _held(self._malloc)
        calls = rounds * len(self._inputs)
        python = max(0, python_after - python_before) // calls
        if malloc_before is None or malloc_after is None:
            return {KEPT_PYTHON: python}
        native = (
            (malloc_after - malloc_before) // calls - python - self._kept_in_tensors
        )
        return {KEPT_PYTHON: python, KEPT_NATIVE: max(0, native)}


def _held(malloc: Callable[[], int] | None) -> tuple[int, int | None]:
    """Bytes held in Python's blocks and by malloc, without the memory of tracing
    itself.
    """
    # In this order: the numbers made here are traced too, and must be the same before
    # and after a stretch.
    in_use = None if malloc is None else malloc() - tracemalloc.get_tracemalloc_memory()
    return tracemalloc.get_traced_memory()[0], in_use


def _by_line(
    before: tracemalloc.Snapshot, after: tracemalloc.Snapshot, lines: SourceLines
) -> Counter[str]:
    """The growth at the innermost lines of the project; growth outside the project is
    left out.
    """
    growth: Counter[str] = Counter()
    for change in after.compare_to(before, "traceback"):
        line = lines.innermost(
            (frame.filename, frame.lineno) for frame in change.traceback
        )
        if line is not None and change.size_diff:
            growth[line] += change.size_diff
    largest = max(growth.values(), default=0)
    return Counter(
        {
            line: size
            for line, size in growth.items()
            if size > largest * _SHARE_OF_LARGEST
        }
    )


def _function_at(line: str, functions: list[CalledFunction]) -> str:
    """The innermost function of the project around a line, or its file."""
    file, _, number = line.rpartition(":")
    innermost: CalledFunction | None = None
    for function in functions:
        is_around = (
            function.file == file and function.first <= int(number) <= function.last
        )
        if is_around and (innermost is None or function.first > innermost.first):
            innermost = function
    return file if innermost is None else innermost.name


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2``: mallinfo(3)."""

    _fields_ = (
        ("arena", ctypes.c_size_t),
        ("ordblks", ctypes.c_size_t),
        ("smblks", ctypes.c_size_t),
        ("hblks", ctypes.c_size_t),
        ("hblkhd", ctypes.c_size_t),
        ("usmblks", ctypes.c_size_t),
        ("fsmblks", ctypes.c_size_t),
        ("uordblks", ctypes.c_size_t),
        ("fordblks", ctypes.c_size_t),
        ("keepcost", ctypes.c_size_t),
    )


def _malloc_in_use() -> Callable[[], int] | None:
    """A function that returns the bytes malloc has handed out; None for processes with
    another malloc than glibc's.
    """
    mallinfo = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo is None:
        return None
    mallinfo.restype = _MallInfo

    def in_use() -> int:
        info = mallinfo()
        return int(info.uordblks + info.hblkhd)

    def sees_a_probe() -> bool:
        before = in_use()
        probe = ctypes.create_string_buffer(_PROBE_BYTES)
        return in_use() - before >= len(probe)

    # Another thread may have given back as much meanwhile.
    return in_use if any(sees_a_probe() for _ in range(_PROBES)) else None

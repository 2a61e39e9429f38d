"""Count the bytes that calls leave behind outside tensors: those of Python by line, and those that malloc alone knows.

Python knows every block that it holds and the line that took it (``tracemalloc``), the C library only how much it handed out
(``mallinfo2``, glibc 2.33 and later). Tracing slows Python down, so these calls serve no other count.
"""

from __future__ import annotations

import ctypes
import tracemalloc
from collections import Counter
from collections.abc import Callable
from gc import collect
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.document.profile import CalledFunction
from perfgate.document.run import CounterSet
from perfgate.measuring.counting.collect import calls_within
from perfgate.measuring.counting.counters import counter_sites
from perfgate.measuring.counting.tally import Site, SourceLines
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload
from perfgate.system.garbage import quiet

KEPT_PYTHON, KEPT_NATIVE = "memory.kept_python", "memory.kept_native"
# A round takes every input of the pool once: caches, free lists and interned objects fill in the first round of two.
_FEWEST_CALLS = 2
_ROUND_SECONDS = 1.0
# Deep enough to leave a library. Every frame slows down every allocation, so the first look takes one.
_FRAMES = 25
# Share of the largest growth at one line; any call grows by less.
_SHARE_OF_LARGEST = 0.1
_PROBE_BYTES = 1 << 20
_PROBES = 3


class _Growth(NamedTuple):
    """By how many bytes a call grew Python's memory, and malloc's beyond that; and the growth by line of the project."""

    python: int
    native: int | None
    lines: Counter[str]


def with_kept_bytes(workload: BoundWorkload, counted: CounterSet, *, root: Path) -> CounterSet:
    """Add to the counters of a shape the bytes that a call leaves behind in Python and in malloc.

    The smaller growth of two looks counts, because occasional growth is not a leak; if the first is within the normal
    growth of a call, there is no second. Nothing is counted if the calls use ``tracemalloc`` themselves.
    """
    kept_in_tensors = counted.values.get("memory.kept", 0)
    with quiet():
        # Drivers of accelerators take memory of the host whenever they like.
        malloc = _malloc_in_use() if "own_memory" not in workload.device.capabilities else None
        calls, run_round = _round(workload, counted.shape)
        looks = [_look(run_round, calls, 1, malloc, kept_in_tensors, SourceLines(root))]
        if looks[0] is not None and not _is_steady(looks[0]):
            looks.append(_look(run_round, calls, _FRAMES, malloc, kept_in_tensors, SourceLines(root)))
    growths = [look for look in looks if look is not None]
    if len(growths) < len(looks):
        return msgspec.structs.replace(counted, uncounted=[*counted.uncounted, KEPT_PYTHON, KEPT_NATIVE])
    values: dict[str, int] = {}
    ranges: dict[str, tuple[int, int]] = {}
    for name, column in (
        (KEPT_PYTHON, [look.python for look in growths]),
        (KEPT_NATIVE, [look.native for look in growths]),
    ):
        seen = [growth for growth in column if growth is not None]
        if seen:
            values[name] = min(seen)
            if min(seen) > metric(name).allowed_more and max(seen) - min(seen) > metric(name).allowed_more:
                ranges[name] = min(seen), max(seen)
    sites = {
        Site(KEPT_PYTHON, _function_at(line, counted.functions), line): size for line, size in growths[-1].lines.items()
    }
    return msgspec.structs.replace(
        counted,
        values={**counted.values, **values},
        uncounted=[*counted.uncounted, *(name for name in (KEPT_PYTHON, KEPT_NATIVE) if name not in values)],
        sites=[*counted.sites, *counter_sites(sites.items(), root)],
        unstable=sorted({*counted.unstable, *ranges}),
        ranges={**counted.ranges, **ranges},
    )


def _round(workload: BoundWorkload, shape: str) -> tuple[int, Callable[[], None]]:
    """The number of calls of a round, and a function that makes them."""
    pool, device = workload.pool(shape), workload.device
    device.synchronize()
    began = device.clock_ns()
    workload.invoke(pool[0])
    device.synchronize()
    took = device.clock_ns() - began
    calls = calls_within(took, seconds=_ROUND_SECONDS, fewest=_FEWEST_CALLS, most=POOL_SIZE)

    def run() -> None:
        for inputs in pool[:calls]:
            workload.invoke(inputs)
        device.synchronize()
        collect()

    return calls, run


def _look(
    run: Callable[[], None],
    calls: int,
    frames: int,
    malloc: Callable[[], int] | None,
    kept_in_tensors: int,
    lines: SourceLines,
) -> _Growth | None:
    """Run two rounds of some calls and return the growth of the second; None if the calls traced, or stopped the tracing."""
    if tracemalloc.is_tracing():
        return None
    tracemalloc.start(frames)
    try:
        traced = object()
        run()
        # A snapshot's own memory is traced too, so the first is taken before the round and the second after it.
        snapshot = tracemalloc.take_snapshot() if frames > 1 else None
        python_before, malloc_before = _held(malloc)
        run()
        python_after, malloc_after = _held(malloc)
        if tracemalloc.get_object_traceback(traced) is None:
            return None
        by_line = _by_line(snapshot, tracemalloc.take_snapshot(), lines) if snapshot else Counter[str]()
    finally:
        tracemalloc.stop()
    python = max(0, python_after - python_before) // calls
    native = None
    if malloc_before is not None and malloc_after is not None:
        native = max(0, (malloc_after - malloc_before) // calls - python - kept_in_tensors)
    return _Growth(python, native, Counter({line: size // calls for line, size in by_line.items()}))


def _held(malloc: Callable[[], int] | None) -> tuple[int, int | None]:
    """Bytes held in Python's blocks and by malloc, without those of tracing itself."""
    in_use = None if malloc is None else malloc() - tracemalloc.get_tracemalloc_memory()
    return tracemalloc.get_traced_memory()[0], in_use


def _is_steady(look: _Growth) -> bool:
    growths = ((KEPT_PYTHON, look.python), (KEPT_NATIVE, look.native or 0))
    return all(growth <= metric(name).allowed_more for name, growth in growths)


def _by_line(before: tracemalloc.Snapshot, after: tracemalloc.Snapshot, lines: SourceLines) -> Counter[str]:
    """The growth at the innermost lines of the project; growth outside the project is left out."""
    growth: Counter[str] = Counter()
    for change in after.compare_to(before, "traceback"):
        frames = (lines.at(frame.filename, frame.lineno) for frame in reversed(change.traceback))
        if change.size_diff and (line := next(filter(None, frames), None)):
            growth[line] += change.size_diff
    largest = max(growth.values(), default=0)
    return Counter({line: size for line, size in growth.items() if size > largest * _SHARE_OF_LARGEST})


def _function_at(line: str, functions: list[CalledFunction]) -> str:
    """The innermost function of the project around a line, or its file."""
    file, _, number = line.rpartition(":")
    around = [f for f in functions if f.file == file and f.first <= int(number) <= f.last]
    return max(around, key=lambda function: function.first).name if around else file


class _MallInfo(ctypes.Structure):
    """``struct mallinfo2``: mallinfo(3)."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    )


def _malloc_in_use() -> Callable[[], int] | None:
    """A function that returns the bytes malloc has handed out; None for processes with another malloc than glibc's."""
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

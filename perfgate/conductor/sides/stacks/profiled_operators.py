"""The operators in the traces of a side: how often the functions of the project call each, and how long that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate import trace
from perfgate.conductor.sides.stacks.stacks import SideStacks, StackFrame
from perfgate.document.profile import ProfiledOperator
from perfgate.errors import DocumentError
from perfgate.trace.analysis.stacks import operators_above, project_places, stacks_of
from perfgate.trace.model.arithmetic import NOTHING_AROUND
from perfgate.trace.model.recording import Timeline
from perfgate.trace.model.stacks import Stacks

_MOST_OPERATORS = 300
# On a busy machine some calls hold times in which the thread did not run: those are this many interquartile ranges above
# the usual.
_FAR = 5.0
# A trace of a server's own profiler that is larger takes long to read and to download.
MOST_TRACE_BYTES = 200 << 20
MOST_TRACES = 4
_Floats = npt.NDArray[np.float64]


class _Key(NamedTuple):
    """An operator and the place where the function that calls it begins, as the profiler writes it; empty for none."""

    name: str
    place: str
    on_device: bool


def kept_traces(sampled: SideStacks) -> list[Path]:
    """The traces that are read and attached: the largest, for launchers write some too.

    A link does not count: it may lead anywhere.
    """
    sizes: dict[Path, int] = {}
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
    """The operators of a unit of work, most time first. A trace that cannot be read tells none."""
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
    """Yield the seconds of every call of each operator that Python calls; on a device, of the work that the call launched."""
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
    """Where the functions that a trace names stand in the project: torch writes paths below some folder of ``sys.path``."""

    def __init__(self, sampled: SideStacks, root: Path) -> None:
        self._root = root.resolve()
        self._frames: dict[str, set[StackFrame]] = defaultdict(set)
        for process in sampled.processes:
            for frame in process.frames:
                self._frames[Path(frame.file).name].add(frame._replace(line=0))

    def of(self, place: str) -> tuple[str, str]:
        """The name of the function at a place, and where it begins, below the root; empty if they are unknown.

        A function that ran before the recording began has the line at which it was then.
        """
        file, _, number = place.rpartition(":")
        if not number.isdecimal():
            return "", ""
        line = int(number)
        around: list[StackFrame] = []
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

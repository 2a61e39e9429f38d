"""What is kept of one rank: its steps, its collectives, when it computed, and what it sent to whom.

A rank is reduced to this by itself, in a process of its own or on the machine where its recording lies, so that thousands of
ranks can be put together. Times are nanoseconds of the rank's own clock.
"""

from __future__ import annotations

import hashlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.trace.analysis import IntColumn, Intervals, union
from perfgate.trace.ascend.kinds import type_by_name
from perfgate.trace.kernel_table import KernelTable
from perfgate.trace.recording import Timeline

# More stretches of computing than a page can show are of no use: the shortest gaps between them are closed.
MOST_STRETCHES = 10_000
# The kernel that computes a token's experts; its time is the load of the experts that a rank holds.
_EXPERTS = "groupedmatmul"
_COLUMN = np.dtype("<i8")


class StepParts(msgspec.Struct, frozen=True, array_like=True):
    """A step in nanoseconds. ``exposed`` is communication that nothing hides, ``free`` that nothing ran.

    ``bubble`` is the part of the exposed communication that is spent receiving from another stage of a pipeline, None where
    the profiler says nothing of it.
    """

    number: int | None
    length: int
    computing: int
    exposed: int
    free: int
    bubble: int | None = None


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """The collectives of a rank in nanoseconds: all of their time, while data moved, spent waiting, and neither.

    A part is None where it was not recorded of every collective.
    """

    elapsed: int = 0
    transit: int | None = None
    wait: int | None = None
    idle: int | None = None


class LinkTotal(msgspec.Struct, frozen=True, array_like=True):
    """What a rank sent another over one kind of link: bytes and nanoseconds."""

    source: int
    target: int
    link: str
    size: float
    transit: int

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.size / self.transit * 1e9


class Shares(msgspec.Struct, frozen=True, array_like=True):
    """A rank's shares in collectives, in columns of int64: a key that is the same on every rank, a position in ``names``,
    and times."""

    names: list[str]
    key: bytes = b""
    name: bytes = b""
    start: bytes = b""
    elapsed: bytes = b""

    def columns(self) -> tuple[IntColumn, IntColumn, IntColumn, IntColumn]:
        """Key, name, start and elapsed time."""
        return _column(self.key), _column(self.name), _column(self.start), _column(self.elapsed)


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one device of one rank; ``path`` is the recording it is of.

    ``stage`` is its place in the pipeline, ``experts`` the nanoseconds of the kernels that compute experts; None where the
    recording names none. ``busy`` are the begins and ends of the stretches in which it computed, two columns of int64.
    """

    path: str
    rank: int | None
    device: int | None
    steps: list[StepParts]
    waiting: Waiting
    links: list[LinkTotal]
    shares: Shares
    busy: tuple[bytes, bytes]
    stage: int | None = None
    experts: int | None = None

    @property
    def own(self) -> float | None:
        """Nanoseconds of a typical (median) step without the communication that it waits for; None without steps."""
        return self._typical([step.length - step.exposed for step in self.steps])

    @property
    def computing(self) -> float | None:
        return self._typical([step.computing for step in self.steps])

    @property
    def free(self) -> float | None:
        return self._typical([step.free for step in self.steps])

    @property
    def exposed(self) -> float | None:
        return self._typical([step.exposed for step in self.steps])

    @property
    def bubble(self) -> float | None:
        return self._typical([step.bubble for step in self.steps if step.bubble is not None])

    @property
    def stretches(self) -> Intervals:
        """When it computed."""
        return Intervals(*map(_column, self.busy))

    @staticmethod
    def _typical(values: Sequence[int]) -> float | None:
        return statistics.median(values) if values else None


def reduce_timeline(timeline: Timeline, path: str) -> RankTable:
    """The small table of a timeline."""
    totals: dict[tuple[int, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for link in timeline.rank_links or ():
        total = totals[link.source, link.target, link.link]
        total[0] += link.size_bytes
        total[1] += link.transit_ns
    busy = _stretches(timeline)
    return RankTable(
        path=path,
        rank=timeline.rank,
        device=timeline.device,
        steps=list(_steps(timeline)),
        waiting=_waiting(timeline),
        links=[LinkTotal(*key, size=size, transit=int(transit)) for key, (size, transit) in totals.items()],
        shares=_shares(_collectives(timeline)),
        busy=(_bytes(busy.start), _bytes(busy.end)),
        stage=_stage(timeline),
        experts=_experts(timeline),
    )


def _steps(timeline: Timeline) -> Iterator[StepParts]:
    bubbles = {step.number: step.bubble_ns for step in timeline.step_table or ()}
    for step in timeline.steps or ():
        if step.number is not None and step.length_ns is not None and step.computing_ns is not None:
            exposed, free = step.exposed_communication_ns or 0, step.free_ns or 0
            yield StepParts(step.number, step.length_ns, step.computing_ns, exposed, free, bubbles.get(step.number))


def _waiting(timeline: Timeline) -> Waiting:
    collectives = [one for one in timeline.collectives or () if one.elapsed_ns is not None]
    return Waiting(
        elapsed=sum(one.elapsed_ns or 0 for one in collectives),
        transit=_sum(one.transit_ns for one in collectives),
        wait=_sum(one.wait_ns for one in collectives),
        idle=_sum(one.idle_ns for one in collectives),
    )


def _sum(parts: Iterable[int | None]) -> int | None:
    known = list(parts)
    return None if None in known else sum(part or 0 for part in known)


class _Share(NamedTuple):
    """One collective: what names it on every rank, what to call it, and when it was."""

    identity: str
    label: str
    start: int
    elapsed: int


def _collectives(timeline: Timeline) -> Iterator[_Share]:
    """Every collective; sending from one rank to another is none, for its two ends need not end together."""
    if timeline.collectives is not None:
        for one in timeline.collectives:
            if one.kind == "collective" and one.start_ns is not None and one.elapsed_ns:
                identity = f"{one.group} {one.step} {one.name}"
                yield _Share(identity, type_by_name(one.name), one.start_ns, one.elapsed_ns)
        return
    events = timeline.events.of_kind("comm")
    events = events.select(np.argsort(events.start, kind="stable"))
    counts = Counter(events.name.tolist())
    for name, start, elapsed in zip(events.name.tolist(), events.start.tolist(), events.duration.tolist()):
        # Such a recording names no group: ranks that ran a kernel as often as each other ran it together.
        yield _Share(f"{events.names[name]} of {counts[name]}", type_by_name(events.names[name]), start, elapsed)


def _shares(collectives: Iterable[_Share]) -> Shares:
    names: dict[str, int] = {}
    seen: Counter[str] = Counter()
    rows = []
    for identity, label, start, elapsed in collectives:
        again = f"{identity} {seen[identity]}"
        seen[identity] += 1
        key = int.from_bytes(hashlib.blake2b(again.encode(), digest_size=8).digest(), "little", signed=True)
        rows.append((key, names.setdefault(label, len(names)), start, elapsed))
    table = np.array(rows, dtype=np.int64).reshape(-1, 4)
    return Shares(list(names), *(_bytes(table[:, column]) for column in range(4)))


def _stretches(timeline: Timeline) -> Intervals:
    """When it computed, by its events, else by its table of kernels; the shortest gaps are closed where there are too many."""
    events = timeline.events.of_kind("compute")
    spans = events.intervals
    if not len(events) and timeline.kernels:
        kernels = KernelTable.of(timeline.kernels)
        chosen = ~kernels.is_collective & (kernels.start >= 0)
        spans = Intervals(kernels.start[chosen], kernels.start[chosen] + kernels.duration[chosen])
    busy = union(spans)
    gaps = busy.start[1:] - busy.end[:-1]
    if gaps.size >= MOST_STRETCHES:
        open_ = np.sort(np.argpartition(gaps, -(MOST_STRETCHES - 1))[-(MOST_STRETCHES - 1) :])
        busy = Intervals(
            np.concatenate([busy.start[:1], busy.start[open_ + 1]]), np.concatenate([busy.end[open_], busy.end[-1:]])
        )
    return busy


def _stage(timeline: Timeline) -> int | None:
    """Its place among the ranks of its pipeline, where there is one of several."""
    pipeline = timeline.groups.get("pp", ())
    return pipeline.index(timeline.rank) if len(pipeline) > 1 and timeline.rank in pipeline else None


def _experts(timeline: Timeline) -> int | None:
    if timeline.kernels:
        kernels = KernelTable.of(timeline.kernels)
        named = np.array([_EXPERTS in text.lower() for text in kernels.texts], dtype=bool)
        total = int(kernels.duration[named[kernels.group]].sum()) if named.any() else 0
    else:
        events = timeline.events.of_kind("compute")
        total = int(events.select(events.is_named(lambda name: _EXPERTS in name.lower())).duration.sum())
    return total or None


def _column(content: bytes) -> IntColumn:
    return np.frombuffer(content, dtype=_COLUMN).astype(np.int64, copy=False)


def _bytes(values: IntColumn) -> bytes:
    return values.astype(_COLUMN, copy=False).tobytes()

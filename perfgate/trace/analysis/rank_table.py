"""A rank's recording in condensed form: its steps, its collectives, its computing time and its traffic by peer.

Each rank is condensed separately, in a process of its own or on the machine that holds its recording, so that thousands of
ranks can be combined. Times are nanoseconds of the rank's own clock.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from perfgate.trace.model.arithmetic import Covered, IntColumn, Intervals, union
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import KIND_CODES
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import NO_NUMBER
from perfgate.trace.model.recording import Timeline

# A page cannot show more intervals of computing than this: the shortest gaps between them are closed.
MOST_STRETCHES = 10_000
# The kernel that computes a token's experts; its time is the load of the experts that a rank holds.
_EXPERTS = "groupedmatmul"
_COLUMN = np.dtype("<i8")
# Operations between two ranks, by torch's names.
_PAIRWISE = frozenset(("send", "recv", "isend", "irecv"))
# Rows of communication_matrix.json included in the row of the total (allreduce-top1, allreduce-middle, allreduce-bottom2).
_PART_OF_TOTAL, _TOTAL = re.compile(r"-(?:top\d*|middle|bottom\d*)$"), "-total"
# Core types that mark a kernel as part of a collective in Ascend's tables.
COLLECTIVE_CORES = ("HCCL", "COMMUNICATION")


class StepParts(msgspec.Struct, frozen=True, array_like=True):
    """A step in nanoseconds. ``exposed`` is exposed communication, ``free`` idle time, ``fused`` the time in which only kernels
    ran that both compute and communicate, and so may wait for other ranks.

    ``bubble`` is the part of the exposed communication that is spent receiving from another stage of a pipeline, None if
    the profiler does not record it.
    """

    number: int
    length: int
    computing: int
    exposed: int
    free: int
    bubble: int | None = None
    fused: int = 0


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """The collectives of a rank in nanoseconds: their total time, and its parts in transfer, in waiting, and in neither.

    A part is None unless it was recorded for every collective.
    """

    elapsed: int = 0
    transit: int | None = None
    wait: int | None = None
    idle: int | None = None


class LinkTraffic(msgspec.Struct, frozen=True, array_like=True):
    """Traffic from one rank to another over one kind of link in operations of one sort: bytes and nanoseconds.

    ``source`` and ``target`` are positions in ``group``, or global ranks if that is None; in a table the source is its rank.
    """

    source: int
    target: int
    link: str
    operation: str
    group: str | None
    size: float
    transit: int

    @property
    def bandwidth(self) -> float:
        """Bytes per second."""
        return self.size / self.transit * 1e9


class ShareColumns(NamedTuple):
    """A rank's shares in collectives, one entry each, in nanoseconds.

    ``key`` is the same on every rank of a collective; ``name`` and ``group`` are positions in the names and groups. ``own``
    is the time since the rank left its last communication (the first: since its steps began), ``computed`` the part of that
    in which it computed. ``step`` is the number of the step, ``sent`` the bytes the rank contributed. NO_NUMBER if unknown.
    """

    key: IntColumn
    name: IntColumn
    group: IntColumn
    start: IntColumn
    elapsed: IntColumn
    own: IntColumn
    computed: IntColumn
    step: IntColumn
    sent: IntColumn


class Group(msgspec.Struct, frozen=True, array_like=True):
    """A group of ranks under its name in a recording; ``ranks`` is empty and ``size`` None if only the name is recorded."""

    name: str
    ranks: tuple[int, ...] = ()
    size: int | None = None


class RankShares(msgspec.Struct, frozen=True, array_like=True):
    """``ShareColumns`` in packed form."""

    names: list[str]
    groups: list[Group]
    columns: list[bytes]

    def unpacked(self) -> ShareColumns:
        return ShareColumns(*map(_column, self.columns))


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """The condensed data of one device of one rank; ``path`` is the recording.

    ``groups`` are the ranks of the groups that the recording lists, ``world`` is the number of ranks of the job. ``stage`` is
    the rank's place in the pipeline, ``experts`` the nanoseconds of the kernels that compute experts; None if the recording
    names none. ``busy`` holds the starts and ends of the intervals of computing, two columns of int64.
    """

    path: str
    rank: int | None
    device: int | None
    steps: list[StepParts]
    waiting: Waiting
    links: list[LinkTraffic]
    shares: RankShares
    busy: tuple[bytes, bytes]
    groups: list[tuple[int, ...]] = []
    world: int | None = None
    stage: int | None = None
    experts: int | None = None

    @property
    def own(self) -> float | None:
        """Nanoseconds of a typical (median) step without the parts that may wait for other ranks: exposed communication and
        fused kernels; None without steps."""
        return self._typical([step.length - step.exposed - step.fused for step in self.steps])

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
    def fused(self) -> float | None:
        return self._typical([step.fused for step in self.steps])

    @property
    def bubble(self) -> float | None:
        return self._typical([step.bubble for step in self.steps if step.bubble is not None])

    @property
    def stretches(self) -> Intervals:
        """The intervals of computing."""
        return Intervals(*map(_column, self.busy))

    @staticmethod
    def _typical(values: Sequence[int]) -> float | None:
        return statistics.median(values) if values else None


def reduce_timeline(timeline: Timeline, path: str, *, world: int | None = None) -> RankTable:
    """The condensed table of a timeline; ``world`` is the number of ranks of the job."""
    totals: dict[tuple[int, int, str, str, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    links = timeline.rank_links or ()
    added_up = {(link.operation, link.group) for link in links if link.operation.endswith(_TOTAL)}
    for link in links:
        if (_PART_OF_TOTAL.sub(_TOTAL, link.operation), link.group) not in added_up or link.operation.endswith(_TOTAL):
            operation = type_by_name(link.operation)
            total = totals[link.source, link.target, link.link, operation, link.group or ""]
            total[0] += link.size_bytes
            total[1] += link.transit_ns
    busy = _stretches(timeline)
    return RankTable(
        path=path,
        rank=timeline.rank,
        device=timeline.device,
        steps=list(_steps(timeline)),
        waiting=_waiting(timeline),
        links=[LinkTraffic(*key, size=size, transit=int(transit)) for key, (size, transit) in totals.items()],
        shares=_shares(timeline, busy),
        busy=(_bytes(busy.start), _bytes(busy.end)),
        groups=sorted(set(timeline.groups.values())),
        world=world,
        stage=_stage(timeline),
        experts=_experts(timeline),
    )


def _steps(timeline: Timeline) -> Iterator[StepParts]:
    bubbles = {step.number: step.bubble_ns for step in timeline.step_table or ()}
    for step in timeline.steps or ():
        if step.number is not None and step.length_ns is not None and step.computing_ns is not None:
            exposed, free = step.exposed_communication_ns or 0, step.free_ns or 0
            bubble = bubbles.get(step.number)
            yield StepParts(step.number, step.length_ns, step.computing_ns, exposed, free, bubble, step.fused_ns)


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
    """One communication of a rank; ``identity`` is the same on every rank, and None for one between two ranks, because those
    need not end together.
    """

    identity: str | None
    label: str
    group: Group
    start: int
    elapsed: int
    step: int | None = None
    sent: int | None = None


def _communication(timeline: Timeline) -> Iterator[_Share]:
    """All communication from the best source available: Ascend's table, torch's kernel arguments, or the kernels alone."""
    if timeline.collectives is not None:
        for one in timeline.collectives:
            if one.start_ns is not None and one.elapsed_ns:
                ranks = timeline.groups.get(one.group or "", ())
                identity = f"{one.group} {one.step} {one.name}" if one.kind == "collective" else None
                group = Group(one.group or "", ranks, len(ranks) or None)
                yield _Share(identity, type_by_name(one.name), group, one.start_ns, one.elapsed_ns, one.step)
        yield from _of_kernels(timeline)
    elif timeline.collective_kernels:
        for kernel in timeline.collective_kernels:
            ranks = kernel.ranks or timeline.groups.get(kernel.group, ())
            pairwise = kernel.operation.lower() in _PAIRWISE
            identity = None if pairwise else f"{kernel.group} {ranks} {kernel.operation}"
            group = Group(kernel.group, ranks, kernel.size or len(ranks) or None)
            label = type_by_name(kernel.name)
            yield _Share(identity, label, group, kernel.start_ns, kernel.elapsed_ns, sent=kernel.sent)
        yield from _of_events(timeline, {(one.start_ns, one.name) for one in timeline.collective_kernels})
    else:
        yield from _of_events(timeline, set())


def _of_kernels(timeline: Timeline) -> Iterator[_Share]:
    """Kernels that communicate without an entry in the table of collectives: MoeDistributeDispatch."""
    for kernel in timeline.kernels or ():
        if (
            kernel.start_ns is not None
            and (kernel.core or "").upper() not in COLLECTIVE_CORES
            and kernel_kind(kernel.name) != "compute"
        ):
            name = kernel.type or type_by_name(kernel.name)
            yield _Share(name, name, Group(""), kernel.start_ns, kernel.duration_ns, kernel.step)


def _of_events(timeline: Timeline, described: Collection[tuple[int, str]]) -> Iterator[_Share]:
    """Kernels that name no group: ranks that ran one equally often are assumed to have run it together."""
    events = timeline.events.of_kind("comm", "fused")
    counts = Counter(events.name.tolist())
    for name, start, elapsed in zip(events.name.tolist(), events.start.tolist(), events.duration.tolist()):
        word = events.names[name]
        if (start, word) not in described:
            yield _Share(f"{word} of {counts[name]}", type_by_name(word), Group(""), start, elapsed)


def _shares(timeline: Timeline, busy: Intervals) -> RankShares:
    communication = sorted(_communication(timeline), key=lambda one: one.start)
    names: dict[str, int] = {}
    groups: dict[Group, int] = {}
    seen: Counter[str] = Counter()
    # A rank's own time before its first communication starts with its first step, or with the first work of its device.
    began = [step.start_ns for step in timeline.steps or () if step.start_ns is not None] or busy.start[:1].tolist()
    ended: int | None = min(began, default=None)
    rows = []
    for one in communication:
        own = NO_NUMBER if ended is None else max(0, one.start - ended)
        ended = max(one.start + one.elapsed, ended or one.start)
        if one.identity is None:
            continue
        again = f"{one.identity} {seen[one.identity]}"
        seen[one.identity] += 1
        key = int.from_bytes(hashlib.blake2b(again.encode(), digest_size=8).digest(), "little", signed=True)
        name, group = names.setdefault(one.label, len(names)), groups.setdefault(one.group, len(groups))
        step = NO_NUMBER if one.step is None else one.step
        rows.append(
            (key, name, group, one.start, one.elapsed, own, 0, step, NO_NUMBER if one.sent is None else one.sent)
        )
    columns = ShareColumns(*np.array(rows, dtype=np.int64).reshape(-1, len(ShareColumns._fields)).T)
    since = np.maximum(columns.own, 0)
    columns = columns._replace(
        computed=Covered(busy).within(Intervals(columns.start - since, columns.start)),
        step=np.where(columns.step == NO_NUMBER, _step_at(timeline, columns.start), columns.step),
    )
    return RankShares(list(names), list(groups), [_bytes(column) for column in columns])


def _step_at(timeline: Timeline, times: IntColumn) -> IntColumn:
    """The number of the step that contains each time, NO_NUMBER outside all steps."""
    steps = sorted(
        (step.start_ns, step.end_ns, step.number)
        for step in timeline.steps or ()
        if step.number is not None and step.start_ns is not None and step.end_ns is not None
    )
    if not steps:
        return np.full(times.size, NO_NUMBER, dtype=np.int64)
    start, end, number = np.array(steps, dtype=np.int64).T
    place = np.searchsorted(start, times, side="right") - 1
    inside = (place >= 0) & (times < end[np.maximum(place, 0)])
    return np.where(inside, number[np.maximum(place, 0)], NO_NUMBER)


def _stretches(timeline: Timeline) -> Intervals:
    """The intervals of computing, from events, else from the table of kernels; if too many, the shortest gaps are closed."""
    events = timeline.events.of_kind("compute")
    spans = events.intervals
    if not len(events) and timeline.kernels:
        kernels = KernelTable.of(timeline.kernels)
        chosen = (kernels.kind == KIND_CODES["compute"]) & (kernels.start >= 0)
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
    """The place of the rank in its pipeline; None without a pipeline of several ranks."""
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

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
from perfgate.trace.model.recording import CollectiveKind, ProfilerStep, RankLink, Timeline

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


class ShareColumns(NamedTuple):
    """A rank's shares in collectives, one entry each, in nanoseconds.

    ``key`` is the same on every rank of a collective; ``name`` is a position in the table's names, ``ranks`` the size of the
    group. ``own`` is the time since the rank left its last communication (the first: since its steps began), ``computed`` the
    part of that in which it computed. ``step`` is the number of the step. NO_NUMBER if unknown.
    """

    key: IntColumn
    name: IntColumn
    ranks: IntColumn
    start: IntColumn
    elapsed: IntColumn
    own: IntColumn
    computed: IntColumn
    step: IntColumn


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """The condensed data of one device of one rank; ``path`` is the recording.

    The shares are those of the time of its collectives in which it transferred data, waited, and did neither; None unless
    that was recorded for every collective. ``names`` are those of the collectives, ``columns`` are ``ShareColumns`` and
    ``busy`` the starts and ends of the intervals of computing, all of them columns of int64.

    ``groups`` are the ranks of the groups that the recording lists, ``world`` is the number of ranks of the job. ``stage`` is
    the rank's place in the pipeline, ``experts`` the nanoseconds of the kernels that compute experts; None if the recording
    names none.
    """

    path: str
    rank: int | None
    device: int | None
    steps: list[ProfilerStep]
    transit_share: float | None
    wait_share: float | None
    idle_share: float | None
    links: list[RankLink]
    names: list[str]
    columns: list[bytes]
    busy: tuple[bytes, bytes]
    groups: list[tuple[int, ...]] = []
    world: int | None = None
    stage: int | None = None
    experts: int | None = None

    @property
    def own(self) -> float | None:
        """Nanoseconds of a typical (median) step without the parts that may wait for other ranks; None without steps."""
        return _typical(step.own_ns for step in self.steps)

    @property
    def computing(self) -> float | None:
        return _typical(step.computing_ns for step in self.steps)

    @property
    def free(self) -> float | None:
        return _typical(step.free_ns for step in self.steps)

    @property
    def exposed(self) -> float | None:
        return _typical(step.exposed_communication_ns for step in self.steps)

    @property
    def fused(self) -> float | None:
        return _typical(step.fused_ns for step in self.steps)

    @property
    def bubble(self) -> float | None:
        return _typical(step.bubble_ns for step in self.steps)

    @property
    def shares(self) -> ShareColumns:
        return ShareColumns(*map(_column, self.columns))

    @property
    def stretches(self) -> Intervals:
        """The intervals of computing."""
        return Intervals(*map(_column, self.busy))


def reduce_timeline(timeline: Timeline, path: str, *, world: int | None = None) -> RankTable:
    """The condensed table of a timeline; ``world`` is the number of ranks of the job."""
    busy = _stretches(timeline)
    names, columns = _shares(timeline, busy)
    collectives = [one for one in timeline.collectives or () if one.elapsed_ns is not None]
    elapsed = sum(one.elapsed_ns or 0 for one in collectives)
    pipeline = timeline.groups.get("pp", ())
    # Only the profiler's own table has the bubble of a step.
    bubbles = {step.number: step.bubble_ns for step in timeline.step_table or ()}
    known = [step for step in timeline.steps or () if step.computing_ns is not None and step.length_ns is not None]
    return RankTable(
        path=path,
        rank=timeline.rank,
        device=timeline.device,
        steps=[step._replace(bubble_ns=bubbles.get(step.number)) for step in known if step.number is not None],
        transit_share=_share_of(elapsed, [one.transit_ns for one in collectives]),
        wait_share=_share_of(elapsed, [one.wait_ns for one in collectives]),
        idle_share=_share_of(elapsed, [one.idle_ns for one in collectives]),
        links=list(_links(timeline.rank_links or ())),
        names=names,
        columns=columns,
        busy=(_bytes(busy.start), _bytes(busy.end)),
        groups=sorted(set(timeline.groups.values())),
        world=world,
        stage=pipeline.index(timeline.rank) if len(pipeline) > 1 and timeline.rank in pipeline else None,
        experts=_experts(timeline),
    )


def _share_of(elapsed: int, parts: Sequence[int | None]) -> float | None:
    return None if not elapsed or None in parts else sum(part or 0 for part in parts) / elapsed


def _typical(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _links(links: Sequence[RankLink]) -> Iterator[RankLink]:
    """The traffic of all steps by link, operation and group; the parts of a total are not counted again."""
    totals: dict[tuple[str, CollectiveKind, str, int, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    added_up = {(link.operation, link.group) for link in links if link.operation.endswith(_TOTAL)}
    for link in links:
        if (_PART_OF_TOTAL.sub(_TOTAL, link.operation), link.group) not in added_up or link.operation.endswith(_TOTAL):
            operation = type_by_name(link.operation)
            total = totals[operation, link.kind, link.group or "", link.source, link.target, link.link]
            total[0] += link.size_bytes
            total[1] += link.transit_ns
    for (operation, kind, group, source, target, name), (size, transit) in totals.items():
        bandwidth = size / transit * 1e9 if transit else None
        yield RankLink(operation, kind, group, None, source, target, name, size, int(transit), bandwidth)


class _Share(NamedTuple):
    """One communication of a rank in a group of so many ``ranks``; ``identity`` is the same on every rank, and None for one
    between two ranks, because those need not end together.
    """

    identity: str | None
    label: str
    ranks: int | None
    start: int
    elapsed: int
    step: int | None = None


def _communication(timeline: Timeline) -> Iterator[_Share]:
    """All communication from the best source available: Ascend's table, torch's kernel arguments, or the kernels alone."""
    if timeline.collectives is not None:
        for one in timeline.collectives:
            if one.start_ns is not None and one.elapsed_ns:
                ranks = timeline.groups.get(one.group or "", ())
                identity = f"{one.group} {one.step} {one.name}" if one.kind == "collective" else None
                label = type_by_name(one.name)
                yield _Share(identity, label, len(ranks) or None, one.start_ns, one.elapsed_ns, one.step)
        yield from _of_kernels(timeline)
    elif timeline.collective_kernels:
        for kernel in timeline.collective_kernels:
            ranks = kernel.ranks or timeline.groups.get(kernel.group, ())
            pairwise = kernel.operation.lower() in _PAIRWISE
            identity = None if pairwise else f"{kernel.group} {ranks} {kernel.operation}"
            label, size = type_by_name(kernel.name), len(ranks) or kernel.size or None
            yield _Share(identity, label, size, kernel.start_ns, kernel.elapsed_ns)
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
            yield _Share(name, name, None, kernel.start_ns, kernel.duration_ns, kernel.step)


def _of_events(timeline: Timeline, described: Collection[tuple[int, str]]) -> Iterator[_Share]:
    """Kernels that name no group: ranks that ran one equally often are assumed to have run it together."""
    events = timeline.events.of_kind("comm", "fused")
    counts = Counter(events.name.tolist())
    for name, start, elapsed in zip(events.name.tolist(), events.start.tolist(), events.duration.tolist()):
        word = events.names[name]
        if (start, word) not in described:
            yield _Share(f"{word} of {counts[name]}", type_by_name(word), None, start, elapsed)


def _shares(timeline: Timeline, busy: Intervals) -> tuple[list[str], list[bytes]]:
    """The names of the collectives, and the columns of ``ShareColumns``."""
    communication = sorted(_communication(timeline), key=lambda one: one.start)
    names: dict[str, int] = {}
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
        ranks, step = (NO_NUMBER if known is None else known for known in (one.ranks, one.step))
        rows.append((key, names.setdefault(one.label, len(names)), ranks, one.start, one.elapsed, own, 0, step))
    columns = ShareColumns(*np.array(rows, dtype=np.int64).reshape(-1, len(ShareColumns._fields)).T)
    since = np.maximum(columns.own, 0)
    columns = columns._replace(
        computed=Covered(busy).within(Intervals(columns.start - since, columns.start)),
        step=np.where(columns.step == NO_NUMBER, _step_at(timeline, columns.start), columns.step),
    )
    return list(names), [_bytes(column) for column in columns]


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

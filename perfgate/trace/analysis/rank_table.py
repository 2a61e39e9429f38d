"""A rank's recording in condensed form: its steps, its collectives, its computing time
and its traffic by peer.

Each rank is condensed separately, in its own process or on the machine that holds its
recording, so that thousands of ranks can be combined. Times are nanoseconds of the
rank's own clock.
"""

from __future__ import annotations

import hashlib
import re
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec
import numpy as np

from perfgate.document.message import Message
from perfgate.document.trace import CollectiveParts
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    Covered,
    IntColumn,
    Intervals,
    number_of,
    union,
)
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.events import DEVICE_KINDS
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import (
    Collective,
    CollectiveKernel,
    CollectiveKind,
    ProfilerStep,
    RankLink,
    Timeline,
    is_collective_core,
)
from perfgate.trace.model.spans import launch_times

# A page cannot show more intervals of computing than this: the shortest gaps between
# them are closed.
MOST_STRETCHES = 10_000
# The kernel that computes a token's experts; its time is the load of the experts that a
# rank holds.
_EXPERTS = lazy_pattern(r".*groupedmatmul.*", re.IGNORECASE | re.DOTALL)
_COLUMN = np.dtype("<i8")
# Operations between two ranks, by torch's names.
_PAIRWISE = frozenset(("send", "recv", "isend", "irecv"))
# Rows of communication_matrix.json included in the row of the total (allreduce-top1,
# allreduce-middle, allreduce-bottom2).
_PART_OF_TOTAL, _TOTAL = re.compile(r"-(?:top\d*|middle|bottom\d*)$"), "-total"


class ShareColumns(NamedTuple):
    """A rank's shares in collectives, one entry each, in nanoseconds.

    ``key`` is the same on every rank of a collective; ``name`` is a position in the
    table's names, ``ranks`` the size of the group. ``own`` is the time since the rank
    left its last communication (the first: since its steps began), ``computed`` the
    part of that in which it computed. ``step`` is the number of the step. NO_NUMBER if
    unknown.
    """

    key: IntColumn
    name: IntColumn
    ranks: IntColumn
    start: IntColumn
    elapsed: IntColumn
    own: IntColumn
    computed: IntColumn
    step: IntColumn


StepPart = Literal[
    "own_ns",
    "computing_ns",
    "free_ns",
    "exposed_communication_ns",
    "fused_ns",
    "bubble_ns",
]


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """The condensed data of one device of one rank; ``path`` is the recording.

    ``names`` belong to the collectives, ``columns`` are ``ShareColumns`` and ``busy``
    the starts and ends of the intervals of computing, all of them columns of int64.
    """

    path: str
    rank: int | None
    device: int | None
    steps: list[ProfilerStep]
    in_collectives: CollectiveParts
    links: list[RankLink]
    names: list[str]
    columns: list[bytes]
    busy: tuple[bytes, bytes]
    groups: list[tuple[int, ...]] = []  # that the recording lists
    world: int | None = None  # the number of ranks of the job
    stage: int | None = None  # the rank's place in the pipeline
    experts: int | None = None  # nanoseconds of the kernels that compute experts
    doubts: list[
        Message
    ] = []  # signs that the recording lost events, and its other notes

    def typical(self, part: StepPart) -> float | None:
        """The nanoseconds of a part in the median step; None if no step has it.

        Own time never waits for other ranks.
        """
        times: list[int | None] = [getattr(step, part) for step in self.steps]
        recorded = [time for time in times if time is not None]
        if not recorded:
            return None
        return statistics.median(recorded)

    @property
    def shares(self) -> ShareColumns:
        return ShareColumns(*map(_column, self.columns))

    @property
    def stretches(self) -> Intervals:
        """The intervals of computing."""
        return Intervals(*map(_column, self.busy))


def reduce_timeline(
    timeline: Timeline,
    path: str,
    *,
    world: int | None = None,
    doubts: Iterable[Message] = (),
) -> RankTable:
    """The condensed table of a timeline; ``world`` is the number of ranks of the job."""
    busy = _stretches(timeline)
    names, columns = _shares(timeline, busy)
    in_collectives = CollectiveParts(
        transit=_share(timeline, "transit_ns"),
        wait=_share(timeline, "wait_ns"),
        idle=_share(timeline, "idle_ns"),
    )
    return RankTable(
        path=path,
        rank=timeline.rank,
        device=timeline.device,
        steps=_steps(timeline),
        in_collectives=in_collectives,
        links=list(_links(timeline.rank_links or ())),
        names=names,
        columns=columns,
        busy=(_bytes(busy.start), _bytes(busy.end)),
        groups=sorted(set(timeline.groups.values())),
        world=world,
        stage=_stage(timeline),
        experts=_experts(timeline),
        doubts=list(doubts),
    )


def _steps(timeline: Timeline) -> list[ProfilerStep]:
    """The numbered steps with known parts."""
    # Only the profiler's own table has the bubble of a step.
    bubbles = {step.number: step.bubble_ns for step in timeline.step_table or ()}
    steps = []
    for step in timeline.steps or ():
        has_parts = step.computing_ns is not None and step.length_ns is not None
        if has_parts and step.number is not None:
            steps.append(step._replace(bubble_ns=bubbles.get(step.number)))
    return steps


def _stage(timeline: Timeline) -> int | None:
    """The rank's place in the pipeline."""
    pipeline = timeline.groups.get("pp", ())
    if len(pipeline) < 2 or timeline.rank not in pipeline:
        return None
    return pipeline.index(timeline.rank)


def _share(
    timeline: Timeline, part: Literal["transit_ns", "wait_ns", "idle_ns"]
) -> float | None:
    """The share of a part in the time of all collectives; None unless every collective
    has it.
    """
    elapsed = total = 0
    for collective in timeline.collectives or ():
        if collective.elapsed_ns is None:
            continue
        time = getattr(collective, part)
        if time is None:
            return None
        elapsed += collective.elapsed_ns
        total += time
    if not elapsed:
        return None
    return total / elapsed


def _links(links: Sequence[RankLink]) -> Iterator[RankLink]:
    """The traffic of all steps by link, operation and group; the parts of a total are
    not counted again.
    """
    added_up = {
        (link.operation, link.group)
        for link in links
        if link.operation.endswith(_TOTAL)
    }
    totals: dict[tuple[str, CollectiveKind, str, int, int, str], RankLink] = {}
    for link in links:
        is_total = link.operation.endswith(_TOTAL)
        total_of = _PART_OF_TOTAL.sub(_TOTAL, link.operation)
        if (total_of, link.group) in added_up and not is_total:
            continue
        operation, group = type_by_name(link.operation), link.group or ""
        key = operation, link.kind, group, link.source, link.target, link.link
        total = totals.get(key)
        size, transit = link.size_bytes, link.transit_ns
        if total is not None:
            size, transit = total.size_bytes + size, total.transit_ns + transit
        totals[key] = link._replace(
            operation=operation,
            group=group,
            step=None,
            size_bytes=size,
            transit_ns=transit,
        )
    for total in totals.values():
        bandwidth = None
        if total.transit_ns:
            bandwidth = total.size_bytes / total.transit_ns * 1e9
        yield total._replace(bandwidth=bandwidth)


class _Share(NamedTuple):
    """One communication of a rank; ``ranks`` is the size of its group.

    ``identity`` is the same on every rank. It is None for one between two ranks, because
    those need not end together, and for one that is joined with no other.
    """

    identity: str | None
    label: str
    ranks: int | None
    start: int
    elapsed: int
    step: int | None = None


def _communication(timeline: Timeline) -> Iterator[_Share]:
    """All communication from the best source available: Ascend's table, torch's kernel
    arguments, or the kernels alone.
    """
    if timeline.collectives is not None:
        yield from _of_table(timeline, timeline.collectives)
        yield from _of_kernels(timeline)
        return
    queued = _queued_before(timeline)
    described: set[_Run] = set()
    for kernel in timeline.collective_kernels or ():
        run = kernel.start_ns, kernel.name
        described.add(run)
        yield _of_collective_kernel(timeline, kernel, is_joined=run not in queued)
    yield from _of_events(timeline, described, queued)


# The start of a kernel and its name.
_Run = tuple[int, str]


def _queued_before(timeline: Timeline) -> set[_Run]:
    """The communication that was in the queue of the device when the recording began.

    Another rank need not have recorded it, so it is no part of a sequence.
    """
    work = timeline.events.of_kind(*DEVICE_KINDS)
    launched = launch_times(work, timeline.events.of_kind("runtime"))
    queued = work.select(launched.before & work.is_kind("comm", "fused"))
    names = [queued.names[code] for code in queued.name.tolist()]
    return set(zip(queued.start.tolist(), names))


def _of_table(
    timeline: Timeline, collectives: Sequence[Collective]
) -> Iterator[_Share]:
    for collective in collectives:
        if collective.start_ns is None or not collective.elapsed_ns:
            continue
        ranks = timeline.groups.get(collective.group or "", ())
        identity = None
        if collective.kind == "collective":
            identity = f"{collective.group} {collective.step} {collective.name}"
        yield _Share(
            identity=identity,
            label=type_by_name(collective.name),
            ranks=len(ranks) or None,
            start=collective.start_ns,
            elapsed=collective.elapsed_ns,
            step=collective.step,
        )


def _of_collective_kernel(
    timeline: Timeline, kernel: CollectiveKernel, *, is_joined: bool
) -> _Share:
    ranks = kernel.ranks or timeline.groups.get(kernel.group, ())
    identity = None
    if is_joined and kernel.operation.lower() not in _PAIRWISE:
        identity = f"{kernel.group} {ranks} {kernel.operation}"
    size = len(ranks) or kernel.size or None
    return _Share(
        identity, type_by_name(kernel.name), size, kernel.start_ns, kernel.elapsed_ns
    )


def _of_kernels(timeline: Timeline) -> Iterator[_Share]:
    """Kernels that communicate without an entry in the table of collectives:
    MoeDistributeDispatch.
    """
    kernels = timeline.kernel_columns
    # Nearly all kernels compute: only the others become objects.
    for kernel in kernels.select(~kernels.is_kind("compute")):
        in_table = is_collective_core(kernel.core)
        if (
            kernel.start_ns is not None
            and not in_table
            and kernel_kind(kernel.name) != "compute"
        ):
            name = kernel.type or type_by_name(kernel.name)
            yield _Share(
                name, name, None, kernel.start_ns, kernel.duration_ns, kernel.step
            )


def _of_events(
    timeline: Timeline, described: Collection[_Run], queued: Collection[_Run]
) -> Iterator[_Share]:
    """Kernels that name no group: ranks that ran one equally often are assumed to have
    run it together. Those that are ``described`` are left out.
    """
    events = timeline.events.of_kind("comm", "fused")
    names = [events.names[code] for code in events.name.tolist()]
    runs = list(zip(events.start.tolist(), names))
    counts = Counter(name for start, name in runs if (start, name) not in queued)
    for run, elapsed in zip(runs, events.duration.tolist()):
        start, name = run
        if run in described:
            continue
        identity = None
        if run not in queued:
            identity = f"{name} of {counts[name]}"
        yield _Share(identity, type_by_name(name), None, start, elapsed)


def _shares(timeline: Timeline, busy: Intervals) -> tuple[list[str], list[bytes]]:
    """The names of the collectives, and the columns of ``ShareColumns``."""
    names = Numbering[str]()
    repeats: Counter[str] = Counter()
    ended = _begin(timeline, busy)
    rows = []
    for share in sorted(_communication(timeline), key=lambda share: share.start):
        own = NO_NUMBER
        if ended is not None:
            own = max(0, share.start - ended)
        ended = max(share.start + share.elapsed, ended or share.start)
        if share.identity is None:
            continue
        key = _key(f"{share.identity} {repeats[share.identity]}")
        repeats[share.identity] += 1
        ranks, step = number_of(share.ranks), number_of(share.step)
        rows.append(
            (key, names[share.label], ranks, share.start, share.elapsed, own, 0, step)
        )
    columns = ShareColumns(
        *np.array(rows, dtype=np.int64).reshape(-1, len(ShareColumns._fields)).T
    )
    since = np.maximum(columns.own, 0)
    computed = Covered(busy).within(Intervals(columns.start - since, columns.start))
    step_by_time = np.where(
        columns.step == NO_NUMBER, _step_at(timeline, columns.start), columns.step
    )
    columns = columns._replace(computed=computed, step=step_by_time)
    return list(names), [_bytes(column) for column in columns]


def _begin(timeline: Timeline, busy: Intervals) -> int | None:
    """The begin of a rank's time before its first communication: of its first step,
    else of the first work of its device.
    """
    begun = [
        step.start_ns for step in timeline.steps or () if step.start_ns is not None
    ]
    return min(begun or busy.start[:1].tolist(), default=None)


def _key(text: str) -> int:
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little", signed=True)


def _step_at(timeline: Timeline, times: IntColumn) -> IntColumn:
    """The number of the step that contains each time, NO_NUMBER outside all steps."""
    steps = []
    for step in timeline.steps or ():
        if (
            step.number is not None
            and step.start_ns is not None
            and step.end_ns is not None
        ):
            steps.append((step.start_ns, step.end_ns, step.number))
    if not steps:
        return np.full(times.size, NO_NUMBER, dtype=np.int64)
    start, end, number = np.array(sorted(steps), dtype=np.int64).T
    place = np.searchsorted(start, times, side="right") - 1
    begun = place >= 0
    place = np.maximum(place, 0)
    return np.where(begun & (times < end[place]), number[place], NO_NUMBER)


def _stretches(timeline: Timeline) -> Intervals:
    """The intervals of computing, from events, else from the table of kernels; if too
    many, the shortest gaps are closed.
    """
    events = timeline.events.of_kind("compute")
    spans = events.intervals
    if not len(events):
        kernels = timeline.kernel_columns
        spans = kernels.select(kernels.start >= 0).events.of_kind("compute").intervals
    busy = union(spans)
    gaps = busy.start[1:] - busy.end[:-1]
    if gaps.size >= MOST_STRETCHES:
        longest = np.argpartition(gaps, -(MOST_STRETCHES - 1))[-(MOST_STRETCHES - 1) :]
        stays = np.sort(longest)
        start = np.concatenate([busy.start[:1], busy.start[stays + 1]])
        end = np.concatenate([busy.end[stays], busy.end[-1:]])
        busy = Intervals(start, end)
    return busy


def _experts(timeline: Timeline) -> int | None:
    if timeline.kernels:
        kernels = timeline.kernel_columns
        total = kernels.of_types(_EXPERTS).duration.sum()
    else:
        events = timeline.events.of_kind("compute")
        total = events.duration[events.is_named(_EXPERTS.fullmatch)].sum()
    return int(total) or None


def _column(content: bytes) -> IntColumn:
    return np.frombuffer(content, dtype=_COLUMN).astype(np.int64, copy=False)


def _bytes(values: IntColumn) -> bytes:
    return values.astype(_COLUMN, copy=False).tobytes()

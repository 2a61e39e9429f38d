"""Results of `perfgate trace`: top, gaps, steps and differences, per rank and device.
Times are seconds.
"""

from __future__ import annotations

from typing import Literal

from perfgate.document.alignment import Change
from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct

TopKey = Literal["type", "name", "shape", "line"]
# "fused": kernels that compute and communicate at once.
TopKind = Literal["compute", "copy", "comm", "fused", "host"]
# "replaced": kernels of base gave way to others under the same operator and line.
DiffChange = Literal[Change, "replaced"]
DiffKey = Literal["operator", "line"]
GapCause = Literal[
    # the event that ends the gap was launched after the gap began: the host was late
    "host",
    # so was this event, and the host waited for the device when the device ran dry
    "synchronization",
    # launched before the gap began, yet not started: a dependency, an event, or the
    # device's own scheduling
    "queue",
    "copy",  # only copies ran
    "communication",  # only collectives ran: they send, or wait for other ranks
    "unknown",  # no launch is recorded for the event that ends the gap
]


class RankEntry(FrozenStruct, kw_only=True):
    """An entry about one device of one rank; None if the recording does not name it."""

    rank: int | None
    device: int | None


class TimelineAnswer(RankEntry, kw_only=True):
    """The answer about one device of one rank, from the recording at ``path``.

    If it is empty, ``reason`` gives the cause.
    """

    path: str
    reason: Message | None = None


class TraceDocument(FrozenStruct, kw_only=True):
    """An answer about recordings of one ``format``; ``notes`` name the parts of them
    that could not be read.
    """

    format: str
    notes: list[Message] = []


class TopRow(FrozenStruct, kw_only=True, omit_defaults=True):
    """One operator or kernel: how often it ran, seconds over the recording, and their
    share of the timeline's ``base``.

    By line the name is the Python function that launched the work. ``operator`` and
    ``line`` are the operator and the function that launched most of a row's time; None
    if not recorded, or not asked for.
    """

    name: str
    kind: TopKind
    count: int
    total: float
    share: float | None
    shapes: str | None = None
    operator: str | None = None
    line: str | None = None


class TopTimeline(TimelineAnswer, kw_only=True):
    """The rows of one device of one rank, most time first, or of its host;
    ``rows_in_all`` counts those cut off too.

    On a device ``base`` is the time in which anything ran on any of its streams, and
    overlapping streams make shares add up to more than 1. On the host total and base
    are self time.
    """

    side: Literal["device", "host"]
    base: float
    rows_in_all: int
    rows: list[TopRow]


class TopDocument(TraceDocument, kw_only=True):
    """`perfgate trace top --json`."""

    by: TopKey
    timelines: list[TopTimeline]


class CauseTotal(FrozenStruct, kw_only=True):
    """All gaps of one cause; the share is of the time from the device's first event to
    its last.
    """

    cause: GapCause
    count: int
    total: float
    share: float


class GapRow(FrozenStruct, kw_only=True):
    """One gap; ``start`` counts from the timeline's ``origin_ns``."""

    start: float
    duration: float
    cause: GapCause


class GapGroupRow(CauseTotal, kw_only=True):
    """Gaps of a cause that one frame and operator of the host fill for at least half of
    their time, before the same kernel.

    ``frame`` is the innermost Python function, ``operator`` the innermost framework
    operator or driver call, and ``ended_by`` the next event on the device; None if not
    recorded.
    """

    frame: str | None
    operator: str | None
    ended_by: str | None
    longest: float


class GapTimeline(TimelineAnswer, kw_only=True):
    """The gaps of one device of one rank, longest first; ``gaps_in_all`` counts those
    cut off too.

    ``origin_ns`` is when the timeline's first event began, host included, by the
    recording's clock. ``window`` is the time from the device's first event to the end
    of its last, ``busy`` the part in which anything ran. All is None or empty if
    nothing ran on a device.
    """

    origin_ns: int | None
    window: float | None
    busy: float | None
    gaps_in_all: int
    causes: list[CauseTotal]
    gaps: list[GapRow]
    groups: list[GapGroupRow] = []


class GapDocument(TraceDocument, kw_only=True):
    """`perfgate trace gaps --json`."""

    timelines: list[GapTimeline]


class StepRow(FrozenStruct, kw_only=True):
    """One profiler step; ``number`` is None for work that the profiler ascribes to no
    step, a part None if unknown.

    ``fused`` is the time of kernels that compute and communicate at once while no other
    kernel computed; None if there are none. A batch of a serving engine is a step too:
    ``phase`` is prefill, decode or mixed, or as ``--step-by`` names it, and
    ``requests`` how many requests the batch has.
    """

    number: int | None
    start: float | None
    length: float | None
    computing: float | None
    communication: float | None
    exposed_communication: float | None
    exposed_copies: float | None = None
    fused: float | None = None
    preparing: float | None = None
    free: float | None
    phase: str | None = None
    requests: int | None = None


class PhaseTotal(FrozenStruct, kw_only=True):
    """All steps of one phase: how many, and the medians of a step: seconds, of its
    computing and its free time, requests.
    """

    phase: str
    count: int
    length: float | None
    computing: float | None
    free: float | None
    requests: float | None = None


class StepTimeline(TimelineAnswer, kw_only=True):
    """The steps of one device of one rank, in order."""

    origin_ns: int | None
    steps_in_all: int
    steps: list[StepRow]
    phases: list[PhaseTotal] = []


class SlowestRank(FrozenStruct, kw_only=True):
    """The rank the others wait for: longest on its own, that is without exposed
    communication, in a typical (median) step.

    All ranks of a job take equally long, because those that are early wait in
    collectives. ``behind`` is how much longer than the fastest rank on its own.
    """

    rank: int
    own: float
    behind: float


class StepDocument(TraceDocument, kw_only=True):
    """`perfgate trace steps --json`.

    ``slowest_rank`` is None if all are alike, or fewer than two can be compared.
    """

    slowest_rank: SlowestRank | None
    timelines: list[StepTimeline]


class DiffTotals(FrozenStruct, kw_only=True):
    """Seconds of one side in one unit: on the device by sort (``fused``: computing and
    communicating at once), in which nothing ran there, and on the host.

    ``host`` is self time of operators, or of functions if no operators were recorded.
    ``gap`` lies between the device's first and last event. Values that were not
    recorded are None.
    """

    kernel: float | None
    copy: float | None
    fused: float | None = None
    communication: float | None
    gap: float | None
    host: float | None


class DiffCost(FrozenStruct, kw_only=True):
    """The cost of one operator on one side per unit, in seconds, how often it ran, and
    on which inputs and from which line.

    Of several recordings of the side it is the median, and ``times`` has the time in
    each of them.
    """

    time: float
    count: float
    shapes: str | None = None
    line: str | None = None
    operator: str | None = None
    times: list[float] = []


class DiffRow(FrozenStruct, kw_only=True):
    """One operator or kernel of both sides, or by line all that one function launched.

    ``delta`` is head minus base, and its two parts add up to it. ``delta_range`` is
    from the least to the largest difference of a recording of head and one of base, if
    there are several. Of kernels that were ``replaced``, ``before`` and ``after`` are
    the names, most time first.
    """

    name: str
    kind: TopKind
    change: DiffChange
    base: DiffCost | None
    head: DiffCost | None
    delta: float
    by_count: float
    by_speed: float
    delta_range: tuple[float, float] | None = None
    before: list[str] = []
    after: list[str] = []


class DiffTimeline(FrozenStruct, kw_only=True):
    """One timeline of both recordings; ``units`` calls, profiler steps or whole
    recordings were averaged on each side.

    ``rows`` are those that changed, most change of time first; ``rows_in_all`` counts
    those cut off too, ``same`` those that did not change. Of several recordings of a
    side ``base`` and ``head`` are the medians, and ``base_each`` and ``head_each`` the
    totals of each recording.
    """

    label: str
    unit: Literal["call", "profiler step", "whole recording"]
    units: tuple[int, int]
    base: DiffTotals
    head: DiffTotals
    base_each: list[DiffTotals] = []
    head_each: list[DiffTotals] = []
    rows_in_all: int
    same: int
    rows: list[DiffRow]


class DiffDocument(FrozenStruct, kw_only=True):
    """`perfgate trace diff --json`: ``base`` and ``head`` are the recordings of each
    side.

    ``unmatched`` names the timelines that only some of the recordings have.
    """

    base: list[str]
    head: list[str]
    by: DiffKey = "operator"
    tolerance: float
    timelines: list[DiffTimeline]
    unmatched: list[str]
    notes: list[Message] = []


# The work of a device, or the cause of its idle time.
WindowPartName = Literal[
    "computing",
    "fused",
    "communication",
    "copies",
    "host",
    "synchronization",
    "queue",
    "unknown",
]


class WindowPart(FrozenStruct, kw_only=True):
    """A part of the time of a device; all parts add up to it.

    Fused kernels, communication and copies count if nothing before them in this order
    ran, as the device's own time; the others are causes of gaps.
    """

    part: WindowPartName
    time: float
    share: float


class StepSpread(FrozenStruct, kw_only=True):
    """The steps of a timeline: seconds of the middle one (median), the shortest and the
    longest, and the number of that.
    """

    count: int
    median: float
    shortest: float
    longest: float
    slowest: int | None


class AnswerTimeline(FrozenStruct, kw_only=True):
    """The first look at one device of one rank, or at its host: the bottleneck, the
    idle time, and the most expensive work.

    The times of communication, copies and concurrency are None without a device.
    """

    gaps: GapTimeline
    top: TopTimeline
    # From the device's first event to the end of its last; without a timeline of it,
    # the profiler's steps together.
    window: float | None
    # The part in which any event ran.
    busy: float | None
    parts: list[WindowPart]
    # The largest of ``parts``.
    bound: WindowPartName | None
    # In which collectives ran.
    communication: float | None
    # The part of it that no kernel hides.
    exposed: float | None
    # In which copies ran.
    copies: float | None
    # The part of it that no kernel hides.
    exposed_copies: float | None
    # In which several kernels computed at once.
    concurrent: float | None
    # Whether Python functions were recorded.
    has_lines: bool
    steps: StepSpread | None
    phases: list[PhaseTotal]


class AnswerDocument(TraceDocument, kw_only=True):
    """`perfgate trace REC --json`.

    ``changes`` are the differences from another recording, if one was named.
    """

    timelines: list[AnswerTimeline]
    changes: DiffDocument | None = None


class RequestRow(FrozenStruct, kw_only=True):
    """One request: seconds from its first event to the end of its last, in which
    something of it ran (``active``), on the host and on the device, and its kernels.
    ``start`` counts from the timeline's ``origin_ns``.
    """

    request: str
    start: float
    elapsed: float
    active: float
    host: float
    device: float
    kernels: int


class RequestTimeline(TimelineAnswer, kw_only=True):
    """The requests of one device of one rank, the longest first; ``requests_in_all``
    counts those cut off too.

    If one request was asked for, ``rows`` list the work of it: seconds without callees,
    and shares of their sum.
    """

    origin_ns: int | None
    requests_in_all: int
    requests: list[RequestRow]
    rows: list[TopRow] = []


class RequestDocument(TraceDocument, kw_only=True):
    """`perfgate trace requests --json`."""

    timelines: list[RequestTimeline]


class CollectiveParts(FrozenStruct, kw_only=True):
    """What a rank does in its collectives: data moves, it waits, or neither; None
    unless all collectives have that part.
    """

    transit: float | None
    wait: float | None
    idle: float | None


class RankArrival(FrozenStruct, kw_only=True):
    """How long after the first rank a rank comes to a collective (mean), and the share
    of them to which it came last.
    """

    late: float
    last: float


class RankRow(RankEntry, kw_only=True):
    """One device of one rank, in seconds of a typical (median) step.

    Values that were not recorded are None.
    """

    path: str
    steps: int
    # The step without exposed communication.
    own: float | None
    computing: float | None
    exposed: float | None
    free: float | None
    # The part of exposed communication that receives from another stage of the
    # pipeline.
    bubble: float | None
    in_collectives: CollectiveParts
    arrival: RankArrival | None
    # Its place in the pipeline.
    stage: int | None
    # Seconds of kernels that compute experts.
    experts: float | None
    # Kernels that compute and communicate at once; not in ``own`` either.
    fused: float | None = None


class SlowRankRow(RankEntry, kw_only=True):
    """A rank that the others wait for: how much longer its own work takes than the
    middle rank's, and the largest part.
    """

    behind: float
    part: str


class DelayRow(RankEntry, kw_only=True):
    """A rank that the others wait for in their collectives; times are seconds.

    ``total`` is its cost to the job, ``share`` the part of the job's time, ``per_step``
    the same of each of ``of`` steps, of which it delays ``steps`` (None and 0 if no
    steps are marked). ``once`` is whether it hiccups in few of them; ``worst`` is its
    longest single delay, in ``step``. Up to ``waiting`` ranks wait, most in
    ``collective``. ``why`` is the part that takes longer than in the middle rank:
    computing, or free time, in which its device is idle.
    """

    total: float
    share: float
    per_step: float | None
    steps: int
    of: int
    once: bool
    worst: float
    step: int | None
    collective: str
    waiting: int
    why: Literal["computing", "free"]


class SlowStageRow(FrozenStruct, kw_only=True):
    """A stage of the pipeline that computes longer than the middle one, and the seconds
    that it computes in a step.
    """

    stage: int
    behind: float
    computing: float


class SlowLinkRow(FrozenStruct, kw_only=True):
    """A link between two ranks, the bytes that it carried in operations of one sort,
    and bytes a second; ``middle`` is the middle bandwidth of links like it. Source and
    target are positions in ``group`` if the global ranks are not known.
    """

    source: int
    target: int
    link: str
    operation: str
    group: str | None
    size: float
    bandwidth: float
    middle: float


class LeftOutRecording(FrozenStruct, kw_only=True):
    """A recording that could not be read, and why."""

    path: str
    reason: str


class RepeatedRank(FrozenStruct, kw_only=True):
    """A rank with several recordings: cycles of one process, or one that names a wrong
    rank. Only ``chosen`` is compared.
    """

    rank: int
    chosen: str
    others: list[str]


class EarlyEnd(RankEntry, kw_only=True):
    """A rank with a recording that ends in step ``last``, earlier than the others."""

    last: int


class SkewRow(FrozenStruct, kw_only=True):
    """A collective that ranks came to at different times: seconds from the first to the
    last, and which that was.

    ``number`` counts the collectives that several ranks took part in, in the order of
    time, from 0.
    """

    number: int
    name: str
    skew: float
    last: int | None


class RecordingGaps(FrozenStruct, kw_only=True):
    """Gaps in the recordings, which may be why no rank is named."""

    # Recordings that could not be read.
    left_out: list[LeftOutRecording] = []
    # Ranks with several recordings.
    repeated: list[RepeatedRank] = []
    # Ranks of the job that were not recorded.
    missing: list[int] = []
    # Ranks with shorter recordings.
    ended_early: list[EarlyEnd] = []


class RanksDocument(FrozenStruct, kw_only=True):
    """`perfgate trace ranks --json`."""

    path: str
    # Ranks that take longer on their own, whether or not another waits for them.
    slow_ranks: list[SlowRankRow]
    slow_links: list[SlowLinkRow]
    # Links between ranks in the recordings.
    links: int
    # Collectives in which several of the ranks took part.
    collectives: int
    # The median of the seconds from the first to the last rank of a collective.
    skew: float | None
    # The collectives with the largest.
    skews: list[SkewRow]
    ranks: list[RankRow]
    # Ranks that the others wait for.
    delays: list[DelayRow] = []
    # Stages that hold up the pipeline.
    slow_stages: list[SlowStageRow] = []
    # Collectives left out because the recordings do not distinguish their groups.
    unjoined: int = 0
    gaps: RecordingGaps = RecordingGaps()
    # Signs that recordings lost events, and other notes on them.
    notes: list[Message] = []

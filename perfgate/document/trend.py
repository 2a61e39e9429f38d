"""The trend document: changes found in the stored runs of main, read as histories, week
by week.

It is computed from the store alone and may be computed again at any time; earlier
reports are kept in a ``TrendState``. All numbers are in base units; relative changes
are shares (0.03 is 3 % more).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from perfgate.catalogue.terms import Better, Kind
from perfgate.document.decision import TestbedDifference
from perfgate.document.explanation import OperatorDelta
from perfgate.document.history import (
    Acceptance,
    Confirmation,
    GateHistory,
    Triage,
    TriageState,
)
from perfgate.document.message import Message
from perfgate.document.records import FrozenStruct
from perfgate.document.shape import ShapeEntry

# The most changes that a state remembers; beyond that the weakest are forgotten, and
# reported as new once more.
MOST_KNOWN = 100

Direction = Literal["worse", "better", "changed"]
# exact: a counter that repetition does not change; confirmed, refuted: both commits
# were measured side by side.
Evidence = Literal["exact", "confirmed", "suspected", "refuted"]
# new: not reported before; open: reported before and still so; resolved: the level is
# back; accepted: marked as intended; superseded: the benchmark was changed afterwards,
# and its numbers do not compare with those before.
Standing = Literal["new", "open", "resolved", "accepted", "refuted", "superseded"]
# The origin of a movement of main: its code, a changed benchmark, the host or its
# environment, or noise.
MovementOrigin = Literal["code", "benchmark", "host", "noise"]
OriginSign = Literal[
    "exact_counts",
    "confirmed",
    "bisected",
    "alone",
    "workload_changed",
    "packages",
    "clock",
    "temperature",
    "throttled",
    "waited",
    "other_machine",
    "all_workloads",
    "refuted",
    "returned",
    "one_metric",
    "one_shape",
]
NoSearchReason = Literal["too_short", "not_measured", "old_testbed", "metric"]


# A project has hundreds of thousands of points and runs, and none is in a cycle:
# looking for cycles among them took half of the time to read the content of its pages.
class TrendPoint(FrozenStruct, kw_only=True, gc=False):
    """One version: the median of its ``runs`` runs, the run that was its last, and that
    run's own interval, if it was read.
    """

    run_id: str
    commit: str | None
    started_at: str
    value: float
    runs: int = 1
    interval: tuple[float | None, float | None] | None = None


class CommitLabel(FrozenStruct, kw_only=True):
    """A commit of main between the last good and the first bad run.

    ``change_request`` is the number in git's own text of the commit, ``#412`` or
    ``!412``; empty if the text has none.
    """

    commit: str
    subject: str
    author: str = ""
    change_request: str = ""


class MainChange(FrozenStruct, kw_only=True):
    """A change of main between two of its runs, and its standing.

    ``commits`` are the possible culprits, newest first, of ``commit_count``; 0 if no
    clone was available. ``news`` is the difference from the report before: the change
    itself, or its new standing.
    """

    direction: Direction
    standing: Standing = "new"
    news: bool = True
    last_good: str | None
    first_bad: str | None
    first_seen: str
    commits: list[CommitLabel] = []
    commit_count: int = 0

    @property
    def is_unsettled(self) -> bool:
        """Whether main is still on the level that the change led to, and it was neither
        accepted nor refuted.
        """
        return self.standing in ("new", "open")

    @property
    def is_open_regression(self) -> bool:
        return self.direction == "worse" and self.is_unsettled


class Carried(FrozenStruct, kw_only=True):
    """The testbed that replaced the testbed of a change, and on which the change is
    followed ``since`` then.

    ``commit`` was measured on both; None for exact counts, which compare without it,
    and if no commit was: then the level is taken to be the same on both sides of the
    replacement.
    """

    fingerprint: str
    since: str
    commit: str | None = None


class OriginEvidence(FrozenStruct, kw_only=True):
    """A sign of the origin of a movement: the name of what differs, with its values
    before and after, as text.
    """

    sign: OriginSign
    name: str = ""
    before: str = ""
    after: str = ""


class TrendChange(MainChange, kw_only=True):
    """A shift of level.

    ``at`` is the place of the first point after it; ``before`` and ``after`` are the
    two levels.

    ``delta`` is after/before - 1, None if before is 0; ``interval`` bounds it and is
    None for exact counters; the result of a side-by-side measurement is in
    ``confirmation``. ``accepted`` is the acceptance with author and reason, which
    counts until the day ``accepted_until`` if it has an end; ``resolved_by`` is the
    first commit at which the level was back. ``carried`` is the testbed on which it is
    followed once its testbed was replaced.
    """

    at: int
    before: float
    after: float
    delta: float | None
    interval: tuple[float, float] | None
    evidence: Evidence
    confirmation: Confirmation | None = None
    accepted: str | None = None
    accepted_until: str | None = None
    resolved_by: str | None = None
    carried: Carried | None = None


class TrendSeries(ShapeEntry, kw_only=True):
    """One metric of one workload and shape on one testbed, oldest point first.

    ``noise`` is how much one version differs from the next without any change, as a
    share; None if unknown. ``current`` is false for series without runs in the last
    weeks: their testbed or workload is no longer measured. ``informing`` marks a number
    of the checklist that the gate does not judge: a shift of it is not a regression by
    itself.
    """

    metric: str
    labels: dict[str, str] = {}
    unit: str
    better: Better
    kind: Kind
    fingerprint: str
    device_kind: str
    points: Sequence[TrendPoint]
    changes: list[TrendChange] = []
    noise: float | None = None
    current: bool = True
    informing: bool = False

    @property
    def is_exact(self) -> bool:
        return self.kind == "exact"

    @property
    def place_words(self) -> str:
        return place_of(self.workload, self.shape, self.labels)

    @property
    def key(self) -> str:
        """A short unique identifier of the series; it stands in the hidden line of an
        issue.
        """
        place = [
            self.workload,
            self.shape,
            self.metric,
            sorted(self.labels.items()),
            self.fingerprint,
        ]
        return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12]


class TrendPlace(FrozenStruct, kw_only=True):
    """One change of the document: the place of its series in ``series``, and its own
    among the changes of that series.
    """

    series: int
    change: int


class TrendCause(MainChange, kw_only=True):
    """All changes between the same two runs of main, which are one regression or
    improvement.

    ``direction`` is worse if anything worse has not been repaired, accepted or refuted,
    ``standing`` the standing of the most active change, and ``news`` is set if any of
    them was not reported before. ``changes`` begins with the most relevant one:
    user-visible times before exact counts. ``operators`` run more often since then,
    with the line that calls them; they are known if both runs were read. ``triage`` is
    the state that a person gave it, and ``suggests`` another one that the histories
    show: fixed if the level is back, new if it is not, although it was called fixed.
    ``differences`` are the packages and the container image that differ between the two
    runs, if both say theirs. ``origin`` is None if neither run was opened.
    """

    changes: list[TrendPlace]
    operators: list[OperatorDelta] = []
    triage: Triage | None = None
    suggests: TriageState | None = None
    differences: list[TestbedDifference] = []
    origin: MovementOrigin | None = None
    origin_evidence: list[OriginEvidence] = []

    @property
    def is_of_code(self) -> bool:
        """Whether no evidence shows another origin than the code."""
        return self.origin in (None, "code")

    @property
    def is_open_regression(self) -> bool:
        return super().is_open_regression and self.is_of_code


class TestbedSpan(FrozenStruct, kw_only=True):
    """A testbed, when main was measured on it, and how it differs from the previous
    testbed.
    """

    fingerprint: str
    device_kind: str
    first_seen: str
    last_seen: str
    runs: int
    differences: list[TestbedDifference] = []


class BridgedMetric(FrozenStruct, kw_only=True):
    """One metric of the commits that were measured on the old and the new testbed;
    ``before`` and ``after`` place its series.

    ``old`` and ``new`` are the values of the newest of these commits, ``delta`` is the
    change over all of them, None from 0; ``interval`` bounds it with 95 % and is None
    for exact counters. ``moved`` is whether chance does not explain the change.
    """

    before: int
    after: int
    commits: list[str]
    old: float
    new: float
    delta: float | None
    interval: tuple[float, float] | None
    direction: Direction
    moved: bool = False


class Uplift(FrozenStruct, kw_only=True):
    """A testbed in place of an old one, as one event: the fields that differ, and every
    metric that they moved.

    ``commits`` were measured on both; without one the effect is unknown, and measuring
    ``last_commit``, the newest of the old testbed, on the new one joins them. ``moved``
    are the metrics that changed, the worst first. ``unmoved`` others are shown to be
    the same; for ``undecided`` metrics the noise is too large to tell.
    """

    before: str
    after: str
    since: str
    differences: list[TestbedDifference] = []
    last_commit: str | None = None
    commits: list[str] = []
    moved: list[BridgedMetric] = []
    unmoved: int = 0
    undecided: int = 0


class RunConditions(FrozenStruct, kw_only=True):
    """How quiet the machine and the device were in a run.

    A value that was not reported is None.
    """

    # The largest difference between base and base; None without pairs, as in every run
    # of the checklist alone.
    noise_floor: float | None = None
    # The share of the pairs that gave no samples; None without pairs.
    discarded: float | None = None
    # The highest, in degrees Celsius.
    temperature: float | None = None
    # The highest share.
    throttled: float | None = None
    # The lowest, over the rated clock.
    clock: float | None = None
    # The largest share of a step in which other processes had the CPU.
    waited: float | None = None
    # Seconds in line for other measurements on the machine.
    queued: float | None = None


class RunHealth(FrozenStruct, kw_only=True):
    """The condition of one run."""

    run_id: str
    commit: str | None
    subject: str | None
    started_at: str
    fingerprint: str
    # The number of a step: the worst status that a workload had in it.
    steps: dict[str, str]
    failed: list[str] = []
    warnings: list[Message] = []
    conditions: RunConditions = msgspec.field(default_factory=RunConditions)


class NotLookedAt(FrozenStruct, kw_only=True):
    """A number of series in which no change could be found, with the reason."""

    reason: NoSearchReason
    series: int
    names: list[str] = []


class RunsOfMain(FrozenStruct, kw_only=True):
    """The runs that a trend rests on."""

    count: int
    newest: str
    # The Monday of a week (ISO date): how many runs began in it.
    weeks: dict[str, int] = {}
    health: list[RunHealth] = []


class TrendSearch(FrozenStruct, kw_only=True):
    """How much was searched for changes."""

    # The minimum for a noisy series.
    versions_needed: int
    # The searched series, with ``values`` points. The more there are, the more is found
    # by chance.
    looked_at: int
    values: int
    # Points of runs after ``since``, or of the last weeks if this is the first report.
    new_values: int
    # The newest run of the report before.
    since: str | None = None
    not_looked_at: list[NotLookedAt] = []
    gone: list[str] = []


class TrendDocument(FrozenStruct, kw_only=True):
    """The changes on main."""

    schema: Literal["perfgate/trend"] = "perfgate/trend"
    schema_version: int = 1
    perfgate_version: str
    project: str
    made_at: str
    runs: RunsOfMain
    searched: TrendSearch
    series: list[TrendSeries] = []
    # The changes of ``series`` grouped by the commits between which they began, the
    # most urgent first.
    causes: list[TrendCause] = []
    testbeds: list[TestbedSpan] = []
    # The changes of testbed, newest first.
    uplifts: list[Uplift] = []
    # Acceptances that ended of late, or of an open regression, newest first.
    expired: list[Acceptance] = []
    notes: list[str] = []
    # The verdicts on changes; None if none was kept.
    gates: GateHistory | None = None

    @property
    def open_regressions(self) -> list[TrendCause]:
        """The regressions of the code that are neither repaired nor accepted nor
        refuted, the worst first.
        """
        return [cause for cause in self.causes if cause.is_open_regression]


class KnownChange(FrozenStruct, array_like=True):
    """A reported change: its series, commit, direction, standing, and the short name
    that people use for it.
    """

    series: str
    commit: str
    direction: Direction
    standing: Standing
    name: str


class TrendState(FrozenStruct, kw_only=True):
    """The state that a report leaves for the next one: ``newest`` is the newest run
    that it knew.
    """

    schema: Literal["perfgate/trend-state"] = "perfgate/trend-state"
    schema_version: Literal[1] = 1
    newest: str
    known: list[KnownChange] = []


class ConfirmationsFile(FrozenStruct, kw_only=True, forbid_unknown_fields=True):
    """Results of a measuring job without write access to the store, for the job that
    has it: confirmations.json.
    """

    schema: Literal["perfgate/confirmations"] = "perfgate/confirmations"
    schema_version: Literal[1] = 1
    project: str
    confirmations: list[Confirmation] = []


def place_of(workload: str, shape: str, labels: Mapping[str, str]) -> str:
    """The place of a series in words for people: ``encoder/long, batch 8``."""
    place = f"{workload}/{shape}" if shape else workload
    return ", ".join(
        [place, *(f"{name} {value}" for name, value in sorted(labels.items()))]
    )

"""The trend document: what the stored runs of main say when they are read as histories, week by week.

It is computed from the store alone and may be computed again at any time; what was told before stands in a ``TrendState``.
All numbers are in base units; relative changes are shares (0.03 is 3 % more).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Literal

import msgspec

from perfgate.catalogue.terms import Better, Kind
from perfgate.document.decision import TestbedDifference
from perfgate.document.explanation import OperatorDelta
from perfgate.document.history import Confirmation
from perfgate.document.message import Message

TREND_SCHEMA: Literal["perfgate/trend"] = "perfgate/trend"
TREND_SCHEMA_VERSION = 1
STATE_SCHEMA: Literal["perfgate/trend-state"] = "perfgate/trend-state"
# What a state may remember; of more than these the weakest are forgotten, and told as new once more.
MOST_KNOWN = 100

Direction = Literal["worse", "better", "changed"]
# exact: a counter that repetition does not change; confirmed, refuted: both commits were measured side by side.
Evidence = Literal["exact", "confirmed", "suspected", "refuted"]
# new: not told before; open: told before and still so; resolved: the level is back; accepted: somebody said it is meant.
Standing = Literal["new", "open", "resolved", "accepted", "refuted"]


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One version: the median of its ``runs`` runs, the run that was its last, and that run's own interval, if it was read."""

    run_id: str
    commit: str | None
    started_at: str
    value: float
    runs: int = 1
    interval: tuple[float | None, float | None] | None = None


class CommitLabel(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of main between the last good and the first bad run.

    ``change_request`` is the number that git's own text gives it, ``#412`` or ``!412``; empty where it gives none.
    """

    commit: str
    subject: str
    author: str = ""
    change_request: str = ""


class TrendChange(msgspec.Struct, frozen=True, kw_only=True):
    """A shift of level. ``at`` is the place of the first point after it; ``before`` and ``after`` are the levels beside it.

    ``delta`` is after/before - 1, None where before is 0; ``interval`` bounds it and is None for exact counters; what a side
    by side measurement gave is in ``confirmation``. ``commits`` are those that may have done it, newest first, of
    ``commit_count``; 0 where no clone could tell. ``accepted`` is who accepted it and why, ``resolved_by`` the first commit
    at which the level was back. ``news`` is what the report before did not say: the change itself, or that it stands
    otherwise now.
    """

    at: int
    direction: Direction
    before: float
    after: float
    delta: float | None
    interval: tuple[float, float] | None
    last_good: str | None
    first_bad: str | None
    first_seen: str
    evidence: Evidence
    standing: Standing = "new"
    news: bool = True
    confirmation: Confirmation | None = None
    accepted: str | None = None
    resolved_by: str | None = None
    commits: list[CommitLabel] = []
    commit_count: int = 0


class TrendSeries(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one workload and shape on one testbed, oldest point first.

    ``noise`` is how much one version differs from the next without any change, as a share; None where it is not known.
    ``current`` is false for what the last weeks of runs do not have: on a testbed, or of a workload, that is measured no more.
    ``informing`` is a number of the checklist that the gate does not judge: what moved in it is no regression by itself.
    """

    workload: str
    shape: str
    metric: str
    labels: dict[str, str] = {}
    unit: str
    better: Better
    kind: Kind
    fingerprint: str
    device_kind: str
    points: list[TrendPoint]
    changes: list[TrendChange] = []
    noise: float | None = None
    current: bool = True
    informing: bool = False

    @property
    def key(self) -> str:
        """What tells the series from every other, short: it stands in the hidden line of an issue."""
        place = [self.workload, self.shape, self.metric, sorted(self.labels.items()), self.fingerprint]
        return hashlib.sha256(json.dumps(place).encode()).hexdigest()[:12]


class TrendPlace(msgspec.Struct, frozen=True, kw_only=True):
    """One change of the document: the place of its series in ``series``, and its own among the changes of that series."""

    series: int
    change: int


class TrendCause(msgspec.Struct, frozen=True, kw_only=True):
    """What one version of main changed: all changes between the same two runs, which are one regression or improvement.

    ``direction`` is worse where anything is worse that nobody repaired, accepted or refuted, ``standing`` how its most alive
    change stands, and ``news`` says that any of them was not told before. ``changes`` begins with the one that says most to
    people: what users wait for before exact counts. ``operators`` run more often since then, with the line that calls them;
    they are known where both runs were read.
    """

    direction: Direction
    standing: Standing
    news: bool
    last_good: str | None
    first_bad: str | None
    first_seen: str
    commits: list[CommitLabel] = []
    commit_count: int = 0
    changes: list[TrendPlace]
    operators: list[OperatorDelta] = []


class TestbedSpan(msgspec.Struct, frozen=True, kw_only=True):
    """A testbed, when main was measured on it, and how it differs from the one before it."""

    fingerprint: str
    device_kind: str
    first_seen: str
    last_seen: str
    runs: int
    differences: list[TestbedDifference] = []


class RunHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one run went. ``steps`` maps the number of a step to the worst status that a workload had in it.

    ``discarded`` is the share of the pairs that gave no samples, ``noise_floor`` the largest difference between base and base;
    both are None where the run has no pairs, which a run of the checklist alone never has. ``temperature`` (Cel) and
    ``throttled`` (share) are the highest.
    """

    run_id: str
    commit: str | None
    subject: str | None
    started_at: str
    fingerprint: str
    steps: dict[str, str]
    failed: list[str] = []
    warnings: list[Message] = []
    noise_floor: float | None = None
    discarded: float | None = None
    temperature: float | None = None
    throttled: float | None = None


class Week(msgspec.Struct, frozen=True, kw_only=True):
    """How many runs of main began in the week whose Monday is ``monday`` (ISO date)."""

    monday: str
    runs: int


class NotLookedAt(msgspec.Struct, frozen=True, kw_only=True):
    """What no change could be found in, and why: so many series of it."""

    reason: Literal["too_short", "not_measured", "old_testbed", "metric"]
    series: int
    names: list[str] = []


class TrendDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What moved on main. ``since`` is the newest run of the report before.

    ``looked_at`` series with ``values`` points were searched, ``new_values`` of them of runs after ``since``, or of the last
    weeks where this is the first report: the more there are, the more is found by chance. ``versions_needed`` is what a
    noisy series must have. ``causes`` group the changes of ``series`` by the commits between which they began, what is to
    be looked at first.
    """

    schema: Literal["perfgate/trend"] = TREND_SCHEMA
    schema_version: int = TREND_SCHEMA_VERSION
    perfgate_version: str
    project: str
    made_at: str
    newest: str
    runs: int
    versions_needed: int
    looked_at: int
    values: int
    new_values: int
    since: str | None = None
    series: list[TrendSeries] = []
    causes: list[TrendCause] = []
    testbeds: list[TestbedSpan] = []
    health: list[RunHealth] = []
    weeks: list[Week] = []
    gone: list[str] = []
    not_looked_at: list[NotLookedAt] = []
    notes: list[str] = []


class KnownChange(msgspec.Struct, frozen=True, array_like=True):
    """A change that was told: of which series, at which commit, which way, how it stood, and how people call it."""

    series: str
    commit: str
    direction: Direction
    standing: Standing
    name: str


class TrendState(msgspec.Struct, frozen=True, kw_only=True):
    """What a report leaves for the next one: ``newest`` is the newest run that it knew."""

    schema: Literal["perfgate/trend-state"] = STATE_SCHEMA
    schema_version: Literal[1] = 1
    newest: str
    known: list[KnownChange] = []


class ConfirmationsFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a measuring job that may not write to the store hands to the job that may: confirmations.json."""

    schema: Literal["perfgate/confirmations"] = "perfgate/confirmations"
    schema_version: Literal[1] = 1
    project: str
    confirmations: list[Confirmation] = []


def place_of(workload: str, shape: str, labels: Mapping[str, str]) -> str:
    """Where a series was measured, as people read it: ``encoder/long, batch 8``."""
    place = f"{workload}/{shape}" if shape else workload
    return ", ".join([place, *(f"{name} {value}" for name, value in sorted(labels.items()))])

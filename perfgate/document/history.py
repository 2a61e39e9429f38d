"""Statements of the store: main's values at the time of a check, acceptances, triages,
confirmations, and the verdicts of earlier gates with their summary.

A history is kept with the documents of a check, to judge again.
"""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from perfgate.document.comparison import Outcome
from perfgate.document.decision import Verdict
from perfgate.document.files import write_atomically
from perfgate.document.records import FrozenStruct
from perfgate.document.shape import ShapeEntry
from perfgate.document.strict_json import parse_json
from perfgate.errors import DocumentError

MAX_HISTORY_BYTES = 4 * 1024 * 1024

TriageState = Literal["new", "acknowledged", "fixed", "expected"]
# A day in the extended format of ISO 8601, in which days compare as texts.
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-[0-9]{2}-[0-9]{2}$")]


class HistorySeries(ShapeEntry, kw_only=True):
    """One value a session, oldest first, of one metric on comparable testbeds;
    ``labels`` are all labels but the shape.

    ``left_out`` is how many sessions have a value that does not compare: measured by
    another procedure, or on a busy machine if there are enough others; ``busy`` of
    those that compare were measured on a busy machine.
    """

    metric: str
    labels: dict[str, str] = {}
    values: list[float]
    left_out: int = 0
    busy: int = 0


# As TrendPoint: of many, and none in a cycle.
class StoredRun(FrozenStruct, kw_only=True, gc=False):
    """A run as listed by the store. ``id`` is its document's SHA-256; ``dirty`` runs
    were allowed by hand.
    """

    id: str
    project: str
    session: str
    started_at: str
    recorded_at: str
    fingerprint: str
    device_kind: str
    commit: str | None
    branch: str | None
    subject: str | None
    dirty: bool
    workloads: list[str]
    author: str | None = None


class Acceptance(FrozenStruct, kw_only=True):
    """A statement by a person that a regression of one commit is intended.

    ``metric`` is a metric or pattern, ``METRIC@WORKLOAD/SHAPE`` if it applies to one
    place; ``accepted_at`` is ISO 8601. ``until`` is the last day on which it counts
    (ISO 8601, UTC), None without an end.
    """

    commit: str
    metric: str
    reason: str
    accepted_by: str
    accepted_at: str
    until: Day | None = None

    def __post_init__(self) -> None:
        if self.until is not None:
            date.fromisoformat(
                self.until
            )  # a day that the calendar lacks is refused where it comes from

    @property
    def key(self) -> tuple[str, ...]:
        """What it is about: a newer one with the same key replaces it."""
        return (self.commit, self.metric)

    @property
    def stated_at(self) -> str:
        return self.accepted_at

    @property
    def subject(self) -> str:
        """The regression, for an audit log."""
        return f"{self.metric} of {self.commit}"

    def counts_on(self, today: date) -> bool:
        """Whether it has not expired."""
        return self.until is None or today.isoformat() <= self.until


class Triage(FrozenStruct, kw_only=True):
    """The state that a person gave the regressions of main that began with a commit;
    ``changed_at`` is ISO 8601.

    expected accepts them: the slower level is main's level from then on. acknowledged
    and fixed do not close it by themselves: the next runs show whether the level is
    back. new withdraws an earlier state.
    """

    commit: str
    state: TriageState
    reason: str
    author: str
    changed_at: str

    def __post_init__(self) -> None:
        moment(self.changed_at)  # a time that is none is refused where it comes from

    @property
    def key(self) -> tuple[str, ...]:
        """What it is about: a newer one with the same key replaces it."""
        return (self.commit,)

    @property
    def stated_at(self) -> str:
        return self.changed_at

    @property
    def subject(self) -> str:
        """The state and the commit, for an audit log."""
        return f"{self.state}: {self.commit}"


class Confirmation(ShapeEntry, kw_only=True):
    """The result for one metric of measuring two commits of main side by side: a
    suspected change point confirmed, or not.

    ``low`` and ``high`` bound the relative change of ``after`` over ``before``, 0.03 is
    3 % more; ``confirmed_at`` is ISO 8601. ``culprit`` is the commit between them that
    a bisection found, "" if it found none; None if there was no bisection.
    """

    before: str
    after: str
    metric: str
    outcome: Outcome
    low: float | None = None
    high: float | None = None
    fingerprint: str
    confirmed_at: str
    culprit: Annotated[str, msgspec.Meta(pattern="^([0-9a-f]{40,64})?$")] | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """What was measured: a newer one with the same key replaces it."""
        return (
            self.before,
            self.after,
            self.workload,
            self.shape,
            self.metric,
            self.fingerprint,
        )

    @property
    def stated_at(self) -> str:
        return self.confirmed_at

    @property
    def subject(self) -> str:
        """The metric and both commits, for an audit log."""
        return f"{self.metric} of {self.before} and {self.after}"


class History(FrozenStruct, kw_only=True):
    """All series that a check was compared with, and the acceptances of its head."""

    schema: Literal["perfgate/history"] = "perfgate/history"
    schema_version: Literal[1] = 1
    series: list[HistorySeries] = []
    accepted: list[Acceptance] = []


def read_history(path: Path) -> History:
    """Read a history kept by a check. Raises DocumentError for anything else."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_HISTORY_BYTES + 1)
        return msgspec.convert(
            parse_json(data, name=str(path), max_bytes=MAX_HISTORY_BYTES), History
        )
    except OSError as error:
        raise DocumentError(
            "{path} cannot be read: {error}", path=path, error=error.strerror
        ) from error
    except msgspec.ValidationError as error:
        raise DocumentError(
            "{path}: {error}; the file is damaged, run the check again",
            path=path,
            error=error,
        ) from error


def write_history(path: Path, history: History) -> None:
    """Write a history next to the documents of a check, whole or not at all."""
    write_atomically(path, msgspec.json.encode(history))


def moment(text: str) -> datetime:
    """Parse a point in time of ISO 8601, as UTC if it has no zone. Raises ValueError
    for anything else.
    """
    # Python 3.10 does not read the Z of ISO 8601.
    read = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)


# --- the verdicts of earlier gates


class TwinEffect(FrozenStruct, kw_only=True):
    """Base against base in one gate: how much slower the second of two equal processes
    was, as a share.

    ``effect`` is the mean over all workloads and shapes of the medians of their
    ``pairs``; ``machine`` is the accelerator's identity or the host's name.
    """

    machine: Annotated[str, msgspec.Meta(max_length=200, pattern="^[A-Za-z0-9._:-]+$")]
    effect: Annotated[float, msgspec.Meta(gt=-1, lt=100)]
    pairs: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class BiasedMachine(FrozenStruct, kw_only=True):
    """A machine on which base against base differs by ``effect`` on average of
    ``gates``; ``interval`` bounds it with 95 %.

    It is the difference from ``sister_gates`` on the other machines; from 0 without
    them.
    """

    machine: str
    effect: float
    interval: tuple[float, float]
    gates: int
    sister_gates: int = 0


class GateRecord(FrozenStruct, kw_only=True):
    """The verdict on one commit under review, of one testbed of a matrix or of the only
    machine (``testbed`` "").

    ``gate`` is the gate's key, ``change`` the number of the change request, 0 in a
    merge queue; ``judged_at`` is ISO 8601. ``link`` is the page of the report, or of
    the CI run that judged; empty if there is none. A later judgement of the same commit
    replaces it.
    """

    gate: str
    commit: str
    testbed: str = ""
    change: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    verdict: Verdict
    judged_at: str
    link: Annotated[
        str, msgspec.Meta(max_length=2000, pattern="^(https?://[^\\x00-\\x20]+)?$")
    ] = ""
    twins: TwinEffect | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The fields that distinguish it in a project."""
        return self.gate, self.commit, self.testbed

    @property
    def stated_at(self) -> str:
        return self.judged_at

    @property
    def subject(self) -> str:
        """The verdict and the commit, for an audit log."""
        return f"{self.verdict} of {self.commit}"


class GateHistory(FrozenStruct, kw_only=True):
    """The commits that a gate would have blocked so far: of ``gates`` commits
    ``failed`` would have failed.

    ``accepted`` regressions were accepted by a person; a failure is ``withdrawn`` if a
    later commit of the same change request no longer fails. ``standing`` are the newest
    verdicts on the others, newest first, and ``triages`` the states that people gave
    these commits. The gate is ``proven`` after ``needed`` gates without one. ``biased``
    machines favour one side.
    """

    gates: int
    failed: int
    accepted: int
    withdrawn: int
    undecided: int
    needed: int
    proven: bool
    standing: list[GateRecord] = []
    triages: list[Triage] = []
    biased: list[BiasedMachine] = []

"""The store's content at the time of a check: values of main, and acceptances. Kept with the documents, to judge again."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from perfgate.document.comparison import Outcome
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
    """One value a session, oldest first, of one metric on comparable testbeds; ``labels`` are all labels but the shape.

    ``left_out`` is how many sessions have a value that does not compare: measured by another procedure, or on a busy machine if
    there are enough others; ``busy`` of those that compare were measured on a busy machine.
    """

    metric: str
    labels: dict[str, str] = {}
    values: list[float]
    left_out: int = 0
    busy: int = 0


# As TrendPoint: of many, and none in a cycle.
class StoredRun(FrozenStruct, kw_only=True, gc=False):
    """A run as listed by the store. ``id`` is its document's SHA-256; ``dirty`` runs were allowed by hand."""

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

    ``metric`` is a metric or pattern, ``METRIC@WORKLOAD/SHAPE`` if it applies to one place; ``accepted_at`` is ISO 8601.
    ``until`` is the last day on which it counts (ISO 8601, UTC), None without an end.
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
    """The state that a person gave the regressions of main that began with a commit; ``changed_at`` is ISO 8601.

    expected accepts them: the slower level is main's level from then on. acknowledged and fixed do not close it by themselves:
    the next runs show whether the level is back. new withdraws an earlier state.
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
    """The result for one metric of measuring two commits of main side by side: a suspected change point confirmed, or not.

    ``low`` and ``high`` bound the relative change of ``after`` over ``before``, 0.03 is 3 % more; ``confirmed_at`` is ISO 8601.
    ``culprit`` is the commit between them that a bisection found, "" if it found none; None if there was no bisection.
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
    """Parse a point in time of ISO 8601, as UTC if it has no zone. Raises ValueError for anything else."""
    # Python 3.10 does not read the Z of ISO 8601.
    read = datetime.fromisoformat(f"{text[:-1]}+00:00" if text.endswith("Z") else text)
    return read if read.tzinfo else read.replace(tzinfo=timezone.utc)

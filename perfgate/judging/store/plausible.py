"""What a service refuses in an entry, whoever sends it: ids that are not hexadecimal,
impossible times, unprintable names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfgate.document.history import (
    Acceptance,
    Confirmation,
    GateRecord,
    StoredRun,
    Triage,
    moment,
)
from perfgate.document.run import RunDocument, Session, Source
from perfgate.errors import DocumentError
from perfgate.judging.store.store import RunEntry, Statement
from perfgate.locale import Activity

_ID = re.compile("[0-9a-f]{1,64}")
_FIRST_YEAR, _LAST_YEAR = 2000, 2100
# Names are shown in one line: without control characters and without those that turn
# the direction of text around.
_NAME = re.compile("[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]{1,500}")
_MOST_TEXT = 4_000

_TIME = Activity(
    "a time of the years {first} to {last}", first=_FIRST_YEAR, last=_LAST_YEAR
)
_TEXT = Activity("a text of at most {most} characters", most=_MOST_TEXT)
_PRINTABLE = Activity("1 to 500 printable characters")


class _Fields(NamedTuple):
    """The fields of a record that are ids, times, names, and texts; each may be None."""

    ids: tuple[str, ...]
    times: tuple[str, ...]
    names: tuple[str, ...]
    texts: tuple[str, ...] = ()


_FIELDS: Mapping[type[object], _Fields] = {
    StoredRun: _Fields(
        ids=("commit", "fingerprint"),
        times=("started_at", "recorded_at"),
        names=("project", "session", "device_kind", "branch"),
        texts=("subject", "author"),
    ),
    Session: _Fields(ids=(), times=("finished_at",), names=()),
    Source: _Fields(ids=(), times=("committed_at",), names=()),
    Acceptance: _Fields(
        ids=("commit",),
        times=("accepted_at", "until"),
        names=("metric", "accepted_by"),
        texts=("reason",),
    ),
    Triage: _Fields(
        ids=("commit",), times=("changed_at",), names=("author",), texts=("reason",)
    ),
    Confirmation: _Fields(
        ids=("before", "after", "fingerprint"),
        times=("confirmed_at",),
        names=("metric",),
    ),
    GateRecord: _Fields(ids=("commit",), times=("judged_at",), names=("gate",)),
}


def refuse_implausible_run(run: RunDocument, entry: RunEntry) -> None:
    """Raise DocumentError for a run that no perfgate writes; ``entry`` is its entry in
    the log.
    """
    for record in (entry.run, run.session, run.source):
        refuse_implausible(record)
    _refuse_names(entry.run.workloads)
    _refuse_names({value.metric for value in entry.values})


def refuse_implausible(record: StoredRun | Session | Source | Statement) -> None:
    """Raise DocumentError for a record that no perfgate writes."""
    fields = _FIELDS[type(record)]
    for field in fields.ids:
        value = getattr(record, field)
        if value is not None and not _ID.fullmatch(value):
            raise _refused(field, value, Activity("an id of hexadecimal digits"))
    for field in fields.times:
        value = getattr(record, field)
        if value is not None and not _is_time(value):
            raise _refused(field, value, _TIME)
    _refuse_names(
        name for field in fields.names if (name := getattr(record, field)) is not None
    )
    for field in fields.texts:
        value = getattr(record, field)
        if value is not None and len(value) > _MOST_TEXT:
            raise _refused(field, value, _TEXT)


def _refuse_names(names: Iterable[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise _refused("a name", name, _PRINTABLE)


def _is_time(text: str) -> bool:
    try:
        return _FIRST_YEAR <= moment(text).year <= _LAST_YEAR
    except ValueError:
        return False


def _refused(field: str, value: str, expected: Activity) -> DocumentError:
    return DocumentError(
        "{field} is {value!a}, and perfgate writes {expected} there; nothing is stored",
        field=field,
        value=value[:80],
        expected=expected,
    )

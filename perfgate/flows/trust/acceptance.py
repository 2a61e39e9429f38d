"""What people say of regressions, kept in the project's store.

An intended regression is accepted: its metric must exist, and it needs a reason. A
regression of main has a state: acknowledged, fixed, expected, or new again.
"""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, timezone

from perfgate.catalogue.lookup import METRICS, is_known
from perfgate.config import Config
from perfgate.document.budget import parse_place
from perfgate.document.history import Acceptance, Triage, TriageState
from perfgate.errors import UsageError
from perfgate.flows.shared.session import now
from perfgate.flows.shared.store import open_project_store
from perfgate.judging.store.store import LOCAL, Store
from perfgate.locale import Activity


class UnknownMetricError(UsageError):
    """No metric has this name; ``close`` is the most similar one."""

    def __init__(self, metric: str, close: str | None) -> None:
        hint = ""
        if close:
            hint = Activity("; did you mean {close!r}?", close=close)
        super().__init__("no metric {metric!a}{hint}", metric=metric, hint=hint)
        self.close = close


def refuse_unknown_metric(metric: str) -> None:
    """Raise UnknownMetricError unless a metric or pattern matches a metric that can
    regress; of numbers that programs, operators and functions name any may.
    """
    pattern = parse_place(metric).metric
    if not is_known(pattern) and not fnmatch.filter(METRICS, pattern):
        raise UnknownMetricError(
            metric, next(iter(difflib.get_close_matches(pattern, METRICS, n=1)), None)
        )


class UnknownCauseError(UsageError):
    """No acceptable cause has this ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(
            "there is no cause {number} that can be accepted", number=number
        )
        self.number = number


def metrics_of_causes(
    numbers: Iterable[int], accepts: Sequence[Sequence[str]]
) -> tuple[str, ...]:
    """The metrics that accept the causes with these numbers; ``accepts`` lists the
    metrics of each cause, numbered from 1.

    Raises UnknownCauseError.
    """
    metrics: dict[str, None] = {}
    for number in numbers:
        if not 1 <= number <= len(accepts) or not accepts[number - 1]:
            raise UnknownCauseError(number)
        metrics.update(dict.fromkeys(accepts[number - 1]))
    return tuple(metrics)


def is_past(until: date | None) -> bool:
    """Whether an acceptance would have expired before it was stored."""
    return until is not None and until < datetime.now(timezone.utc).date()


def store_acceptances(
    config: Config,
    environ: Mapping[str, str],
    *,
    commit: str,
    metrics: Iterable[str],
    reason: str,
    accepted_by: str,
    until: date | None,
) -> list[Acceptance]:
    """Store that regressions of one commit are intended, all of them or none; ``until``
    is the last day on which that counts.

    Raises UsageError for an unknown metric, no reason, or a day in the past.
    """
    accepted = list(dict.fromkeys(metrics))
    for metric in accepted:
        refuse_unknown_metric(metric)
    if not reason.strip():
        raise UsageError(
            "give the reason for the regression: --reason TEXT; it is shown in the comment and kept in the store"
        )
    if is_past(until):
        raise UsageError(
            "{until} is in the past; give the last day of the acceptance", until=until
        )
    store, accepted_at = open_project_store(config, environ), now()
    acceptances = [
        Acceptance(
            commit=commit,
            metric=metric,
            reason=reason.strip(),
            accepted_by=accepted_by,
            accepted_at=accepted_at,
            until=until.isoformat() if until else None,
        )
        for metric in accepted
    ]
    store.append(config.project, acceptances)
    return acceptances


_MOST_REASON, _MOST_AUTHOR = 1_000, 100


def give_state(
    store: Store,
    project: str,
    *,
    commit: str,
    state: TriageState,
    reason: str,
    author: str,
    actor: str = LOCAL,
) -> Triage:
    """Store the state of the regressions that began with a commit, for a writer of the
    audit log.

    Raises UsageError without a reason or an author.
    """
    triage = Triage(
        commit=commit,
        state=state,
        reason=_one_line(reason),
        author=_one_line(author),
        changed_at=now(),
    )
    if not triage.author:
        raise UsageError("give the name of the person who changes the state")
    if not triage.reason and state != "new":
        raise UsageError(
            "give the reason for the state {state!r}; the weekly report and the pages show it",
            state=state,
        )
    if len(triage.reason) > _MOST_REASON or len(triage.author) > _MOST_AUTHOR:
        raise UsageError(
            "the reason may have {reason} characters and the name {author}",
            reason=_MOST_REASON,
            author=_MOST_AUTHOR,
        )
    store.append(project, [triage], actor=actor)
    return triage


def _one_line(text: str) -> str:
    return " ".join(text.replace("\0", " ").split())

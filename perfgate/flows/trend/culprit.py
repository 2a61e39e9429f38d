"""Bisect the oldest open regression of main while the machine is idle, and record its
culprit as a confirmation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec

from perfgate.conductor.machine.lock import lock_path, machine_lock
from perfgate.config import Config
from perfgate.document.bisection import BisectionDocument, CommitChange
from perfgate.document.budget import PlacePattern
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_run
from perfgate.document.history import Confirmation
from perfgate.document.trend import TrendCause, TrendDocument, TrendSeries
from perfgate.errors import (
    DocumentError,
    MachineBusyError,
    MeasuringError,
    RepositoryError,
    UsageError,
)
from perfgate.flows.shared.doors import Bisect, Check, Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.trend.confirm import confirmation_as, confirmation_of
from perfgate.judging.report.view.trend_rows import moved_by
from perfgate.judging.trend.causes import culprit_of
from perfgate.locale import sentence


class _OutOfTimeError(MachineBusyError):
    """The minutes of the bisection are over: the machine is no longer free for it."""


def bisect_oldest(
    config: Config,
    document: TrendDocument,
    progress: Progress,
    *,
    check: Check,
    bisect: Bisect,
    clock: Callable[[], float],
) -> list[Confirmation]:
    """The confirmation of the oldest open regression without a culprit; empty if there
    is none or the machine is in use.
    """
    cause = _oldest(document)
    if cause is None:
        return []
    good, bad = str(cause.last_good), str(cause.first_bad)
    # Follow an exact count, which needs no times, or else the leading series.
    moved = [entry.series for entry in moved_by(cause, document)]
    counts = [entry for entry in moved if entry.is_exact and not entry.labels]
    series = next((entry for entry in counts if not entry.informing), moved[0])
    limited = _until(check, clock() + 60.0 * config.trend.bisect_minutes, clock)
    metric = None
    if not series.labels and not series.informing:
        metric = PlacePattern(series.metric, series.workload, series.shape)
    try:
        with (
            machine_lock(
                lock_path(),
                purpose=f"perfgate trend in {config.root}",
                say=lambda _: None,
                timeout=0.0,
            ),
            tempfile.TemporaryDirectory(prefix="perfgate-trend-") as folder,
        ):
            progress.note(
                sentence(
                    "bisecting the regression between {good} and {bad}",
                    good=good[:10],
                    bad=bad[:10],
                )
            )
            options = CheckOptions(
                out=Path(folder), device=config.device, workloads=(series.workload,)
            )
            bisection, decision = bisect(
                config.root, good, bad, options, limited, progress, metric=metric
            )
            # The testbed of the first gate, which every bisection has.
            first = Path(folder, "gates", "01", "head", "run.json")
            fingerprint = read_run(first).testbed.fingerprint
    except _OutOfTimeError:
        progress.note(
            sentence(
                "the bisection between {good} and {bad} did not end within {minutes} minutes; run it by hand, or raise "
                "bisect_minutes in [trend]",
                good=good[:10],
                bad=bad[:10],
                minutes=config.trend.bisect_minutes,
            )
        )
        return []
    except MachineBusyError:
        progress.note(
            sentence(
                "the machine is in use; the next report bisects the oldest regression"
            )
        )
        return []
    except (DocumentError, MeasuringError, RepositoryError, UsageError) as error:
        progress.note(
            sentence(
                "{good} to {bad} cannot be bisected: {error}",
                good=good[:10],
                bad=bad[:10],
                error=error.shown,
            )
        )
        return []
    return [_confirmation(bisection, decision, good, bad, series, fingerprint)]


def _oldest(document: TrendDocument) -> TrendCause | None:
    """The oldest open regression of several commits that was not bisected yet."""
    searchable: list[TrendCause] = []
    for cause in document.open_regressions:
        is_bisected = (
            culprit_of(moved.change for moved in moved_by(cause, document)) is not None
        )
        if (
            cause.last_good
            and cause.first_bad
            and cause.commit_count > 1
            and not is_bisected
        ):
            searchable.append(cause)
    return min(searchable, key=lambda cause: cause.first_seen, default=None)


def _until(check: Check, deadline: float, clock: Callable[[], float]) -> Check:
    """A check that starts only before the deadline, and ends soon after it."""

    def limited(
        directory: Path, options: CheckOptions, progress: Progress
    ) -> DecisionDocument:
        seconds_left = deadline - clock()
        if seconds_left <= 0:
            raise _OutOfTimeError("the minutes of the bisection are over")
        return check(
            directory,
            replace(options, time_budget=min(options.time_budget, seconds_left)),
            progress,
        )

    return limited


def _confirmation(
    bisection: BisectionDocument,
    decision: DecisionDocument | None,
    good: str,
    bad: str,
    series: TrendSeries,
    fingerprint: str,
) -> Confirmation:
    """The result for the leading series; an inconclusive one without a culprit keeps
    the next report from searching again.
    """
    culprit = ""
    if bisection.outcome == "found" and bisection.culprits:
        change = bisection.searched.changes[bisection.culprits[0][-1]]
        if isinstance(change, CommitChange) and len(bisection.culprits[0]) == 1:
            culprit = change.commit
    confirmation = None
    if decision is not None and bisection.outcome in ("found", "none"):
        confirmation = confirmation_of(decision, good, bad, series, fingerprint)
    if confirmation is None:
        confirmation = confirmation_as(
            good, bad, series, fingerprint, outcome="inconclusive"
        )
    return msgspec.structs.replace(confirmation, culprit=culprit)

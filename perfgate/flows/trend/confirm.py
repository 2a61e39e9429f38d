"""Measure the two commits around a suspected change side by side, as a check does, and
keep the result.
"""

from __future__ import annotations

import math
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.config import Config
from perfgate.document.comparison import Bound, Comparison, Outcome, Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_run
from perfgate.document.history import Confirmation, moment
from perfgate.document.strict_json import parse_json
from perfgate.document.trend import (
    ConfirmationsFile,
    TrendDocument,
    TrendSeries,
)
from perfgate.errors import DocumentError, MeasuringError, RepositoryError, StoreError
from perfgate.flows.shared.doors import Check, Progress
from perfgate.flows.shared.options import FIRST_STEPS, CheckOptions
from perfgate.flows.shared.session import now
from perfgate.git.repository import Repository
from perfgate.judging.report.text.messages import word_all
from perfgate.judging.report.view.trend_rows import MovedSeries
from perfgate.judging.store.index import ProjectLog
from perfgate.judging.trend.standing import is_about
from perfgate.locale import sentence

MOST_CONFIRMATION_BYTES = 1024 * 1024
MOST_CONFIRMATIONS = 1000
_LARGEST_CHANGE = 1e6


def confirm_suspected(
    config: Config,
    document: TrendDocument,
    progress: Progress,
    *,
    check: Check,
    max_seconds: float,
    clock: Callable[[], float],
) -> list[Confirmation]:
    """Measure the commits around every suspected change, the largest first; no pair
    begins after ``max_seconds``.

    A pair of commits is measured once for all changes between them. A failed
    measurement is noted and leaves the change suspected.
    """
    pairs = _pairs(document)
    if not pairs:
        progress.note(
            sentence("every suspected change is already confirmed or refuted")
        )
        return []
    try:
        Repository(config.root)
    except RepositoryError as error:
        raise RepositoryError(
            "--confirm measures two commits, so it needs a clone: {error}", error=error
        ) from error
    began = clock()
    confirmations: list[Confirmation] = []
    for number, ((good, bad), suspects) in enumerate(pairs, start=1):
        seconds_left = max_seconds - (clock() - began)
        if seconds_left <= 0:
            progress.note(
                sentence(
                    "out of time: {left} of {total} pairs of commits were not measured",
                    left=len(pairs) - number + 1,
                    total=len(pairs),
                )
            )
            break
        progress.note(
            sentence(
                "measuring {good} against {bad} ({number} of {total})",
                good=good[:10],
                bad=bad[:10],
                number=number,
                total=len(pairs),
            )
        )
        try:
            confirmations += _measure(
                config, good, bad, suspects, progress, check=check, seconds=seconds_left
            )
        except (MeasuringError, RepositoryError, DocumentError) as error:
            progress.note(
                sentence(
                    "{good} against {bad} could not be measured: {error}",
                    good=good[:10],
                    bad=bad[:10],
                    error=error.shown,
                )
            )
    return confirmations


def read_confirmations(
    path: Path, document: TrendDocument, *, note: Callable[[str], None]
) -> list[Confirmation]:
    """The confirmations by another job, restricted to plausible confirmations of our
    suspicions.

    The file comes from a job that ran the code of main, so it is not trusted. Raises
    DocumentError for another file.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MOST_CONFIRMATION_BYTES + 1)
        read = msgspec.convert(
            parse_json(data, name=str(path), max_bytes=MOST_CONFIRMATION_BYTES),
            ConfirmationsFile,
        )
    except OSError as error:
        raise DocumentError(
            "{path} cannot be read: {error}; give the file that --confirm wrote",
            path=path,
            error=error.strerror,
        ) from error
    except msgspec.ValidationError as error:
        raise DocumentError(
            "{path}: {error}; give the file that --confirm wrote",
            path=path,
            error=error,
        ) from error
    if read.project != document.project:
        raise DocumentError(
            "{path} is of project {project!a}, and this is {ours!a}",
            path=path,
            project=read.project[:80],
            ours=document.project,
        )
    unsettled = _unsettled(document)
    believed: list[Confirmation] = []
    for entry in read.confirmations[:MOST_CONFIRMATIONS]:
        for moved in unsettled:
            change = moved.change
            if entry.culprit is None:
                is_asked = change.evidence == "suspected"
            else:
                # It lies between the runs of the change, as far as the clone knows.
                commits = {label.commit for label in change.commits}
                is_asked = entry.culprit in {"", *commits} or (
                    len(commits) < change.commit_count
                )
            if is_asked and is_about(entry, change, moved.series):
                if _is_plausible(entry):
                    believed.append(entry)
                break
    if len(believed) < len(read.confirmations):
        note(
            sentence(
                "{count} entries of {name} answer no suspicion and are left out",
                count=len(read.confirmations) - len(believed),
                name=path.name,
            )
        )
    return believed


def keep_confirmations(
    log: ProjectLog,
    confirmations: Sequence[Confirmation],
    *,
    note: Callable[[str], None],
) -> None:
    """Keep confirmations in the store; note it if this job may not write there, since
    the file still has them.
    """
    try:
        log.store.append(log.project, confirmations)
    except StoreError as error:
        note(
            sentence(
                "the confirmations are not in the store: {error}", error=error.shown
            )
        )


def _unsettled(document: TrendDocument) -> list[MovedSeries]:
    unsettled: list[MovedSeries] = []
    for series in document.series:
        if series.labels or not series.current:
            continue
        for change in series.changes:
            if change.is_unsettled and change.direction != "changed":
                unsettled.append(MovedSeries(series, change))
    return unsettled


def _pairs(document: TrendDocument) -> list[tuple[tuple[str, str], list[MovedSeries]]]:
    by_commits: dict[tuple[str, str], list[MovedSeries]] = defaultdict(list)
    for moved in _unsettled(document):
        change = moved.change
        good, bad = change.last_good, change.first_bad
        is_open = change.evidence == "suspected" and change.confirmation is None
        if is_open and good and bad and good != bad:
            by_commits[good, bad].append(moved)

    def size(entry: tuple[tuple[str, str], list[MovedSeries]]) -> tuple[bool, float]:
        """The largest change for the worse; without one, of any."""
        _, suspects = entry
        sizes = [
            (suspect.change.direction == "worse", abs(suspect.change.delta or 0.0))
            for suspect in suspects
        ]
        return max(sizes)

    return sorted(by_commits.items(), key=size, reverse=True)


def _measure(
    config: Config,
    good: str,
    bad: str,
    suspects: list[MovedSeries],
    progress: Progress,
    *,
    check: Check,
    seconds: float,
) -> list[Confirmation]:
    workloads = tuple(sorted({suspect.series.workload for suspect in suspects}))
    with tempfile.TemporaryDirectory(prefix="perfgate-trend-") as folder:
        options = CheckOptions(
            out=Path(folder),
            base=good,
            head=bad,
            always=True,
            allow_dirty=True,
            workloads=workloads,
            steps=FIRST_STEPS,
            device=config.device,
            time_budget=seconds,
        )
        decision = check(config.root, options, progress)
        fingerprint = read_run(Path(folder) / "head" / "run.json").testbed.fingerprint
    elsewhere = {suspect.series.fingerprint for suspect in suspects} - {fingerprint}
    if elsewhere:
        progress.note(
            sentence(
                "this machine is testbed {fingerprint}, but the suspected change is on {elsewhere}: measure the "
                "commits there to confirm it",
                fingerprint=fingerprint[:10],
                elsewhere=", ".join(sorted({testbed[:10] for testbed in elsewhere})),
            )
        )
    answers: list[Confirmation] = []
    for suspect in suspects:
        confirmation = confirmation_of(decision, good, bad, suspect.series, fingerprint)
        if confirmation is not None:
            answers.append(confirmation)
    if not answers:
        progress.note(
            sentence(
                "measured side by side they gave no answer: {reasons}",
                reasons=word_all(decision.reasons) or decision.verdict,
            )
        )
    return answers


def confirmation_of(
    decision: DecisionDocument,
    good: str,
    bad: str,
    series: TrendSeries,
    fingerprint: str,
) -> Confirmation | None:
    """The confirmation of a series by a decision over two commits; None if the decision
    has no comparison for it.
    """
    by_metric: dict[str, Comparison] = {}
    for comparison in decision.comparisons:
        if comparison.place == series.place and not isinstance(comparison, Bound):
            by_metric[comparison.metric] = comparison
    compared = by_metric.get(series.metric) or by_metric.get(
        metric(series.metric).trend.follows
    )
    if compared is None:
        return None
    low, high = None, None
    if (
        isinstance(compared, Paired)
        and compared.interval
        and all(map(math.isfinite, compared.interval))
    ):
        low, high = compared.interval
        if compared.better != metric(series.metric).better:
            low, high = 1 / (1 + high) - 1, 1 / (1 + low) - 1
    confirmation = confirmation_as(
        good, bad, series, fingerprint, outcome=compared.outcome
    )
    return msgspec.structs.replace(confirmation, low=low, high=high)


def confirmation_as(
    good: str, bad: str, series: TrendSeries, fingerprint: str, *, outcome: Outcome
) -> Confirmation:
    """A confirmation of a series with this outcome, made now."""
    return Confirmation(
        before=good,
        after=bad,
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        outcome=outcome,
        fingerprint=fingerprint,
        confirmed_at=now(),
    )


def _is_plausible(confirmation: Confirmation) -> bool:
    try:
        confirmed_at = moment(confirmation.confirmed_at)
    except ValueError:
        return False
    if confirmed_at > datetime.now(timezone.utc) + timedelta(days=1):
        return False
    low, high = confirmation.low, confirmation.high
    if low is None or high is None:
        return low is high
    return -1 <= low <= high < _LARGEST_CHANGE

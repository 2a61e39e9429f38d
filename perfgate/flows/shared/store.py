"""The store of a project: opening it, and reading main's history and accepted
regressions from it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import START_SPREAD
from perfgate.config import Config, load_config
from perfgate.document.conditions import StepConditions, conditions_of
from perfgate.document.history import Acceptance, History, HistorySeries, Triage
from perfgate.document.run import RunDocument
from perfgate.document.testbed import Testbed
from perfgate.errors import RepositoryError, StoreError
from perfgate.git.commands import COMMIT_ID
from perfgate.git.repository import is_behind
from perfgate.judging.forge.detect import detect
from perfgate.judging.forge.forge import CiEvent, find_token
from perfgate.judging.gate.compare.stored import MIN_RUNS, accepts, level
from perfgate.judging.gate.evidence.checklist import ChecklistNumber, leading_numbers
from perfgate.judging.gate.evidence.effect import ASSUMED, StartLuck, start_luck_of
from perfgate.judging.store.index import Index
from perfgate.judging.store.remote import PREFIX, REMOTE_VARIABLE
from perfgate.judging.store.store import (
    STORE_VARIABLE,
    GitAccess,
    Page,
    RunEntry,
    SeriesPlace,
    Store,
    StorePlace,
    labels_text,
    open_location,
    store_location,
)
from perfgate.judging.trend.triage import meant
from perfgate.locale import sentence

# A number is compared with at most this many of the newest sessions that have a value
# of it, among its testbed's newest runs.
_SESSIONS = 500
_MOST_RUNS = 2_000
TOKEN_VARIABLE = "PERFGATE_TOKEN"  # noqa: S105 - the name of the variable
# The user name that goes with a token (docs.github.com, "Authenticating as a GitHub App
# installation"; docs.gitlab.com, "Project access tokens": any name will do there, and
# GitLab writes oauth2).
_USERS = {"github": "x-access-token"}
_ANY_USER = "oauth2"


def open_project_store(config: Config, environ: Mapping[str, str]) -> Store:
    """The store of a project, opened on first use. Raises StoreError for an unsupported
    location.
    """
    return open_store_at(store_location(config, environ), config.root, environ)


def open_store_at(
    location: str, root: Path, environ: Mapping[str, str], *, is_served: bool = False
) -> Store:
    """The store at a location; a branch is one of the repository that ``root`` lies in."""
    access = None
    if location.startswith(PREFIX):
        access = _access_of_job(environ)
    return open_location(location, StorePlace(root, environ, access, is_served))


def store_location_in(
    location: str | None, folder: Path, environ: Mapping[str, str]
) -> str:
    """A location of the command line, else PERFGATE_STORE, else the location in the
    project's settings. Raises ConfigError.
    """
    return (
        location
        or environ.get(STORE_VARIABLE)
        or store_location(load_config(folder), environ)
    )


def git_access(event: CiEvent, environ: Mapping[str, str]) -> GitAccess:
    """The access to the git server of an event, with the job's token."""
    return GitAccess(
        server=event.host.server_url,
        repository=f"{event.host.server_url}/{event.repository}.git",
        user=_USERS.get(event.forge, _ANY_USER),
        token=find_token(event.forge, environ) or "",
        ca_file=event.host.ca_file,
    )


def _access_of_job(environ: Mapping[str, str]) -> GitAccess | None:
    """The access to the CI job's git server; None if the environment gives none.

    If no known forge is detected, PERFGATE_STORE_REMOTE names the repository that
    PERFGATE_TOKEN is for.
    """
    event = detect(environ)
    if event is not None:
        return git_access(event, environ)
    url = environ.get(REMOTE_VARIABLE, "")
    if not (environ.get(TOKEN_VARIABLE) and url.startswith(("https://", "http://"))):
        return None
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise StoreError(
            "{variable} is not the address of a repository: {error}",
            variable=REMOTE_VARIABLE,
            error=error,
        ) from None
    server = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return GitAccess(server, url, _ANY_USER, environ[TOKEN_VARIABLE])


def stored_history(
    config: Config,
    head: RunDocument,
    environ: Mapping[str, str],
    *,
    warn: Callable[[str], None],
) -> History:
    """As ``read_history``; warns if the store cannot be read."""
    try:
        return read_history(config, head, environ, warn=warn)
    except StoreError as error:
        warn(sentence("stored runs of main are left out: {error}", error=error.shown))
        return History()


def read_history(
    config: Config,
    head: RunDocument,
    environ: Mapping[str, str],
    *,
    warn: Callable[[str], None],
) -> History:
    """The series to compare a run with, and the accepted regressions of its commit;
    warns of unreadable runs.

    Runs that main's own history shows as regressed are left out of its series until the
    regression is accepted. If the forge's merge commit was measured, regressions
    accepted for the commit under review count too. Raises StoreError.
    """
    store = open_project_store(config, environ)
    today = datetime.now(timezone.utc).date()
    accepted = [
        entry
        for entry in store.entries(config.project, Acceptance)
        if entry.counts_on(today)
    ]
    of_main = meant(accepted, store.entries(config.project, Triage), today)
    numbers = list(leading_numbers(head))
    comparable = _Comparable(store, config.project, head, numbers)
    series = [_series(number, comparable, of_main, config.root) for number in numbers]
    series += _start_spreads(store, config.project, head.testbed)
    for why in store.damaged(config.project):
        warn(sentence("a stored run of main is left out: {why}", why=why))
    commit = head.source.commit
    context = head.session.ci
    commits = {commit}
    if context:
        commits.add(context.head_sha)
    own: list[Acceptance] = []
    for entry in accepted:
        if commit and entry.commit in commits:
            own.append(msgspec.structs.replace(entry, commit=commit))
    return History(
        series=[entry for entry in series if entry.values or entry.left_out],
        accepted=own,
    )


def stored_start_luck(
    config: Config,
    testbed: Testbed,
    environ: Mapping[str, str],
    *,
    warn: Callable[[str], None],
) -> StartLuck:
    """The luck of starts on this testbed by main's stored runs; warns if the store
    cannot be read.
    """
    try:
        store = open_project_store(config, environ)
        return start_luck_of(_start_spreads(store, config.project, testbed))
    except StoreError as error:
        warn(sentence("stored runs of main are left out: {error}", error=error.shown))
        return ASSUMED


def _start_spreads(store: Store, project: str, testbed: Testbed) -> list[HistorySeries]:
    """The spreads between processes that main's newest runs of an accelerator measured."""
    if testbed.device_kind == "cpu":
        return []
    index = Index(_newest_values(store, project, testbed.fingerprint, []))
    spreads = []
    for place in index.series():
        if place.metric == START_SPREAD:
            values = [value for _, value in index.history(place)]
            spreads.append(
                HistorySeries(
                    workload=place.workload,
                    shape=place.shape,
                    metric=START_SPREAD,
                    values=values,
                )
            )
    return spreads


class _Comparable:
    """The stored values measured under the same conditions as a run."""

    def __init__(
        self,
        store: Store,
        project: str,
        run: RunDocument,
        numbers: Sequence[ChecklistNumber],
    ) -> None:
        fingerprint = run.testbed.fingerprint
        places: dict[ChecklistNumber, SeriesPlace] = {}
        for number in numbers:
            labels = labels_text(dict(number.labels))
            places[number] = SeriesPlace(
                number.workload, number.shape, number.metric, labels, fingerprint
            )
        newest = _newest_values(store, project, fingerprint, list(places.values()))
        index = Index(newest)
        self._runs = index.runs
        self._values = {
            number: index.history(place)[-_SESSIONS:]
            for number, place in places.items()
        }
        self._here = {
            (entry.workload, entry.step): entry for entry in conditions_of(run)
        }
        # How a step was measured in each of the runs.
        self._stored = defaultdict[tuple[str, int], dict[int, StepConditions]](dict)
        for position, stored in enumerate(reversed(newest)):
            for entry in stored.conditions:
                self._stored[entry.workload, entry.step][position] = entry

    def sessions(self, number: ChecklistNumber) -> _Sessions:
        """The sessions with a value of a number.

        Times of a busy machine make main's range wider, so they count only where there
        are too few others for a range.
        """
        card = metric(number.metric)
        step = (number.workload, number.step)
        values = self._values[number]
        condition = self._here[step]
        stored = self._stored[step]
        compared: list[tuple[str | None, float]] = []
        undisturbed: list[tuple[str | None, float]] = []
        of_young_process = card.origin.of_young_process
        for position, value in values:
            there = stored.get(position)
            if there is None:
                continue
            if condition.compares_with(there, of_young_process=of_young_process):
                compared.append((self._runs[position].commit, value))
                if not there.is_busy:
                    undisturbed.append(compared[-1])
        busy = 0
        if card.depends_on_load:
            if len(undisturbed) >= MIN_RUNS:
                compared = undisturbed
            busy = len(compared) - len(undisturbed)
        return _Sessions(compared, len(values) - len(compared), busy)


def _newest_values(
    store: Store, project: str, fingerprint: str, places: Sequence[SeriesPlace]
) -> list[RunEntry]:
    """The newest runs of a testbed, newest first, as many pages as give each place its
    newest values, or all runs if one lacks them.
    """
    entries: list[RunEntry] = []
    before: str | None = None
    while True:
        page = store.entries(
            project, RunEntry, Page(testbed=fingerprint, limit=_SESSIONS, before=before)
        )
        entries += page
        index = Index(entries)
        is_complete = all(len(index.history(place)) >= _SESSIONS for place in places)
        if is_complete or len(page) < _SESSIONS or len(entries) >= _MOST_RUNS:
            return entries
        before = page[-1].run.id


class _Sessions(NamedTuple):
    """Commit and value of the comparable sessions, oldest first; the number of the
    others; of which are of a busy machine.
    """

    values: list[tuple[str | None, float]]
    left_out: int
    busy: int


def _series(
    number: ChecklistNumber,
    comparable: _Comparable,
    accepted: Sequence[Acceptance],
    root: Path,
) -> HistorySeries:
    sessions = comparable.sessions(number)
    entries = [
        entry for entry in accepted if accepts(entry, number.metric, number.place)
    ]
    commits = [commit for commit, _ in sessions.values]

    def is_meant(index: int) -> bool:
        before = None
        if index:
            before = commits[index - 1]
        return any(
            _brings(entry.commit, commits[index], before, root) for entry in entries
        )

    return HistorySeries(
        workload=number.workload,
        shape=number.shape,
        metric=number.metric,
        labels=dict(number.labels),
        values=level([value for _, value in sessions.values], is_meant, number.metric),
        left_out=sessions.left_out,
        busy=sessions.busy,
    )


def _brings(accepted: str, commit: str | None, before: str | None, root: Path) -> bool:
    """Whether a commit is the accepted one, or the first in its line that has it."""

    def has_it(commit: str) -> bool:
        if not (COMMIT_ID.fullmatch(commit) and COMMIT_ID.fullmatch(accepted)):
            return False
        try:
            return is_behind(root, accepted, commit)
        except (RepositoryError, OSError):
            return False

    if commit is None or accepted == commit:
        return commit is not None
    return has_it(commit) and (before is None or not has_it(before))

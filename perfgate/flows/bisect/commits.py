"""The states between two commits: every commit of a branch that changes anything the
workload runs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from perfgate.config import Config
from perfgate.document.bisection import CommitChange
from perfgate.document.comparison import Exact
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import read_run
from perfgate.document.run import RunDocument
from perfgate.errors import StoreError, UsageError
from perfgate.flows.bisect.answers import Signal, place_of
from perfgate.flows.bisect.search import States, TrialSides
from perfgate.flows.shared.reads import files_that_may_be_read
from perfgate.flows.shared.store import open_project_store
from perfgate.flows.trust.commits import config_at, same_code_between
from perfgate.git.repository import Repository
from perfgate.judging.gate.paths import (
    always_relevant,
    files_of_environment,
    skipped_because,
)
from perfgate.judging.store.index import read_index
from perfgate.judging.store.runs import stored_run
from perfgate.judging.store.store import Page, SeriesPlace
from perfgate.locale import sentence
from perfgate.stats.culprits import Answer

_SUBJECT = 60


@dataclass(kw_only=True)
class CommitStates(States):
    """The commits after a good one, oldest first: a state is the tree of the last of
    them that is applied.

    ``good`` is compared with each. ``irrelevant`` commits do not change what the
    workload runs, and are not states.
    """

    config: Config
    good: str
    changes: Sequence[CommitChange]
    _stored: StoredCounters | None = field(default=None, repr=False)

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:  # noqa: ARG002 - only stacks have a log each
        return TrialSides(base=self.good, head=self.changes[max(applied)].commit)

    def sides_alone(self, position: int) -> TrialSides | None:
        if position == 0:
            return None
        return TrialSides(
            base=self.changes[position - 1].commit, head=self.changes[position].commit
        )

    def words(self, applied: frozenset[int]) -> str:
        change = self.changes[max(applied)]
        return f"{change.commit[:10]} {change.subject[:_SUBJECT]}"

    def follow(self, signal: Signal, decision: DecisionDocument, folder: Path) -> None:
        if signal.counters:
            measured = read_run(folder / "head" / "run.json")
            self._stored = StoredCounters(
                self.config, self.good, signal, decision, measured, os.environ
            )

    def stored_answer(self, applied: frozenset[int]) -> Answer | None:
        if self._stored:
            return self._stored.answer(self.changes[max(applied)].commit)
        return None


class StoredCounters:
    """The followed counters in the stored runs of a testbed.

    ``measured`` is the head of the first gate. A stored run counts only if it has the
    same workload files: a gate measures both sides by those of the newer commit, so
    that a change of a workload alone slows nothing.
    """

    def __init__(
        self,
        config: Config,
        good: str,
        signal: Signal,
        decision: DecisionDocument,
        measured: RunDocument,
        environ: Mapping[str, str],
    ) -> None:
        fingerprint = measured.testbed.fingerprint
        self._project = config.project
        self._workloads = signal.workloads
        self._files = _workload_files(measured, signal.workloads)
        self._ids: dict[str, set[str]] = {}
        self._followed: list[Exact] = []
        for comparison in decision.comparisons:
            if (
                isinstance(comparison, Exact)
                and place_of(comparison) in signal.counters
            ):
                self._followed.append(comparison)
        self._values: list[dict[str, float]] = []
        try:
            self._store = open_project_store(config, environ)
            index = read_index(self._store, config.project, Page(testbed=fingerprint))
            for reference in self._followed:
                history = index.history(
                    SeriesPlace(
                        reference.workload,
                        reference.shape,
                        reference.metric,
                        "",
                        fingerprint,
                    )
                )
                values: dict[str, float] = {}
                for stored in history:
                    run = index.runs[stored.position]
                    if run.commit:
                        values[run.commit] = stored.value
                        self._ids.setdefault(run.commit, set()).add(run.id)
                self._values.append(values)
        except StoreError:
            self._followed = []
            self._values = []
        # If the good commit's stored count differs from the measured one, all stored
        # counts were taken in another way.
        fields = zip(self._followed, self._values)
        if any(
            values.get(good, reference.base) != reference.base
            for reference, values in fields
        ):
            self._followed = []
            self._values = []

    def answer(self, commit: str) -> Answer | None:
        answer: Answer | None = None
        for counter, values in zip(self._followed, self._values):
            value, old = values.get(commit), counter.base
            if value is None:
                return None
            is_worse = False
            if old is not None:
                is_worse = value > old if counter.better == "lower" else value < old
            if is_worse:
                answer = "slow"
            answer = answer or "fast"
        if answer and not self._has_same_workloads(commit):
            return None
        return answer

    def _has_same_workloads(self, commit: str) -> bool:
        try:
            for run_id in self._ids[commit]:
                run = stored_run(self._store, self._project, run_id)
                if _workload_files(run, self._workloads) != self._files:
                    return False
        except StoreError:
            return False
        return True


def _workload_files(run: RunDocument, names: Collection[str]) -> dict[str, str]:
    """The SHA-256 of the files of some workloads."""
    files: dict[str, str] = {}
    for workload in run.workloads:
        if workload.name in names:
            files[workload.name] = workload.sha256
    return files


def states_between(
    repository: Repository,
    directory: Path,
    config: Config,
    good: str,
    bad: str,
    *,
    always: bool,
    say: Callable[[str], None],
) -> CommitStates:
    """The states after ``good`` up to ``bad``, without commits that do not change what
    the workload runs, unless ``always``.

    Raises UsageError if ``bad`` does not come after ``good``, or no commit between them
    is worth measuring.
    """
    if good == bad or not repository.holds(bad, good):
        raise UsageError(
            "{good} is not before {bad} in its history: give --good an ancestor of --bad; `git merge-base` finds one",
            good=good[:12],
            bad=bad[:12],
        )
    commits, before = list[CommitChange](), good
    for commit, author, subject in repository.commits_between(good, bad):
        commits.append(
            CommitChange(commit=commit, before=before, subject=subject, author=author)
        )
        before = commit
    relevant = commits
    if not always:
        say(sentence("searching {count} commits", count=len(commits)))
        rules = msgspec.structs.replace(
            config_at(directory, good, None).config or config, root=config.root
        )
        prefix = repository.prefix(directory)
        relevant = [
            change
            for change in commits
            if _is_relevant(repository, prefix, rules, change)
        ]
    if not relevant:
        raise UsageError(
            "none of the {count} commits after {good} changes anything that the workload runs, by [paths] in "
            "perfgate.toml and by the code itself; --always bisects all of them",
            count=len(commits),
            good=good[:12],
        )
    return CommitStates(
        config=config,
        good=good,
        changes=relevant,
        irrelevant=len(commits) - len(relevant),
    )


def _is_relevant(
    repository: Repository, prefix: str, rules: Config, change: CommitChange
) -> bool:
    """Whether a check by these rules would measure the commit against its parent."""
    changed = repository.files_between(change.before, change.commit)
    commits = change.before, change.commit
    because = skipped_because(
        changed,
        rules.paths,
        always=always_relevant(rules, prefix)
        | files_of_environment(changed, rules, prefix),
        read=lambda files: files_that_may_be_read(
            files, repository, rules, commits, in_clone=True
        ),
        same_code=lambda files: same_code_between(repository.root, *commits, files),
    )
    return bool(changed) and because is None

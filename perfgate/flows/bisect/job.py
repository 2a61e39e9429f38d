"""``perfgate bisect`` and ``perfgate upgrade --bisect``: gates of an old state against states with some of the changes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path

import msgspec

from perfgate.catalogue.lookup import METRICS
from perfgate.conductor.machine.lock import lock_path, machine_lock
from perfgate.config import Config, load_config
from perfgate.document.bisection import (
    BISECTION_FILE,
    BisectionDocument,
    BisectionTrial,
    SearchedChanges,
)
from perfgate.document.budget import PlacePattern
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_text_atomically
from perfgate.errors import ConfigError, SetUpError
from perfgate.flows.bisect.answers import failed_on, read_first
from perfgate.flows.bisect.commits import CommitStates
from perfgate.flows.bisect.commits import states_between as commits_between
from perfgate.flows.bisect.counting import StateCounter
from perfgate.flows.bisect.environments import EnvironmentStates
from perfgate.flows.bisect.environments import states_between as environments_between
from perfgate.flows.bisect.packages import PackageStates
from perfgate.flows.bisect.packages import states_between as packages_between
from perfgate.flows.bisect.request import EnvironmentList, Pins, ReleaseRange
from perfgate.flows.bisect.search import Counting, Search, may_be_counted
from perfgate.flows.bisect.stacks import StackMaker
from perfgate.flows.shared.doors import Check, Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.session import prepare_out, remove_results
from perfgate.git.repository import Repository
from perfgate.project import below
from perfgate.stats.culprits import Answer, Culprits, find_culprits
from perfgate.version import __version__

CONFIRMATION = "gates/culprit"
# The launchers of environments that shell lines make.
_LAUNCHERS = "environments"
# Only these steps judge regressions; the others are informative, which a search does not need.
_DECIDING_STEPS = (1, 2, 3, 4)
ERROR = 0.05


# The result of a bisection, and the decision of the gate that shows it; None if no gate decided anything.
Bisected = tuple[BisectionDocument, DecisionDocument | None]


def bisect_commits(
    directory: Path,
    good: str,
    bad: str,
    options: CheckOptions,
    check: Check,
    progress: Progress,
    counter: Counting | None = None,
    *,
    metric: PlacePattern | None = None,
    error: float = ERROR,
) -> Bisected:
    """Find the commit that makes a workload slower, and write ``bisection.json``; each gate has a folder in ``gates``.

    ``options`` configure the gates; ``options.out`` is the folder of all results. ``metric`` is what to follow and may be a
    pattern, None stands for all that gate. ``error`` is the allowed probability that noise leads the whole search to a wrong
    result.

    Raises UsageError if there is nothing to bisect, RepositoryError for unknown commits, and MeasuringError if the good commit
    cannot be measured.
    """
    began = time.monotonic()
    options = _prepared(options, metric)
    repository = Repository(directory)
    good, bad = repository.resolve(good), repository.resolve(bad)
    config = load_config(directory, device=options.device)
    states = commits_between(
        repository,
        directory,
        config,
        good,
        bad,
        always=options.always,
        say=progress.status,
    )
    search = Search(
        directory,
        options,
        check,
        progress,
        states,
        stored=states,
        counter=counter,
        pattern=metric,
        error=error,
    )
    with _machine(directory, progress):
        culprits = find_culprits(len(states.changes), search.ask, cumulative=True)
        confirmation = _confirmed(search, states, culprits)
        if culprits.outcome == "found" and confirmation is None:
            search.gate_smallest()
    document = _document(search, culprits, commit=bad, began=began, cumulative=True)
    document = msgspec.structs.replace(
        document,
        searched=msgspec.structs.replace(
            document.searched, good=good, irrelevant=states.irrelevant
        ),
        confirmation=confirmation,
    )
    if confirmation and confirmation.answer == "slow":
        return _written(document, search, confirmation)
    return _written(document, search, search.deciding_trial(document.deciding))


def search_commits(
    directory: Path,
    good: str,
    bad: str,
    options: CheckOptions,
    check: Check,
    progress: Progress,
    *,
    metric: PlacePattern | None,
) -> Bisected:
    """``bisect_commits`` with counts of single states, on a fork server that ends with the search."""
    with StateCounter(directory, options, progress) as counter:
        return bisect_commits(
            directory, good, bad, options, check, progress, counter, metric=metric
        )


def judge_commit(
    directory: Path,
    good: str,
    options: CheckOptions,
    check: Check,
    progress: Progress,
    *,
    metric: PlacePattern | None = None,
) -> Answer:
    """Whether the checked-out commit is slower than the good one, by one gate, for ``git bisect run``.

    Raises RepositoryError for an unknown good commit, and MeasuringError if the good one or the machine fails.
    """
    base = Repository(directory).resolve(good)
    options = replace(
        _prepared(options, metric), base=base, allow_dirty=True, checklist_budget=0.0
    )
    options = replace(options, cost=not may_be_counted(metric))
    try:
        decision = check(directory, options, progress)
    except (ConfigError, SetUpError) as error:
        progress.note(error.shown)
        return "impossible"
    if failed_on(decision, "head"):
        return "impossible"
    return read_first(decision, metric).answer


def bisect_stack(
    directory: Path,
    versions: Pins | ReleaseRange | EnvironmentList,
    options: CheckOptions,
    check: Check,
    progress: Progress,
    counter: Counting | None = None,
    *,
    metric: PlacePattern | None = None,
    error: float = ERROR,
) -> Bisected:
    """Find the package or environment that makes the workload slower, and write ``bisection.json``; gates as for commits.

    The commit is ``options.head``, by default the checked-out one.

    Raises UsageError if there is nothing to bisect, and MeasuringError if the old stack or the package index fails.
    """
    began = time.monotonic()
    options = _prepared(options, metric)
    repository = Repository(directory)
    commit = repository.resolve(options.head or "HEAD")
    config = load_config(directory, device=options.device)
    with (
        _machine(directory, progress),
        _checkout(repository, directory, commit, config) as checkout,
    ):
        maker = StackMaker(
            config, checkout, options.out / "logs", progress.status, os.environ
        )
        states: PackageStates | EnvironmentStates
        if isinstance(versions, (dict, ReleaseRange)):
            states = packages_between(maker, versions)
        else:
            states = environments_between(
                maker, versions, options.out.absolute() / _LAUNCHERS
            )
        search = Search(
            directory,
            options,
            check,
            progress,
            states,
            counter=counter,
            pattern=metric,
            error=error,
        )
        culprits = find_culprits(
            len(states.changes), search.ask, cumulative=states.cumulative
        )
        if culprits.outcome == "found":
            search.gate_smallest()
    document = _document(
        search, culprits, commit=commit, began=began, cumulative=states.cumulative
    )
    return _written(document, search, search.deciding_trial(document.deciding))


def _machine(directory: Path, progress: Progress) -> AbstractContextManager[float]:
    """The machine, held for the whole search: its gates and counts do not queue behind other gates."""
    return machine_lock(
        lock_path(),
        purpose=f"perfgate bisect in {directory.resolve()}",
        say=progress.note,
    )


def _prepared(options: CheckOptions, pattern: PlacePattern | None) -> CheckOptions:
    """The options of a whole gate, limited to the steps that a search needs; creates the output folder."""
    out = prepare_out(options.out)
    remove_results(out, [BISECTION_FILE])
    if options.steps is not None:
        return replace(options, out=out)
    steps = set(_DECIDING_STEPS)
    if pattern and pattern.metric in METRICS:
        steps.add(METRICS[pattern.metric].step)
    return replace(options, out=out, steps=tuple(sorted(steps)))


def _confirmed(
    search: Search, states: CommitStates, culprits: Culprits
) -> BisectionTrial | None:
    """A gate of the culprit against the commit before it: its comment shows only the culprit's own effect."""
    if culprits.outcome != "found" or len(culprits.blocks[0]) != 1:
        return None
    (position,) = culprits.blocks[0]
    sides = states.sides_alone(position)
    return sides and search.gate(
        sides, BisectionTrial(changes=[position], answer="impossible"), CONFIRMATION
    )


def _document(
    search: Search, culprits: Culprits, *, commit: str, began: float, cumulative: bool
) -> BisectionDocument:
    return BisectionDocument(
        searched=SearchedChanges(
            commit=commit, changes=list(search.states.changes), cumulative=cumulative
        ),
        perfgate_version=__version__,
        outcome=culprits.outcome,
        culprits=[list(block) for block in culprits.blocks],
        suspects=list(culprits.suspects),
        followed=search.signal.names,
        tried=search.tried,
        deciding=search.deciding(culprits),
        duration=round(time.monotonic() - began, 1),
        error=search.wrong(),
    )


def _written(
    document: BisectionDocument, search: Search, trial: BisectionTrial | None
) -> Bisected:
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    write_text_atomically(search.options.out / BISECTION_FILE, text + "\n")
    if trial is None or trial.folder is None:
        return document, None
    return document, search.decisions.get(trial.folder)


@contextmanager
def _checkout(
    repository: Repository, directory: Path, commit: str, config: Config
) -> Iterator[Path]:
    """The folder to run the project's setup in: a worktree of the commit, so that the user's own folder stays unchanged."""
    if not config.measure.setup:
        yield directory
        return
    prefix = repository.prefix(directory)
    link = [below(prefix, entry) for entry in config.measure.link]
    with repository.worktrees({"setup": commit}, link=link) as trees:
        yield trees["setup"] / prefix

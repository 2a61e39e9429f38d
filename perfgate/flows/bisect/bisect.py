"""``perfgate bisect`` and ``perfgate upgrade --bisect``: gates of an old state against
states with some of the changes.
"""

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
from perfgate.flows.bisect.answers import fails_on_head, read_first
from perfgate.flows.bisect.commits import states_between as commits_between
from perfgate.flows.bisect.counting import StateCounter
from perfgate.flows.bisect.environments import states_between as stacks_between
from perfgate.flows.bisect.request import EnvironmentList, Pins, ReleaseRange
from perfgate.flows.bisect.search import Counting, Search, may_be_counted
from perfgate.flows.bisect.stacks import StackMaker
from perfgate.flows.shared.doors import Check, Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.flows.shared.session import prepare_out, remove_results
from perfgate.git.repository import Repository
from perfgate.project import below
from perfgate.stats.culprits import Answer, find_culprits
from perfgate.version import __version__

CONFIRMATION = "gates/culprit"
# The launchers of environments that shell lines make.
_LAUNCHERS = "environments"
# Only these steps judge regressions; the others are informative, which a search does
# not need.
_DECIDING_STEPS = (1, 2, 3, 4)
ERROR = 0.05


# The result of a bisection, and the decision of the gate that shows it; None if no gate
# decided anything.
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
    """Find the commit that makes a workload slower, and write ``bisection.json``; each
    gate has a folder in ``gates``.

    ``options`` configure the gates; ``options.out`` is the folder of all results.
    ``metric`` is what to follow and may be a pattern, None stands for all that gate.
    ``error`` is the allowed probability that noise leads the whole search to a wrong
    result.

    Raises UsageError if there is nothing to bisect, RepositoryError for unknown
    commits, and MeasuringError if the good commit cannot be measured.
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
        counter=counter,
        pattern=metric,
        error=error,
    )
    with _machine(directory, progress):
        return _result(search, bad, began)


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
    """``bisect_commits`` with counts of single states, on a fork server that ends with
    the search.
    """
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
    metric: PlacePattern | None,
) -> Answer:
    """Whether the checked-out commit is slower than the good one, by one gate, for
    ``git bisect run``.

    Raises RepositoryError for an unknown good commit, and MeasuringError if the good
    one or the machine fails.
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
    if fails_on_head(decision):
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
    """Find the package or environment that makes the workload slower, and write
    ``bisection.json``; gates as for commits.

    The commit is ``options.head``, by default the checked-out one.

    Raises UsageError if there is nothing to bisect, and MeasuringError if the old stack
    or the package index fails.
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
        states = stacks_between(maker, versions, options.out.absolute() / _LAUNCHERS)
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
        return _result(search, commit, began)


def _machine(directory: Path, progress: Progress) -> AbstractContextManager[float]:
    """The machine, held for the whole search: its gates and counts do not queue behind
    other gates.
    """
    return machine_lock(
        lock_path(),
        purpose=f"perfgate bisect in {directory.resolve()}",
        say=progress.note,
    )


def _prepared(options: CheckOptions, pattern: PlacePattern | None) -> CheckOptions:
    """The options of a whole gate, limited to the steps that a search needs; creates
    the output folder.
    """
    out = prepare_out(options.out)
    remove_results(out, [BISECTION_FILE])
    if options.steps is not None:
        return replace(options, out=out)
    steps = set(_DECIDING_STEPS)
    if pattern and pattern.metric in METRICS:
        steps.add(METRICS[pattern.metric].step)
    return replace(options, out=out, steps=tuple(sorted(steps)))


def _result(search: Search, commit: str, began: float) -> Bisected:
    """Search up to a commit, and write the document.

    With it comes the decision of the gate that shows the result.
    """
    states = search.states
    culprits = find_culprits(
        len(states.changes), search.ask, cumulative=states.cumulative
    )
    confirmation = None
    if culprits.outcome == "found":
        # A gate of the culprit against the state before it: its comment shows only the
        # culprit's own effect.
        positions, sides = culprits.blocks[0], None
        if len(positions) == 1:
            sides = states.sides_alone(positions[0])
        if sides is None:
            search.gate_smallest()
        else:
            trial = BisectionTrial(changes=list(positions), answer="impossible")
            confirmation = search.gate(sides, trial, CONFIRMATION)
    document = BisectionDocument(
        searched=SearchedChanges(
            commit=commit,
            changes=list(states.changes),
            cumulative=states.cumulative,
            good=states.good,
            irrelevant=states.irrelevant,
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
        confirmation=confirmation,
    )
    text = msgspec.json.format(msgspec.json.encode(document)).decode()
    write_text_atomically(search.options.out / BISECTION_FILE, text + "\n")
    shown = confirmation
    if shown is None or shown.answer != "slow":
        if document.deciding is None:
            return document, None
        shown = search.tried[document.deciding]
    return document, search.decisions.get(shown.folder or "")


@contextmanager
def _checkout(
    repository: Repository, directory: Path, commit: str, config: Config
) -> Iterator[Path]:
    """The folder to run the project's setup in: a worktree of the commit, so that the
    user's own folder stays unchanged.
    """
    if not config.measure.setup:
        yield directory
        return
    prefix = repository.prefix(directory)
    link = [below(prefix, entry) for entry in config.measure.link]
    with repository.worktrees({"setup": commit}, link=link) as trees:
        yield trees["setup"] / prefix

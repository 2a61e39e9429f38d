"""``perfgate upgrade --bisect``: gates of the old stack against stacks with some of the changes, until the culprit is known."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec

from perfgate.config import Config, load_config
from perfgate.document.bisection import BisectionDocument, PackageChange, TriedStack
from perfgate.document.decision import Comparison, DecisionDocument
from perfgate.document.files import write_text_atomically
from perfgate.document.message import as_message, english
from perfgate.errors import MeasuringError, UsageError
from perfgate.git.repository import Repository
from perfgate.jobs.shared.doors import Check, Progress
from perfgate.jobs.shared.options import CheckOptions, GivenInterpreters
from perfgate.jobs.shared.session import prepare_out, remove_results
from perfgate.jobs.upgrade.request import NewPackages, ReleaseRange
from perfgate.jobs.upgrade.stacks import StackError, StackMaker, versions_in
from perfgate.locale import sentence
from perfgate.stats.culprits import Answer, Culprits, find_culprits
from perfgate.version import __version__

RESULT = "bisection.json"
# An inconclusive gate is repeated once, with so many times its budget.
MORE_BUDGET = 3.0
# What regresses is judged by these steps; the others inform, and a search needs no information.
_DECIDING_STEPS = (1, 2, 3, 4)
_WORDS = {"slow": "slower", "fast": "not slower", "undecided": "not decided", "impossible": "cannot be tried"}
_NAMED = 4


@dataclass(frozen=True)
class BisectOptions:
    """What is bisected, and how each gate measures; ``check.out`` is the folder for all of it."""

    wanted: NewPackages | ReleaseRange
    check: CheckOptions


@dataclass(frozen=True)
class Bisection:
    """The result of a bisection, and the decision of the gate that shows it; None where no gate decided anything."""

    document: BisectionDocument
    decision: DecisionDocument | None


def bisect_stack(directory: Path, options: BisectOptions, check: Check, progress: Progress) -> Bisection:
    """Find what makes the new stack slower, and write ``bisection.json``; each gate has a folder in ``gates``.

    Raises UsageError where there is nothing to bisect, and MeasuringError where the old stack or the package index fails.
    """
    began = time.monotonic()
    out = prepare_out(options.check.out)
    remove_results(out, [RESULT])
    repository = Repository(directory)
    commit = repository.resolve(options.check.head or "HEAD")
    config = load_config(directory, device=options.check.device)
    with _checkout(repository, directory, commit, config) as checkout:
        maker = StackMaker(config, checkout, out / "logs", progress.status, os.environ)
        stacks = _plan(maker, options.wanted)
        search = _Search(directory, replace(options.check, out=out), check, progress, maker, stacks)
        found = find_culprits(len(stacks.changes), search.ask, cumulative=stacks.cumulative)
    deciding = search.deciding(found)
    document = BisectionDocument(
        commit=commit,
        perfgate_version=__version__,
        changes=stacks.changes,
        cumulative=stacks.cumulative,
        outcome=found.outcome,
        culprits=[list(block) for block in found.blocks],
        suspects=list(found.suspects),
        followed=sorted(search.followed),
        tried=search.tried,
        deciding=deciding,
        duration=round(time.monotonic() - began, 1),
    )
    write_text_atomically(out / RESULT, msgspec.json.format(msgspec.json.encode(document)).decode() + "\n")
    return Bisection(document, None if deciding is None else search.decisions.get(deciding))


@contextmanager
def _checkout(repository: Repository, directory: Path, commit: str, config: Config) -> Iterator[Path]:
    """Where the project's setup runs: a worktree of the commit, so that the user's own folder stays as it is."""
    if not config.measure.setup:
        yield directory
        return
    prefix = repository.prefix(directory)
    link = [f"{prefix}/{entry}" if prefix else entry for entry in config.measure.link]
    with repository.worktrees({"setup": commit}, link=link) as trees:
        yield trees["setup"] / prefix


# --- what is compared


@dataclass(frozen=True)
class _Stacks:
    """The interpreter of the old stack, and the changes that lead to the new one."""

    old: Path
    changes: list[PackageChange]
    cumulative: bool

    def pins(self, applied: frozenset[int]) -> dict[str, str | None]:
        """The version that every changed package must have where these changes are applied."""
        if self.cumulative:
            return {self.changes[0].package: self.changes[max(applied)].after}
        return {
            change.package: change.after if position in applied else change.before
            for position, change in enumerate(self.changes)
        }

    def words(self, applied: frozenset[int]) -> str:
        names = [f"{package} {version}" for package, version in self._new(applied).items()]
        more = len(names) - _NAMED
        return ", ".join(names[:_NAMED]) + (sentence(" and {more} more", more=more) if more > 0 else "")

    def _new(self, applied: frozenset[int]) -> dict[str, str | None]:
        pins = self.pins(applied)
        return pins if self.cumulative else {self.changes[at].package: self.changes[at].after for at in sorted(applied)}


def _plan(maker: StackMaker, wanted: NewPackages | ReleaseRange) -> _Stacks:
    try:
        old = maker.old()
        if isinstance(wanted, ReleaseRange):
            old = maker.make({wanted.package: wanted.first}, "old-stack")
            releases = maker.releases(old, wanted)
            changes = [
                PackageChange(package=wanted.package, before=before, after=after)
                for before, after in itertools.pairwise(releases)
            ]
            return _Stacks(old, changes, cumulative=True)
    except StackError as error:
        raise MeasuringError(
            f"the old stack cannot be installed: {error}; see {maker.logs / 'old-stack.log'}"
        ) from error
    before = versions_in(old, wanted.versions)
    changes = [
        PackageChange(package=package, before=before[package], after=after)
        for package, after in wanted.versions.items()
        if before[package] != after
    ]
    if not changes:
        raise UsageError("the old stack has all of these versions already: there is nothing to bisect")
    return _Stacks(old, changes, cumulative=False)


# --- the gates


@dataclass
class _Search:
    """Asks gates about sets of changes, and keeps what they answered."""

    directory: Path
    options: CheckOptions
    check: Check
    progress: Progress
    maker: StackMaker
    stacks: _Stacks
    tried: list[TriedStack] = field(default_factory=list)
    decisions: dict[int, DecisionDocument] = field(default_factory=dict)
    followed: frozenset[str] = frozenset()

    def ask(self, applied: frozenset[int]) -> Answer:
        """Whether the old stack with these changes is slower than the old stack."""
        number = len(self.tried) + 1
        stack = TriedStack(changes=sorted(applied), answer="impossible")
        try:
            python = self.maker.make(self.stacks.pins(applied), f"stack-{number:02}")
        except StackError as error:
            stack = msgspec.structs.replace(stack, reason=str(error))
        else:
            stack = self._gate(python, stack, f"gates/{number:02}")
        self.tried.append(stack)
        self.progress.note(f"{number}. {self.stacks.words(applied)}: {sentence(_WORDS[stack.answer])}")
        return stack.answer

    def _gate(self, python: Path, stack: TriedStack, folder: str) -> TriedStack:
        interpreters = GivenInterpreters(self.stacks.old, python)
        options = replace(
            self.options,
            out=self.options.out / folder,
            interpreters=interpreters,
            comparing="stack",
            steps=_DECIDING_STEPS if self.options.steps is None else self.options.steps,
        )
        decision = self.check(self.directory, options, self.progress)
        if not self.tried:
            self.followed = exact_regressions(decision)
        repeated = answer_of(decision, self.followed) == "undecided"
        if repeated:
            self.progress.note(
                sentence("inconclusive; once more with {times} times the budget", times=f"{MORE_BUDGET:g}")
            )
            decision = self.check(self.directory, replace(options, budgets=MORE_BUDGET), self.progress)
        self.decisions[len(self.tried)] = decision
        failure = next((failure for failure in decision.failures if failure.side == "head"), None)
        answer = answer_of(decision, self.followed)
        reason = english(as_message(failure.error.message)) if failure and answer == "impossible" else None
        return msgspec.structs.replace(stack, answer=answer, folder=folder, repeated=repeated, reason=reason)

    def deciding(self, found: Culprits) -> int | None:
        """The gate whose comment shows the result: of the smallest slow stack, else the last one."""
        gates = [position for position, stack in enumerate(self.tried) if stack.folder]
        slow = [position for position in gates if self.tried[position].answer == "slow"]
        if found.outcome == "found":
            return min(slow, key=lambda position: len(self.tried[position].changes))
        return gates[-1] if gates else None


def exact_regressions(decision: DecisionDocument) -> frozenset[str]:
    """The exact counters that regressed in the gate of all changes together: a search that follows them meets no noise."""
    regressed = _regressed(decision)
    return frozenset(_name(one) for one in decision.comparisons if one.method == "exact" and _name(one) in regressed)


def answer_of(decision: DecisionDocument, followed: frozenset[str] = frozenset()) -> Answer:
    """What a gate says of the new stack. Raises MeasuringError where the old one cannot be measured.

    With exact counters to be ``followed`` they alone answer. Else any regression does, even if the verdict is INCONCLUSIVE for
    something else, as in a check: what else is open cannot undo it.
    """
    regressed = _regressed(decision)
    if regressed & followed if followed else regressed:
        return "slow"
    unmoved = {_name(one) for one in decision.comparisons if one.outcome in ("unchanged", "improved")}
    if followed <= unmoved if followed else decision.verdict != "INCONCLUSIVE":
        return "fast"
    if base := next((failure for failure in decision.failures if failure.side == "base"), None):
        raise MeasuringError(f"the old stack cannot be measured: {base.what} of workload {base.workload} fails")
    return "impossible" if any(failure.side == "head" for failure in decision.failures) else "undecided"


def _regressed(decision: DecisionDocument) -> frozenset[str]:
    return frozenset(_name(one) for one in decision.comparisons if one.gating and one.outcome == "regressed")


def _name(comparison: Comparison) -> str:
    place = f"{comparison.workload}/{comparison.shape}" if comparison.shape else comparison.workload
    return f"{place} {comparison.metric}"

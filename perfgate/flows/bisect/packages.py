"""The states between two software stacks: some packages, or one package's releases, in their new versions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.document.bisection import PackageChange
from perfgate.errors import MeasuringError, StackError, UsageError
from perfgate.flows.bisect.request import Pins, ReleaseRange
from perfgate.flows.bisect.search import ImpossibleStateError, TrialSides
from perfgate.flows.bisect.stacks import StackMaker, versions_in
from perfgate.locale import sentence

_NAMED = 4


@dataclass(frozen=True)
class PackageStates:
    """The interpreter of the old stack, and the changes that lead to the new one."""

    maker: StackMaker
    old: Path
    changes: Sequence[PackageChange]
    cumulative: bool

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:
        pins: dict[str, str | None] = {}
        if not self.cumulative:  # the other packages stay at their old versions
            pins = {change.package: change.before for change in self.changes}
        pins.update(self._new(applied))
        try:
            python = self.maker.make(pins, f"stack-{number:02}")
        except StackError as error:
            raise ImpossibleStateError(str(error)) from error
        return TrialSides(base_python=self.old, head_python=python, comparing="stack")

    def words(self, applied: frozenset[int]) -> str:
        names: list[str] = []
        for package, version in self._new(applied).items():
            if version:
                names.append(f"{package} {version}")
            else:
                names.append(sentence("without {package}", package=package))
        words, more = ", ".join(names[:_NAMED]), len(names) - _NAMED
        if more > 0:
            words += sentence(" and {more} more", more=more)
        return words

    def _new(self, applied: frozenset[int]) -> dict[str, str | None]:
        if self.cumulative:
            applied = frozenset({max(applied)})
        versions: dict[str, str | None] = {}
        for position in sorted(applied):
            change = self.changes[position]
            versions[change.package] = change.after
        return versions


def states_between(maker: StackMaker, versions: Pins | ReleaseRange) -> PackageStates:
    """The states from the old stack to the wanted versions, or over the releases between two of them.

    Raises UsageError if there is nothing to bisect, and MeasuringError if the old stack or the package index fails.
    """
    try:
        old = maker.old()
        if isinstance(versions, ReleaseRange):
            old = maker.make({versions.package: versions.first}, "old-stack")
            releases = maker.releases(old, versions)
            steps: list[PackageChange] = []
            for earlier, later in itertools.pairwise(releases):
                steps.append(
                    PackageChange(package=versions.package, before=earlier, after=later)
                )
            return PackageStates(maker, old, steps, cumulative=True)
    except StackError as error:
        raise MeasuringError(
            "the old stack cannot be installed: {error}; see {log}",
            error=error,
            log=maker.logs / "old-stack.log",
        ) from error
    before = versions_in(old, versions)
    changes: list[PackageChange] = []
    for package, after in versions.items():
        if before[package] != after:
            changes.append(
                PackageChange(package=package, before=before[package], after=after)
            )
    if not changes:
        raise UsageError(
            "the old stack has all of these versions already: there is nothing to bisect"
        )
    return PackageStates(maker, old, changes, cumulative=False)

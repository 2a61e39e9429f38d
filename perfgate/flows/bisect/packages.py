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
        pins = self._new(applied)
        if not self.cumulative:  # the other packages stay at their old versions
            pins = {
                change.package: change.after if at in applied else change.before
                for at, change in enumerate(self.changes)
            }
        try:
            python = self.maker.make(pins, f"stack-{number:02}")
        except StackError as error:
            raise ImpossibleStateError(str(error)) from error
        return TrialSides(base_python=self.old, head_python=python, comparing="stack")

    def words(self, applied: frozenset[int]) -> str:
        names = [
            f"{package} {version}" if version else sentence("without {package}", package=package)
            for package, version in self._new(applied).items()
        ]
        more = len(names) - _NAMED
        return ", ".join(names[:_NAMED]) + (sentence(" and {more} more", more=more) if more > 0 else "")

    def _new(self, applied: frozenset[int]) -> dict[str, str | None]:
        newest = [max(applied)] if self.cumulative else sorted(applied)
        return {self.changes[position].package: self.changes[position].after for position in newest}


def states_between(maker: StackMaker, versions: Pins | ReleaseRange) -> PackageStates:
    """The states from the old stack to the wanted versions, or over the releases between two of them.

    Raises UsageError if there is nothing to bisect, and MeasuringError if the old stack or the package index fails.
    """
    try:
        old = maker.old()
        if isinstance(versions, ReleaseRange):
            old = maker.make({versions.package: versions.first}, "old-stack")
            releases = maker.releases(old, versions)
            steps = [
                PackageChange(package=versions.package, before=before, after=after)
                for before, after in itertools.pairwise(releases)
            ]
            return PackageStates(maker, old, steps, cumulative=True)
    except StackError as error:
        raise MeasuringError(
            "the old stack cannot be installed: {error}; see {log}", error=error, log=maker.logs / "old-stack.log"
        ) from error
    before = versions_in(old, versions)
    changes = [
        PackageChange(package=package, before=before[package], after=after)
        for package, after in versions.items()
        if before[package] != after
    ]
    if not changes:
        raise UsageError("the old stack has all of these versions already: there is nothing to bisect")
    return PackageStates(maker, old, changes, cumulative=False)

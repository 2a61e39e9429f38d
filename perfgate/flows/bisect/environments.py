"""The states between two software stacks.

They have some packages in new versions, or are environments in a given order:
releases of a package, interpreters, sets of packages, or versions that shell lines
give Python.
"""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.conductor.workers.interpreters import RUNNING, check_interpreter
from perfgate.document.bisection import EnvironmentChange, PackageChange
from perfgate.errors import MeasuringError, StackError, UsageError
from perfgate.flows.bisect.request import (
    PLACEHOLDER,
    EnvironmentList,
    InterpreterList,
    LaunchedVersions,
    PackageSets,
    Pins,
    ReleaseRange,
)
from perfgate.flows.bisect.search import States, TrialSides
from perfgate.flows.bisect.stacks import StackMaker, versions_in
from perfgate.locale import sentence

# The arguments of Python in shell lines that start it themselves, e.g. in a container.
_ARGUMENTS = '"$@"'
_NAMED = 4


@dataclass(kw_only=True)
class EnvironmentStates(States):
    """Environments by their names, oldest first; ``make`` gives the interpreter of one
    by its position.

    It raises StackError if the environment cannot be used.
    """

    changes: Sequence[EnvironmentChange]
    make: Callable[[int], Path]
    old: Path

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:  # noqa: ARG002 - each has one interpreter only
        new = self.make(max(applied) + 1)
        return TrialSides(base_python=self.old, head_python=new, comparing="stack")

    def words(self, applied: frozenset[int]) -> str:
        return self.changes[max(applied)].after


@dataclass(kw_only=True)
class PackageStates(States):
    """The packages of a new stack, and the interpreter of the old one."""

    changes: Sequence[PackageChange]
    maker: StackMaker
    old: Path

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:
        pins: dict[str, str | None] = {}
        if not self.cumulative:  # the other packages stay at their old versions
            pins = {change.package: change.before for change in self.changes}
        pins.update(self._new(applied))
        python = self.maker.make(pins, f"stack-{number:02}")
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


def states_between(
    maker: StackMaker, versions: Pins | ReleaseRange | EnvironmentList, folder: Path
) -> States:
    """The states from the old stack to the new one.

    What starts an environment lies in ``folder``.

    Raises UsageError if there is nothing to bisect, or for an interpreter that does not
    exist, and MeasuringError if the old stack or the package index fails.
    """
    if not isinstance(versions, (dict, ReleaseRange)):
        return _environments(maker, versions, folder)
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
            return PackageStates(maker=maker, old=old, changes=steps)
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
    return PackageStates(maker=maker, old=old, changes=changes, cumulative=False)


def _environments(
    maker: StackMaker, environments: EnvironmentList, folder: Path
) -> EnvironmentStates:
    names, make = _recipe(maker, environments, folder)
    try:
        old = make(0)
    except StackError as error:
        raise MeasuringError(
            "the old environment {name} cannot be used: {error}",
            name=names[0],
            error=error,
        ) from error
    changes = [
        EnvironmentChange(before=before, after=after)
        for before, after in itertools.pairwise(names)
    ]
    return EnvironmentStates(changes=changes, make=make, old=old)


def _recipe(
    maker: StackMaker, environments: EnvironmentList, folder: Path
) -> tuple[Sequence[str], Callable[[int], Path]]:
    """The names of the environments, and the function that gives the interpreter of
    each.
    """
    if isinstance(environments, InterpreterList):
        pythons = [
            check_interpreter(python, "--between") for python in environments.pythons
        ]
        return [str(python) for python in environments.pythons], lambda at: _tried(
            pythons[at]
        )
    if isinstance(environments, PackageSets):
        names: list[str] = []
        for pins in environments.sets:
            names.append(
                " ".join(f"{package}=={version}" for package, version in pins.items())
            )
        return names, lambda at: maker.make(
            dict(environments.sets[at]), f"environment-{at:02}"
        )
    return environments.versions, lambda at: _tried(
        _launcher(folder / f"{at:02}", environments, at)
    )


def _launcher(folder: Path, launched: LaunchedVersions, at: int) -> Path:
    """An executable file that stands for an interpreter: it makes the environment, and
    becomes Python in it.

    It keeps the process and its open files, by which a worker talks to perfgate.
    """
    lines = launched.lines.replace(PLACEHOLDER, launched.versions[at])
    if _ARGUMENTS not in lines:
        # A script that is absent or fails would otherwise leave the environment of the
        # machine.
        lines = f"{{ {lines}\n}} || exit\nexec {shlex.quote(str(RUNNING))} {_ARGUMENTS}"
    folder.mkdir(parents=True, exist_ok=True)
    launcher = folder / "python"
    launcher.write_text(f"#!/usr/bin/env bash\n{lines}\n", encoding="utf-8")
    launcher.chmod(0o755)
    return launcher


def _tried(python: Path) -> Path:
    """The interpreter, once it has started.

    Raises StackError with its last words if it does not.
    """
    try:
        versions_in(python, ())
    except (MeasuringError, OSError) as error:
        raise StackError("{error}", error=error) from error
    return python

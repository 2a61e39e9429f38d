"""The states between two environments: interpreters, sets of packages, or versions that shell lines give Python."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from perfgate.conductor.workers.interpreters import RUNNING, check_interpreter
from perfgate.document.bisection import EnvironmentChange
from perfgate.errors import MeasuringError, StackError
from perfgate.flows.bisect.request import (
    PLACEHOLDER,
    EnvironmentList,
    InterpreterList,
    LaunchedVersions,
    PackageSets,
)
from perfgate.flows.bisect.search import ImpossibleStateError, TrialSides
from perfgate.flows.bisect.stacks import StackMaker, versions_in

# The arguments of Python in shell lines that start it themselves, e.g. in a container.
_ARGUMENTS = '"$@"'


@dataclass(frozen=True)
class EnvironmentStates:
    """Environments by their names, oldest first; ``make`` gives the interpreter of one by its position.

    It raises StackError if the environment cannot be used.
    """

    names: Sequence[str]
    make: Callable[[int], Path]
    old: Path
    cumulative = True

    @property
    def changes(self) -> Sequence[EnvironmentChange]:
        return [
            EnvironmentChange(before=before, after=after)
            for before, after in itertools.pairwise(self.names)
        ]

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:  # noqa: ARG002 - each has one interpreter only
        try:
            new = self.make(max(applied) + 1)
        except StackError as error:
            raise ImpossibleStateError(str(error)) from error
        return TrialSides(base_python=self.old, head_python=new, comparing="stack")

    def words(self, applied: frozenset[int]) -> str:
        return self.names[max(applied) + 1]


def states_between(
    maker: StackMaker, environments: EnvironmentList, folder: Path
) -> EnvironmentStates:
    """The states of a list of environments; what starts them lies in ``folder``.

    Raises UsageError for an interpreter that does not exist, and MeasuringError if the old environment cannot be used.
    """
    names, make = _recipe(maker, environments, folder)
    try:
        old = make(0)
    except StackError as error:
        raise MeasuringError(
            "the old environment {name} cannot be used: {error}",
            name=names[0],
            error=error,
        ) from error
    return EnvironmentStates(names, make, old)


def _recipe(
    maker: StackMaker, environments: EnvironmentList, folder: Path
) -> tuple[Sequence[str], Callable[[int], Path]]:
    """The names of the environments, and the function that gives the interpreter of each."""
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
    """An executable file that stands for an interpreter: it makes the environment, and becomes Python in it.

    It keeps the process and its open files, by which a worker talks to perfgate.
    """
    lines = launched.lines.replace(PLACEHOLDER, launched.versions[at])
    if _ARGUMENTS not in lines:
        # A script that is absent or fails would otherwise leave the environment of the machine.
        lines = f"{{ {lines}\n}} || exit\nexec {shlex.quote(str(RUNNING))} {_ARGUMENTS}"
    folder.mkdir(parents=True, exist_ok=True)
    launcher = folder / "python"
    launcher.write_text(f"#!/usr/bin/env bash\n{lines}\n", encoding="utf-8")
    launcher.chmod(0o755)
    return launcher


def _tried(python: Path) -> Path:
    """The interpreter, once it has started. Raises StackError with its last words if it does not."""
    try:
        versions_in(python, ())
    except (MeasuringError, OSError) as error:
        raise StackError("{error}", error=error) from error
    return python

"""The bisection document: which of several packages, or releases of one, makes the workload slower, and all that was tried."""

from __future__ import annotations

from typing import Literal

import msgspec

from perfgate.stats.culprits import Answer, Outcome

BISECTION_SCHEMA: Literal["perfgate/bisection"] = "perfgate/bisection"
BISECTION_SCHEMA_VERSION = 1


class PackageChange(msgspec.Struct, frozen=True, kw_only=True):
    """A package with its old and its new version; ``before`` is None for one that the old stack does not have."""

    package: str
    before: str | None
    after: str

    def __str__(self) -> str:
        return f"{self.package}=={self.after}"


class TriedStack(msgspec.Struct, frozen=True, kw_only=True):
    """The old stack with some of the changes, and what a gate of the old stack against it answered.

    ``changes`` are positions in the document's list. ``folder`` holds the gate's documents and comment, below that of this
    document; None where the stack could not be installed. ``repeated`` is set where a first gate was inconclusive and a second
    one had more time. ``reason`` is why the stack could not be tried, in the words of pip or of the project's setup.
    """

    changes: list[int]
    answer: Answer
    folder: str | None = None
    repeated: bool = False
    reason: str | None = None


class BisectionDocument(msgspec.Struct, frozen=True, kw_only=True):
    """What a bisection of packages found.

    With ``cumulative`` the changes are consecutive releases of one package. ``culprits`` are positions in ``changes``: the
    lists are slow together only, and the members of one list could not be tried apart. ``suspects`` are what is left where a
    gate could not decide. ``followed`` are the exact counters that regress with all changes together, and so alone decide
    about each stack; where there are none, any regression does. ``deciding`` is the position in ``tried`` of the gate whose
    comment shows the result.
    """

    commit: str
    perfgate_version: str
    changes: list[PackageChange]
    cumulative: bool
    outcome: Outcome
    culprits: list[list[int]]
    suspects: list[int]
    followed: list[str]
    tried: list[TriedStack]
    deciding: int | None
    duration: float
    schema: Literal["perfgate/bisection"] = BISECTION_SCHEMA
    schema_version: int = BISECTION_SCHEMA_VERSION

    @property
    def gates(self) -> int:
        """How many gates were run, repetitions included."""
        return sum(1 + stack.repeated for stack in self.tried if stack.folder)

"""The bisection document: which of several commits, packages or environments makes the
workload slower, and all trials.
"""

from __future__ import annotations

from typing import Literal

from perfgate.document.records import FrozenStruct
from perfgate.stats.culprits import Answer, Outcome

# The name of the document in the folder of a bisection.
BISECTION_FILE = "bisection.json"

# The source of a trial's answer: its own gate, exact counters without a gate, counters
# of stored runs, or nothing if the state could not be made.
AnsweredBy = Literal["gate", "count", "store", "nothing"]


class PackageChange(FrozenStruct, kw_only=True, tag="package", tag_field="kind"):
    """A package with its old and its new version; ``before`` is None for one that the
    old stack does not have.
    """

    package: str
    before: str | None
    after: str


class CommitChange(FrozenStruct, kw_only=True, tag="commit", tag_field="kind"):
    """A commit of the searched branch; ``before`` is the commit that it follows there."""

    commit: str
    before: str
    subject: str
    author: str


class EnvironmentChange(
    FrozenStruct, kw_only=True, tag="environment", tag_field="kind"
):
    """The step from one environment of an ordered list to the next, both by their names
    in the list.
    """

    before: str
    after: str


class BisectionTrial(FrozenStruct, kw_only=True):
    """One trial: the old state with some of the changes applied, compared with the old
    state.

    ``changes`` are positions in the document's list. ``folder`` holds the gate's
    documents and comment, below the folder of this document; None if no gate ran.
    ``repeated`` is set if a first gate was inconclusive and a second one ran.
    ``reason`` is why the state could not be tried, in the words of git, pip or the
    workload. ``error`` bounds the probability that the answer is wrong: 0 for exact
    counters.
    """

    changes: list[int]
    answer: Answer
    answered_by: AnsweredBy = "nothing"
    folder: str | None = None
    repeated: bool = False
    reason: str | None = None
    error: float = 0.0


class SearchedChanges(FrozenStruct, kw_only=True):
    """The changes among which a bisection looks for culprits."""

    # The commit of all stacks, or the last of the searched commits.
    commit: str
    # The commit before the first searched one; None for stacks.
    good: str | None = None
    changes: list[PackageChange | CommitChange | EnvironmentChange]
    # Whether a change contains the changes before it.
    cumulative: bool
    # Commits that change no code of the workload; they are not among the changes.
    irrelevant: int = 0


class BisectionDocument(FrozenStruct, kw_only=True):
    """The result of a bisection."""

    perfgate_version: str
    searched: SearchedChanges
    outcome: Outcome
    # Positions among the changes. The lists are slow only together, and the members of
    # one list could not be tried apart.
    culprits: list[list[int]]
    # Positions that remain if a gate could not decide.
    suspects: list[int]
    # The only metrics that decide about each state: the exact counters that regress
    # with all changes together, or else the time that moved most clearly. Empty: any
    # regression decides.
    followed: list[str]
    tried: list[BisectionTrial]
    # The position in ``tried`` of the gate with the comment that shows the result.
    deciding: int | None
    duration: float
    # A gate of the culprit against the state just before it; None if that comparison
    # was made already.
    confirmation: BisectionTrial | None = None
    # Bounds the probability that any answer of the search is wrong.
    error: float = 0.0
    schema: Literal["perfgate/bisection"] = "perfgate/bisection"
    schema_version: int = 1

    @property
    def gates(self) -> int:
        """How many gates were run, repetitions included."""
        trials = [*self.tried, *([self.confirmation] if self.confirmation else [])]
        return sum(
            1 + trial.repeated for trial in trials if trial.answered_by == "gate"
        )

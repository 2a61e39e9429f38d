"""The search for culprits by gates: the trials, the followed signal, and the probability that any answer is wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from perfgate.document.bisection import BisectionTrial, CommitChange, EnvironmentChange, PackageChange
from perfgate.document.budget import PlacePattern
from perfgate.document.decision import Comparing, DecisionDocument
from perfgate.document.message import as_message, english
from perfgate.errors import ConfigError, MachineBusyError, MeasuringError, RepositoryError, SetUpError
from perfgate.flows.bisect.answers import (
    OldStateError,
    Signal,
    TrialReading,
    read_first,
    read_last,
    read_next,
    signal_of,
)
from perfgate.flows.shared.doors import Check, Progress
from perfgate.flows.shared.options import NONE_GIVEN, CheckOptions, GivenInterpreters
from perfgate.locale import sentence
from perfgate.stats.culprits import Answer, Culprits

# An inconclusive gate is repeated once, with its budget multiplied by this.
MORE_BUDGET = 3.0
_LOOKS = 2
# The share of the allowed error that the gate of all changes together may use, because it costs the most to repeat.
_SHARE_OF_FIRST = 0.5
_WORDS = {"slow": "slower", "fast": "not slower", "undecided": "not decided", "impossible": "cannot be tried"}


class ImpossibleStateError(Exception):
    """A state cannot be made; the text gives the reason."""


class TrialSides(NamedTuple):
    """The two sides of a trial: two commits, or two interpreters under one commit."""

    base: str | None = None
    head: str | None = None
    interpreters: GivenInterpreters = NONE_GIVEN
    comparing: Comparing = "code"


class States(Protocol):
    """The changes that lead from the old state to the new one, and the comparison of a state with some of them to the old."""

    @property
    def changes(self) -> Sequence[PackageChange] | Sequence[CommitChange] | Sequence[EnvironmentChange]: ...

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:
        """The old state and the one with these changes. Raises ImpossibleStateError if it cannot be made."""
        ...

    def words(self, applied: frozenset[int]) -> str: ...


class StoredStates(States, Protocol):
    """States with possible answers in stored runs."""

    def follow(self, signal: Signal, decision: DecisionDocument, folder: Path) -> None: ...

    def stored_answer(self, applied: frozenset[int]) -> Answer | None: ...


@dataclass
class Search:
    """Runs gates on sets of changes, and keeps their answers.

    ``pattern`` names the metrics to search for, None stands for all that gate; ``error`` is the allowed probability of a wrong
    result over the whole search.
    """

    directory: Path
    options: CheckOptions
    check: Check
    progress: Progress
    states: States
    stored: StoredStates | None = None
    pattern: PlacePattern | None = None
    error: float = 0.05
    tried: list[BisectionTrial] = field(default_factory=list)
    decisions: dict[str, DecisionDocument] = field(default_factory=dict)
    signal: Signal = field(default_factory=Signal)

    def ask(self, applied: frozenset[int]) -> Answer:
        """Whether the old state with these changes is slower than the old state."""
        number = len(self.tried) + 1
        trial = BisectionTrial(changes=sorted(applied), answer="impossible")
        known = self.stored.stored_answer(applied) if self.stored else None
        if known:
            trial = msgspec.structs.replace(trial, answer=known, answered_by="store")
        else:
            try:
                sides = self.states.sides(applied, number=number)
            except ImpossibleStateError as error:
                trial = msgspec.structs.replace(trial, reason=str(error))
            else:
                trial = self.gate(sides, trial, f"gates/{number:02}")
        self.tried.append(trial)
        self.progress.note(f"{number}. {self.states.words(applied)}: {sentence(_WORDS[trial.answer])}")
        return trial.answer

    def gate(self, sides: TrialSides, trial: BisectionTrial, folder: str) -> BisectionTrial:
        """Answer a trial by a gate, and by a longer one if the first is inconclusive.

        The first gate must succeed; a later state that cannot be measured is skipped. Raises MeasuringError if the old state
        cannot be measured, or the machine is not free.
        """
        options = replace(self.options, out=self.options.out / folder, always=True, **sides._asdict())
        try:
            decision = self.check(self.directory, options, self.progress)
            reading = self._read(decision)
            repeated = reading.answer == "undecided"
            if repeated:
                self.progress.note(
                    sentence("inconclusive; once more with {times} times the budget", times=f"{MORE_BUDGET:g}")
                )
                decision = self.check(self.directory, replace(options, budgets=MORE_BUDGET), self.progress)
                reading = self._read(decision)
                if reading.answer == "undecided" and self.signal.time:
                    reading = read_last(decision, self.signal, self.error - self.wrong())
        except (ConfigError, RepositoryError, MeasuringError, SetUpError) as error:
            if not self.tried or isinstance(error, (MachineBusyError, OldStateError)):
                raise
            return msgspec.structs.replace(trial, reason=str(error))
        self.decisions[folder] = decision
        if not self.tried and reading.answer == "slow":
            self.signal = signal_of(decision, self.pattern)
            if self.stored:
                self.stored.follow(self.signal, decision, options.out)
        failure = next((failure for failure in decision.failures if failure.side == "head"), None)
        is_impossible = failure and reading.answer == "impossible"
        return msgspec.structs.replace(
            trial,
            answer=reading.answer,
            answered_by="gate",
            folder=folder,
            repeated=repeated,
            reason=english(as_message(failure.error.message)) if failure and is_impossible else None,
            error=reading.error,
        )

    def _read(self, decision: DecisionDocument) -> TrialReading:
        if not self.tried or not (self.signal.counters or self.signal.time):
            return read_first(decision, self.pattern, allowed=self.error * _SHARE_OF_FIRST)
        return read_next(decision, self.signal, self._share())

    def _share(self) -> float:
        """The probability of error allowed to one look: what the first gate left, over both looks at all later gates."""
        planned = math.ceil(math.log2(max(2, len(self.states.changes)))) + 1
        return (self.error - self.tried[0].error) / (planned * _LOOKS)

    def wrong(self) -> float:
        """A bound on the probability that any answer is wrong: the sum over all answers."""
        return min(1.0, sum(trial.error for trial in self.tried if trial.answer in ("slow", "fast")))

    def deciding(self, found: Culprits) -> int | None:
        """The gate with the comment to show: that of the smallest slow state, else the last one."""
        gates = [position for position, trial in enumerate(self.tried) if trial.folder]
        slow = [position for position in gates if self.tried[position].answer == "slow"]
        if found.outcome == "found" and slow:
            return min(slow, key=lambda position: len(self.tried[position].changes))
        return gates[-1] if gates else None

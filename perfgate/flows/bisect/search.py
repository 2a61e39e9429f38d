"""The search for culprits by gates: the trials, the followed signal, and the
probability that any answer is wrong.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from msgspec import structs

from perfgate.catalogue.lookup import METRICS, measuring_step
from perfgate.document.bisection import (
    BisectionTrial,
    CommitChange,
    EnvironmentChange,
    PackageChange,
)
from perfgate.document.budget import PlacePattern
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import Comparing, DecisionDocument
from perfgate.document.message import as_message, english
from perfgate.errors import (
    ConfigError,
    MachineBusyError,
    MeasuringError,
    RepositoryError,
    SetUpError,
    StackError,
)
from perfgate.flows.bisect.answers import (
    OldStateError,
    Signal,
    TrialReading,
    place_of,
    read_counters,
    read_first,
    read_last,
    read_next,
    read_time,
    signal_of,
)
from perfgate.flows.shared.doors import Check, Progress
from perfgate.flows.shared.options import CheckOptions
from perfgate.locale import sentence
from perfgate.stats.culprits import Answer, Culprits

# An inconclusive gate of all changes together is repeated once, with its budget
# multiplied by this.
MORE_BUDGET = 3.0
# The budget of a later gate that follows a time: the budgets of both gates of all
# changes together.
_BUDGET_OF_A_TIME = 1.0 + MORE_BUDGET
# The share of the allowed error that the gate of all changes together may use, because
# it costs the most to repeat.
_SHARE_OF_FIRST = 0.5
# The methods of comparing times; a gate that counters decide has none of them.
_WORDS = {
    "slow": "slower",
    "fast": "not slower",
    "undecided": "undecided",
    "impossible": "cannot be tried",
}


class ImpossibleStateError(Exception):
    """A state cannot be made; the text gives the reason."""


class TrialSides(NamedTuple):
    """The two sides of a trial: two commits, or two interpreters under one commit."""

    base: str | None = None
    head: str | None = None
    base_python: Path | None = None
    head_python: Path | None = None
    comparing: Comparing = "code"


@dataclass(kw_only=True)
class States:
    """The changes that lead from the old state to the new one.

    A state has some of them, and is compared with the old one.

    ``cumulative`` states contain all changes up to their last one. ``good`` is the old
    commit, and ``irrelevant`` the number of commits that are not states.
    """

    changes: Sequence[PackageChange | CommitChange | EnvironmentChange]
    cumulative: bool = True
    good: str | None = None
    irrelevant: int = 0

    def sides(self, applied: frozenset[int], *, number: int) -> TrialSides:
        """The old state, and the state with these changes.

        Raises StackError or ImpossibleStateError if it cannot be made.
        """
        raise NotImplementedError

    def words(self, applied: frozenset[int]) -> str:
        raise NotImplementedError

    def sides_alone(self, position: int) -> TrialSides | None:  # noqa: ARG002
        """A change against the state just before it; None if there is no such pair."""
        return None

    def follow(self, signal: Signal, decision: DecisionDocument, folder: Path) -> None:
        """Remember the signal and the testbed of the gate in ``folder``.

        Only stored runs have answers by them.
        """

    def stored_answer(self, applied: frozenset[int]) -> Answer | None:  # noqa: ARG002
        """The answer for a state from stored runs of main; None if they have none."""
        return None


class Counting(Protocol):
    """Counts states without a gate."""

    def compare(
        self, sides: TrialSides, workloads: Collection[str]
    ) -> Sequence[Comparison] | None:
        """The exact counters of these workloads on both sides; None if only a gate can
        tell.

        Raises ImpossibleStateError if the code of the new state does not load.
        """
        ...


@dataclass
class Search:
    """Runs gates on sets of changes, or counts them, and keeps their answers.

    ``pattern`` names the metrics to search for, None stands for all that gate;
    ``error`` is the allowed probability of a wrong result over the whole search.
    Without a ``counter`` every state is gated.
    """

    directory: Path
    options: CheckOptions
    check: Check
    progress: Progress
    states: States
    counter: Counting | None = None
    pattern: PlacePattern | None = None
    error: float = 0.05
    tried: list[BisectionTrial] = field(default_factory=list)
    decisions: dict[str, DecisionDocument] = field(default_factory=dict)
    signal: Signal = field(default_factory=Signal)
    # The comparisons of the first gate: all changes together.
    _together: Sequence[Comparison] = ()

    def ask(self, applied: frozenset[int]) -> Answer:
        """Whether the old state with these changes is slower than the old state."""
        number = len(self.tried) + 1
        trial = BisectionTrial(changes=sorted(applied), answer="impossible")
        stored = self.states.stored_answer(applied)
        if stored:
            trial = structs.replace(trial, answer=stored, answered_by="store")
        else:
            try:
                sides = self.states.sides(applied, number=number)
                trial = self._count(sides, trial) or self._gate_of_trial(
                    sides, trial, _folder(number)
                )
            except (ImpossibleStateError, StackError) as error:
                trial = structs.replace(trial, reason=str(error))
        self.tried.append(trial)
        self.progress.note(
            f"{number}. {self.states.words(applied)}: {sentence(_WORDS[trial.answer])}"
        )
        return trial.answer

    def gate(
        self, sides: TrialSides, trial: BisectionTrial, folder: str
    ) -> BisectionTrial:
        """Answer a trial by a whole gate after the search; its comment is shown.

        Its failure does not take the result of the search away: the trial is impossible.
        """
        budgets = 1.0
        if self.signal.time:
            budgets = _BUDGET_OF_A_TIME
        options = replace(self.options, budgets=budgets)
        try:
            return self._gate(options, sides, trial, folder)
        except MeasuringError as error:
            return structs.replace(trial, answer="impossible", reason=str(error))

    def gate_smallest(self) -> None:
        """Gate the smallest slow state if no gate has compared its times yet: its
        comment is to show them.
        """
        slow = [trial for trial in self.tried if trial.answer == "slow"]
        trial = min(slow, key=lambda trial: len(trial.changes))
        position = self.tried.index(trial)
        decision = self.decisions.get(trial.folder or "")
        if decision is None or not any(
            isinstance(comparison, Paired) and comparison.evidence != "turn"
            for comparison in decision.comparisons
        ):
            sides = self.states.sides(frozenset(trial.changes), number=position + 1)
            gated = self.gate(sides, trial, _folder(position + 1))
            if gated.answer == "slow":
                self.tried[position] = gated

    def _count(self, sides: TrialSides, trial: BisectionTrial) -> BisectionTrial | None:
        """Answer a trial by the exact counters alone; None if a gate must."""
        if self.counter is None or not self.signal.counters:
            return None
        try:
            compared = self.counter.compare(sides, self.signal.workloads)
        except MachineBusyError:
            raise
        except (ConfigError, RepositoryError, MeasuringError, SetUpError):
            return None  # the gate finds the reason
        # Whether the old state has the followed counts that the first gate found.
        if compared is None or self._base_counts(compared) != self._base_counts(
            self._together
        ):
            return None
        answer = read_counters(compared, self.signal)
        return answer and structs.replace(trial, answer=answer, answered_by="count")

    def _base_counts(
        self, comparisons: Sequence[Comparison]
    ) -> dict[PlacePattern, float | None]:
        """The old state's value of each followed count."""
        counts: dict[PlacePattern, float | None] = {}
        for comparison in comparisons:
            place = place_of(comparison)
            if isinstance(comparison, Exact) and place in self.signal.counters:
                counts[place] = comparison.base
        return counts

    def _gate_of_trial(
        self, sides: TrialSides, trial: BisectionTrial, folder: str
    ) -> BisectionTrial:
        """Answer a trial by a gate that measures only what the search needs, and stops
        once it knows that.
        """
        options = replace(
            self.options, cost=not may_be_counted(self.pattern), checklist_budget=0.0
        )
        if self.signal.places:
            # The steps of the checklist that measure what is followed; the pairs
            # measure everything else.
            measured: set[int] = set()
            for comparison in self._together:
                is_of_pairs = isinstance(comparison, Paired) and comparison.is_of_call
                if place_of(comparison) in self.signal.places and not is_of_pairs:
                    measured.add(measuring_step(comparison.metric))
            steps = tuple(measured.intersection(self.options.steps or ()))
            options = replace(
                options,
                cost=not self.signal.counters,
                steps=tuple(sorted(steps)),
                workloads=tuple(sorted(self.signal.workloads)),
            )
        if self.signal.time:
            options = replace(options, budgets=_BUDGET_OF_A_TIME, decided=self._decides)
        return self._gate(options, sides, trial, folder)

    def _decides(self, comparisons: Sequence[Comparison], looks: Sequence[int]) -> bool:
        """Whether pairs may end: the answer is known, or two looks found no clock that
        times both sides fairly.
        """
        reading = read_time(comparisons, self.signal, looks, self._share())
        if reading is not None:
            return reading.answer != "undecided"
        pairs = 0
        for comparison in comparisons:
            if (
                isinstance(comparison, Paired)
                and place_of(comparison) == self.signal.time
            ):
                pairs = max(pairs, comparison.pairs or 0)
        return pairs >= looks[min(1, len(looks) - 1)]

    def _gate(
        self,
        options: CheckOptions,
        sides: TrialSides,
        trial: BisectionTrial,
        folder: str,
    ) -> BisectionTrial:
        """Answer a trial by a gate; by a second if the search's first is inconclusive
        or a later one gave no answer.

        The first gate must succeed; a later state that cannot be measured is skipped.
        Raises MeasuringError if the old state cannot be measured, or the machine is not
        free.
        """
        options = replace(
            options, out=self.options.out / folder, always=True, **sides._asdict()
        )
        try:
            decision = self.check(self.directory, options, self.progress)
            reading = self._read(decision)
            # A gate without an answer on the followed time is repeated, which is not a
            # second look at it.
            repeated = reading.answer == "undecided" and (
                self.signal.time is None
                or read_time(
                    decision.comparisons,
                    self.signal,
                    decision.procedure.policy.looks,
                    self._share(),
                )
                is None
            )
            if repeated:
                longer = options
                if not self.signal.time:
                    longer = replace(options, budgets=MORE_BUDGET)
                self.progress.note(
                    sentence(
                        "inconclusive; retrying with {times} times the budget",
                        times=f"{longer.budgets:g}",
                    )
                )
                decision = self.check(self.directory, longer, self.progress)
                reading = self._read(decision)
            if reading.answer == "undecided" and self.signal.time:
                reading = read_last(decision, self.signal, self.error - self.wrong())
        except (ConfigError, RepositoryError, MeasuringError, SetUpError) as error:
            if not self.tried or isinstance(error, (MachineBusyError, OldStateError)):
                raise
            return structs.replace(trial, reason=str(error))
        self.decisions[folder] = decision
        if not self.tried and reading.answer == "slow":
            self.signal = signal_of(decision, self.pattern)
            self._together = decision.comparisons
            self.states.follow(self.signal, decision, options.out)
        return _answered(trial, decision, reading, folder=folder, repeated=repeated)

    def _read(self, decision: DecisionDocument) -> TrialReading:
        if not self.tried or not self.signal.places:
            return read_first(
                decision, self.pattern, allowed=self.error * _SHARE_OF_FIRST
            )
        return read_next(decision, self.signal, self._share())

    def _share(self) -> float:
        """The probability of error allowed to one gate: what the first left, divided by
        all planned gates, less at the end.
        """
        planned = math.ceil(math.log2(max(2, len(self.states.changes)))) + 1
        return min(
            (self.error - self.tried[0].error) / planned, self.error - self.wrong()
        )

    def wrong(self) -> float:
        """A bound on the probability that any answer is wrong: the sum over all
        answers.
        """
        return min(
            1.0,
            sum(
                trial.error for trial in self.tried if trial.answer in ("slow", "fast")
            ),
        )

    def deciding(self, culprits: Culprits) -> int | None:
        """The gate with the comment to show: of the smallest slow state, else the last
        gate.
        """
        gated = [at for at, trial in enumerate(self.tried) if trial.folder]
        slow = [at for at in gated if self.tried[at].answer == "slow"]
        if culprits.outcome == "found" and slow:
            return min(slow, key=lambda at: len(self.tried[at].changes))
        return max(gated, default=None)


def may_be_counted(pattern: PlacePattern | None) -> bool:
    """Whether regressed counters can answer a search for these metrics, so that times
    need not be measured.
    """
    return pattern is None or (
        pattern.metric in METRICS and METRICS[pattern.metric].origin.counted
    )


def _answered(
    trial: BisectionTrial,
    decision: DecisionDocument,
    reading: TrialReading,
    *,
    folder: str,
    repeated: bool,
) -> BisectionTrial:
    reason = None
    for failure in decision.gaps.failures:
        if failure.side == "head" and reading.answer == "impossible":
            reason = english(as_message(failure.error.message))
            break
    return structs.replace(
        trial,
        answer=reading.answer,
        answered_by="gate",
        folder=folder,
        repeated=repeated,
        reason=reason,
        error=reading.error,
    )


def _folder(number: int) -> str:
    return f"gates/{number:02}"

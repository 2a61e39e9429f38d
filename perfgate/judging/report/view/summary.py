"""A decision by outcome: moved, worst and failed metrics.

It does not judge, rank or word them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import (
    Bound,
    Checked,
    Clock,
    Comparison,
    Outcome,
    Paired,
    Recorded,
)
from perfgate.document.decision import (
    DecisionDocument,
    Failure,
    HarnessAddition,
    HarnessChange,
    HarnessEdit,
    HarnessRemoval,
    NoiseFloor,
    StepComparison,
    StoredComparison,
    Suggestion,
    UnfitHarness,
    UnreadHarness,
    Verdict,
)
from perfgate.document.explanation import Cause, Explanation, OperatorDelta
from perfgate.document.message import Message
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.templates import Medium
from perfgate.judging.report.text.words import Linked
from perfgate.locale import Language


@dataclass(frozen=True)
class CommentContext:
    """Inputs of a comment or an issue that come from the CI job and not from documents."""

    # The HTML comment in the first line, by which we find our own comment.
    marker: str = ""
    # The only links are these, from the job's environment, and ``pages``.
    artifact_url: str | None = None
    report_url: str | None = None
    job_url: str | None = None
    # The addresses of kept files by their path, as listed by the forge.
    pages: Mapping[str, str] = field(default_factory=dict)
    # The address of a line of the head (``model.py:88``) on the forge.
    source: Callable[[str], str | None] | None = None
    # The command that repeats the check locally.
    reproduce: str | None = None
    # The comment that accepts a cause, from its number and metrics, in a repository
    # that obeys ``/perfgate`` comments.
    accept_order: Callable[[int, Sequence[str]], str | None] | None = None
    # The check's folder if the reader has it: a cause can then be accepted by its
    # number. "" is the default folder.
    folder: str | None = None
    language: Language = "en"


@dataclass(frozen=True)
class Summary:
    """A decision and its context, with the lists for the parts of a report; ``detail``
    limits the length of lists.
    """

    decision: DecisionDocument
    medium: Medium
    context: CommentContext = CommentContext()
    detail: int = 400

    def linked(self, line: str) -> str:
        """A line of the head with its address, if the forge is known and the line lies
        in the repository.
        """
        if self.context.source is not None:
            address = self.context.source(line)
            if address:
                return Linked(line, address)
        return line

    @property
    def verdict(self) -> Verdict:
        return self.decision.verdict

    @cached_property
    def metrics(self) -> list[Comparison]:
        """The comparisons that count as metrics: not single operators, which explain,
        nor untested numbers, which inform.
        """
        return [
            comparison
            for comparison in self.decision.comparisons
            if comparison.outcome != "informs" and not comparison.is_of_operator
        ]

    @cached_property
    def informing(self) -> list[Comparison]:
        """The numbers of both sides that no test compares, except in recordings."""
        return [
            comparison
            for comparison in self.decision.comparisons
            if comparison.outcome == "informs" and not isinstance(comparison, Recorded)
        ]

    @cached_property
    def recorded(self) -> list[Recorded]:
        """The times of two recordings that are only shown."""
        return [
            comparison
            for comparison in self.decision.comparisons
            if comparison.outcome == "informs" and isinstance(comparison, Recorded)
        ]

    @cached_property
    def regressed(self) -> list[Comparison]:
        """The regressed metrics, worst first; without any, the regressed operators."""
        return self._with_outcome("regressed") or self._with_outcome(
            "regressed", of_operators=True
        )

    @cached_property
    def improved(self) -> list[Comparison]:
        """The improved metrics, the largest improvement first."""
        return self._with_outcome("improved")

    @cached_property
    def unchanged(self) -> list[Comparison]:
        """The metrics that did not change, in document order."""
        return self._with_outcome("unchanged")

    @cached_property
    def inconclusive(self) -> list[Comparison]:
        """The undecided metrics: metrics that leave the verdict open first, then other
        gating metrics.

        The worst estimate leads.
        """
        return self._with_outcome("inconclusive")

    @cached_property
    def unjudged(self) -> list[Bound]:
        """The rules of perfgate.toml that the head could not be held to."""
        return [c for c in self.inconclusive if isinstance(c, Bound) and c.gating]

    @cached_property
    def not_comparable(self) -> list[Comparison]:
        return self._with_outcome("not_comparable")

    @cached_property
    def worst(self) -> Comparison | None:
        """The regression of the title: a broken rule or check, else a regression of the
        first block.

        Two recordings have no lines of a change, by which a block could lead: the first
        regression of all does.
        """
        gating = [comparison for comparison in self.regressed if comparison.gating]
        first = next(iter(gating or self.regressed), None)
        if first is None or isinstance(first, (Bound, Checked)):
            return first
        if self.decision.measured.recorded or not self.decision.explained.regressions:
            return first
        leading = self.comparisons_at(
            self.decision.explained.regressions[0].comparisons
        )
        if first in leading:
            return first
        for comparison in leading:
            if comparison.outcome == "regressed" and (comparison.gating or not gating):
                return comparison
        return first

    @property
    def leading_cause(self) -> Cause | None:
        """The cause of the title: the first block's, if the block is about the same
        regression.
        """
        worst = self.worst
        if worst is None:
            return None
        for regression in self.decision.explained.regressions[:1]:
            is_about_worst = any(
                c is worst for c in self.comparisons_at(regression.comparisons)
            )
            if is_about_worst and regression.causes:
                return self.decision.explained.causes[regression.causes[0]]
        return self.cause_of(worst)

    def comparisons_at(self, positions: Iterable[int]) -> list[Comparison]:
        return [self.decision.comparisons[at] for at in positions]

    @cached_property
    def tested_operators(self) -> list[OperatorDelta]:
        return [
            operator
            for operator in self.decision.explained.operators
            if operator.outcome != "untested"
        ]

    @cached_property
    def introduced(self) -> list[Suggestion]:
        """The suggestions on problems that the change introduced, each once."""
        distinct: dict[tuple[str, str, object], Suggestion] = {}
        for tip in self.decision.explained.suggestions:
            if tip.introduced:
                distinct.setdefault((tip.rule, word(tip.message), tip.line), tip)
        return list(distinct.values())

    def cause_of(self, comparison: Comparison) -> Cause | None:
        if comparison.cause is None:
            return None
        return self.decision.explained.causes[comparison.cause]

    def stored_beside(self, row: StepComparison) -> StoredComparison | None:
        """Main's stored runs of a number of the checklist."""
        return self._stored.get(_number_key(row))

    @cached_property
    def _stored(self) -> dict[tuple[object, ...], StoredComparison]:
        return {_number_key(entry): entry for entry in self.decision.checklist.stored}

    def clock_of(self, explained: Explanation) -> Clock:
        """The clock of the time that an explanation is about."""
        for comparison in self.decision.comparisons:
            is_same = (
                comparison.place == explained.place
                and comparison.metric == explained.metric
            )
            if is_same and isinstance(comparison, Paired):
                return comparison.clock
        return "wall"

    @cached_property
    def changed_places(self) -> frozenset[tuple[str, str]]:
        """The places in which a cause was found."""
        return frozenset(cause.place for cause in self.decision.explained.causes)

    @cached_property
    def causes(self) -> list[tuple[Cause, tuple[str, ...]]]:
        """The causes, each once, with all places of the same effect.

        Causes found by an operator's own test are left out: they are listed with the
        tested operators.
        """
        places: dict[int, dict[str, None]] = {}
        for number, cause in enumerate(self.decision.explained.causes):
            if not cause.tested:
                first = number
                if cause.same_as is not None:
                    first = cause.same_as
                places.setdefault(first, {})[place(*cause.place)] = None
        return [
            (self.decision.explained.causes[number], tuple(names))
            for number, names in places.items()
        ]

    @property
    def is_unread(self) -> bool:
        """Whether there were no documents to judge; base, testbed and pairs are then
        unknown.
        """
        return not self.is_measured and self.decision.sides.base.commit is None

    @property
    def is_measured(self) -> bool:
        """Whether anything was measured; testbed and pairs of a skipped change are
        unknown.
        """
        return self.decision.procedure.name != "none"

    @property
    def is_about_rules(self) -> bool:
        """Whether the head alone was held to the rules of perfgate.toml."""
        return self.decision.sides.comparing == "rules"

    def has_reason(self, rule: str) -> bool:
        return any(
            code_of(reason) == f"verdict.{rule}" for reason in self.decision.reasons
        )

    @property
    def is_about_harness(self) -> bool:
        """Whether the verdict is due to a changed workload file; failures are then its
        consequence.
        """
        return self.has_reason("harness")

    @cached_property
    def telling_harness_changes(self) -> list[HarnessChange]:
        """The effects of a changed workload file, first those that make a comparison
        impossible or may hide something.
        """
        ranks = (
            UnfitHarness,
            HarnessRemoval,
            UnreadHarness,
            HarnessEdit,
            HarnessAddition,
        )
        return sorted(
            self.decision.sides.harness_changes,
            key=lambda change: ranks.index(type(change)),
        )

    @property
    def harness_losses(self) -> list[HarnessChange]:
        """Those effects of a changed workload file that may hide something."""
        return [
            change
            for change in self.telling_harness_changes
            if not isinstance(change, HarnessAddition)
        ]

    @cached_property
    def failures(self) -> list[Failure]:
        """The failures of a whole side, head first: the change's author looks for their
        own first.
        """
        sides = [
            failure for failure in self.decision.gaps.failures if failure.side != "pair"
        ]
        return sorted(sides, key=lambda failure: failure.side != "head")

    @property
    def neither_side_runs(self) -> bool:
        """Whether every failure of the head occurs on the base too, so that the change
        is not to blame.
        """
        of_base = self._failed("base")
        of_head = self._failed("head")
        return bool(of_head) and of_head <= of_base

    def _failed(self, side: str) -> set[tuple[str, str]]:
        return {
            (failure.workload, failure.what)
            for failure in self.failures
            if failure.side == side
        }

    @cached_property
    def too_slow(self) -> list[Failure]:
        """The workloads that were counted and not timed, because their pairs would
        exceed the budget.
        """
        return [
            failure
            for failure in self.decision.gaps.failures
            if failure.error.lacks_time_for_pairs
        ]

    @cached_property
    def out_of_time(self) -> list[str]:
        """The workloads that were not measured to the end when the time was spent."""
        spent: dict[str, None] = {}
        for failure in self.decision.gaps.failures:
            if failure.error.is_out_of_time:
                spent[failure.workload] = None
        return list(spent)

    @cached_property
    def floor(self) -> NoiseFloor | None:
        """The job's noise floor: the largest of the metric that decides first, None
        without an A/A arm.
        """
        floors = self.decision.measured.noise_floors
        deciding = [floor for floor in floors if floor.metric == LATENCY]
        return max(deciding or floors, key=lambda floor: floor.floor, default=None)

    def _with_outcome(
        self, outcome: Outcome, *, of_operators: bool = False
    ) -> list[Comparison]:
        return [
            comparison
            for comparison in self.decision.comparisons
            if comparison.outcome == outcome
            and comparison.is_of_operator == of_operators
        ]


def code_of(message: Message | str | None) -> str:
    """The code of a message; empty for the text of another program."""
    if isinstance(message, Message):
        return message.code
    return ""


def _number_key(entry: StepComparison | StoredComparison) -> tuple[object, ...]:
    return (entry.workload, entry.shape, entry.metric, *sorted(entry.labels.items()))

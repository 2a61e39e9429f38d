"""The evidence on one workload between two looks: whether measuring goes on."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from perfgate.catalogue.lookup import MUST_DECIDE
from perfgate.catalogue.names import LATENCY, LOW_PRECISION_OPS
from perfgate.document.budget import judges_subroutines
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    Exact,
    NumberComparison,
    Paired,
    Recorded,
)
from perfgate.document.decision import Policy
from perfgate.document.run import RunDocument
from perfgate.document.samples import Replicate
from perfgate.judging.gate.compare.counters import is_differing_count
from perfgate.judging.gate.compare.gating import fails_alone
from perfgate.judging.gate.compare.judge import AlphaShares
from perfgate.judging.gate.compare.rule import MOST_PAIRS, leans_slower, single_interval
from perfgate.judging.gate.compare.session import compare_sides
from perfgate.judging.gate.compare.stretches import METRICS as OF_STRETCHES
from perfgate.judging.gate.compare.stretches import more_calls_would_help
from perfgate.judging.gate.evidence.blocks import deciding_clocks
from perfgate.judging.gate.evidence.effect import ASSUMED, StartLuck
from perfgate.judging.gate.evidence.index import Evidence, RunIndex, of_workload
from perfgate.judging.gate.evidence.numbers import NumberTable, Rules
from perfgate.judging.gate.evidence.pairs import paired_effects, pairs_of
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged
from perfgate.judging.gate.evidence.work_table import WorkTable


class Look:
    """The documents' evidence on one workload or job while it is measured; others in
    them are not judged, only counted.

    ``to_come`` workloads and jobs are measured after this one: a result must still hold
    when all share the gate's alpha. ``start_luck`` is that of main's stored runs.
    """

    def __init__(
        self,
        base: RunDocument,
        head: RunDocument,
        policy: Policy,
        *,
        workload: str,
        to_come: int = 0,
        start_luck: StartLuck = ASSUMED,
    ) -> None:
        subjects = 1 + len(RunIndex(head).subjects - {workload}) + to_come
        shares = AlphaShares.of_subjects(policy, subjects=subjects, interim=True)
        self._policy = policy
        evidence = Evidence(
            of_workload(base, workload), of_workload(head, workload), start_luck
        )
        self._moved = not evidence.unmoved
        numbers = NumberTable.of(evidence, Rules(policy))
        self._numbers = numbers.measured
        session = compare_sides(numbers, WorkTable(evidence), policy, shares)
        self.comparisons = session.comparisons
        # Then a difference of the head is not evidence.
        self.base_differs = any(floor.differs for floor in session.floors)
        self._is_invalid = bool(session.invalid)
        # Of the gating comparisons those that are undecided, that regressed, and that
        # fail the gate regardless of the times.
        self._open: list[Comparison] = []
        self._regressed: list[Comparison] = []
        self._failing: list[Comparison] = []
        self._paired: list[Paired] = []
        for comparison in self.comparisons:
            if isinstance(comparison, Paired):
                self._paired.append(comparison)
            if not comparison.gating:
                continue
            if comparison.outcome == "inconclusive":
                self._open.append(comparison)
            elif comparison.outcome == "regressed":
                self._regressed.append(comparison)
                if fails_alone(comparison, policy):
                    self._failing.append(comparison)

    # --- regressions and their causes

    def regressed(self) -> list[str]:
        return [comparison.metric for comparison in self._regressed]

    def differing_counts(self) -> list[str]:
        """The counts that differ between the sides, or between processes of the head
        alone.
        """
        return [
            comparison.metric
            for comparison in self.comparisons
            if is_differing_count(comparison)
        ]

    def is_settled_by_counters(self) -> bool:
        """Whether counters fail the gate regardless of the times, each regressed
        counter by itself.
        """
        for comparison in self._regressed:
            if not isinstance(comparison, Exact) or comparison not in self._failing:
                return False
        return bool(self._regressed)

    def fails_for_certain(self) -> bool:
        """Whether the gate fails regardless of the times: by a count or a rule that no
        time excuses.

        Lost precision may be why calls are faster, so their times must be known first.
        """
        for comparison in self._failing:
            if (
                isinstance(comparison, (Exact, Checked, Bound))
                and comparison.metric != LOW_PRECISION_OPS
            ):
                return True
        return False

    def names_would_help(self) -> bool:
        """Whether operators are judged, or something moved or looks worse, so that its
        cause needs a name.
        """
        if judges_subroutines(self._policy.tolerances):
            return True
        for comparison in self.comparisons:
            if comparison.outcome in ("regressed", "improved"):
                return True
        return any(
            isinstance(comparison, NumberComparison) and comparison.looks_worse
            for comparison in self._open
        )

    # --- pairs and stretches

    def more_pairs_would_help(self) -> bool:
        """Whether the verdict hangs on a time comparison that more pairs could decide.

        Besides comparisons that must be decided, this includes any that looks worse
        than tolerated but is not yet shown to be. A lean towards a regression is worth
        64 pairs, an undecided time every look, and so is a counter that only warns if
        calls are no slower. If a count fails the gate whatever the times are, they only
        show its cost: an interval that excludes "no change" is enough.
        """
        times = [time for time in self._times() if time.gating]
        measured = 0
        for time in times:
            if time.is_of_call:
                measured = max(measured, time.pairs or 0)
        failing = [
            comparison
            for comparison in self._failing
            if comparison.metric not in OF_STRETCHES
        ]
        if failing and measured >= self._policy.looks[:2][-1]:
            return False  # after the second look
        if any(isinstance(comparison, Exact) for comparison in failing):
            return any(map(self._has_open_cost, times))
        if any(map(self._is_awaited, times)):
            return True
        return any(
            isinstance(count, (Exact, Recorded)) and count.looks_worse
            for count in self._open
        )

    def _times(self) -> list[Paired]:
        """The paired numbers that stretches do not measure."""
        return [number for number in self._paired if number.metric not in OF_STRETCHES]

    def _has_open_cost(self, time: Paired) -> bool:
        return (
            time.metric in MUST_DECIDE
            and self._is_undecided(time)
            and not time.excludes_no_change
        )

    def _is_awaited(self, time: Paired) -> bool:
        """Whether more pairs are worth it for a time that is undecided or leans towards
        a regression.
        """
        leans = time.excluded is not None and leans_slower(
            time.worsening, time.tolerance or 0.0, pairs=time.pairs or 0
        )
        if not leans and not self._is_undecided(time):
            return False
        if time.metric in MUST_DECIDE:
            return True
        return time.outcome == "inconclusive" and time.looks_worse

    def _is_undecided(self, time: Paired) -> bool:
        """Whether a slowdown above the target is not excluded yet, or it improves by
        more than a first look can show.
        """
        if time.evidence == "turn":
            return False
        if time.excluded is None:
            return time.outcome == "inconclusive"
        sought, _ = margins_for_unchanged(
            self._policy, time.metric, time.place, moved=self._moved
        )
        if time.excluded > sought:
            return True
        return time.is_better and -time.worsening > (time.tolerance or 0.0)

    def pairs_needed(self) -> int | None:
        """About how many pairs would decide the open comparisons; None if that is not
        known.
        """
        times = [
            time for time in self._times() if time.is_of_call and time in self._open
        ]
        return _most_needed(times)

    def more_calls_would_help(self) -> bool:
        """Whether the mean of calls, or their stalls, look worse and further stretches
        may show it.

        Also if the gate fails already: its regressions may be accepted later, and the
        stalls are not.
        """
        return more_calls_would_help(self._numbers, self.comparisons)

    def rerun_would_help(self) -> bool:
        """Whether another job could add to this workload: it is undecided, or its times
        were invalid.
        """
        return (
            self._is_invalid
            or self.more_pairs_would_help()
            or self.more_calls_would_help()
        )

    # --- turns

    def repetitions_would_help(self) -> bool:
        """Whether a number of the checklist that a tolerance names is measured in turns
        and not yet decided.
        """
        for number in self._paired:
            is_repeated = number.evidence == "turn" and number.pairs
            if is_repeated and number.outcome == "inconclusive":
                return True
        return False

    def more_turns_would_help(self) -> bool:
        """Whether a number that the verdict of a job rests on is undecided.

        If the job fails already, by a number or a count, only numbers that look worse
        are waited for: they show its cost. The cost of different work or a wrong output
        does not matter.
        """
        return bool(self._open_numbers())

    def quads_needed(self) -> int | None:
        """About how many quads of a job would decide all numbers that are waited for;
        None if no number of quads would.
        """
        needed = _most_needed(self._open_numbers())
        if needed is None or needed >= MOST_PAIRS:
            return None
        return needed

    def _open_numbers(self) -> list[Paired]:
        if any(isinstance(comparison, Checked) for comparison in self._regressed):
            return []
        numbers = []
        for number in self._open:
            if (
                isinstance(number, Paired)
                and number.is_of_job
                and (number.looks_worse or not self._regressed)
            ):
                numbers.append(number)
        return numbers


def _most_needed(numbers: Iterable[Paired]) -> int | None:
    """The most pairs or quads that a number needs; None without any, or if one of them
    is not known.
    """
    most: int | None = None
    for number in numbers:
        if number.pairs_needed is None:
            return None
        most = max(most or 0, number.pairs_needed)
    return most


# --- while pairs are measured, for display only


def interim_interval(
    base: Sequence[Replicate], head: Sequence[Replicate], workload: str
) -> tuple[float, float] | None:
    """The interval of head's slowdown relative to base on the shape that looks worst;
    None of fewer than six pairs.
    """
    pairs = pairs_of(base, head)[workload]
    clocks = deciding_clocks(base, head)
    intervals = []
    for place, preprocess in clocks:
        if place.workload == workload and not preprocess:
            effect = paired_effects(pairs, place, clocks).get(LATENCY)
            interval = effect and single_interval(effect.differences)
            if interval is not None:
                intervals.append((math.expm1(interval.low), math.expm1(interval.high)))
    return max(intervals, key=lambda ends: ends[1], default=None)

"""The evidence on one workload between two looks: whether measuring goes on."""

from __future__ import annotations

from perfgate.catalogue.lookup import MUST_DECIDE
from perfgate.catalogue.names import LOW_PRECISION_OPS
from perfgate.document.budget import judges_subroutines
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, NumberComparison, Paired, Recorded
from perfgate.document.decision import Policy
from perfgate.document.run import RunDocument
from perfgate.judging.gate.compare.alpha import subjects_of
from perfgate.judging.gate.compare.counters import is_differing_count
from perfgate.judging.gate.compare.harmless_counts import fails_alone
from perfgate.judging.gate.compare.rule import MOST_PAIRS, leans_slower
from perfgate.judging.gate.compare.sides import compare_sides, shares_of
from perfgate.judging.gate.compare.stretches import FAMILY as STRETCH
from perfgate.judging.gate.compare.stretches import more_calls_would_help
from perfgate.judging.gate.evidence.index import Evidence, of_workload
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged


class Look:
    """The documents' evidence on one workload or job while it is measured; others in them are not judged, only counted.

    ``to_come`` workloads and jobs are measured after this one: a result must still hold when all share the gate's alpha.
    """

    def __init__(
        self, base: RunDocument, head: RunDocument, policy: Policy, *, workload: str, to_come: int = 0
    ) -> None:
        shares = shares_of(policy, subjects=1 + subjects_of(head, but=[workload]) + to_come)
        evidence = Evidence(of_workload(base, workload), of_workload(head, workload))
        self.comparisons, floors, invalid = compare_sides(evidence, policy, shares, {}, interim=True)
        self._policy = policy
        self._evidence = evidence
        self._moved = not evidence.kept_layout
        self._is_invalid = bool(invalid)
        # A difference of the head would prove nothing.
        self.base_differs = any(floor.differs for floor in floors)

    def regressed(self) -> list[str]:
        return [c.metric for c in self._regressed()]

    def differing_counts(self) -> list[str]:
        """The counts that differ between the sides, or between processes of the head alone."""
        return [c.metric for c in self.comparisons if is_differing_count(c)]

    def is_settled_by_counters(self) -> bool:
        """Whether counters fail the gate whatever the times are, each of those that regressed by itself."""
        regressed = self._regressed()
        return bool(regressed) and all(isinstance(c, Exact) and fails_alone(c, self._policy) for c in regressed)

    def fails_for_certain(self) -> bool:
        """Whether the gate fails whatever the times are: by a count or a rule that none excuses.

        Lost precision may be why calls are faster, so their times must be known first.
        """
        return any(
            isinstance(c, (Exact, Checked, Bound)) and c.metric != LOW_PRECISION_OPS and fails_alone(c, self._policy)
            for c in self._regressed()
        )

    def _regressed(self) -> list[Comparison]:
        return [c for c in self.comparisons if c.gating and c.outcome == "regressed"]

    def more_pairs_would_help(self) -> bool:
        """Whether the verdict hangs on a time comparison that more pairs could decide.

        Besides comparisons that must be decided, this includes any that looks worse than tolerated but is not yet shown to
        be. A time that must be decided is known well enough once the target slowdown is excluded, and not only a larger one,
        unless it leans towards a regression or looks like an improvement that no first look can show. A lean is worth 64 pairs,
        an undecided time every look. If a count fails the
        gate whatever the times are, they only show its cost: an interval that excludes "no change" is enough. A counter that
        only warns if calls are no slower is worth every look.
        """
        gating = [c for c in self.comparisons if c.gating and c.metric not in STRETCH.metrics]
        second_look = self._policy.looks[min(1, len(self._policy.looks) - 1)]
        times = [c for c in gating if isinstance(c, Paired)]
        measured = max((time.pairs or 0 for time in times if time.is_of_call), default=0)
        failing = [c for c in gating if c.outcome == "regressed" and fails_alone(c, self._policy)]
        if failing and measured >= second_look:
            return False
        undecided = [time for time in times if time.evidence != "turn" and self._is_undecided(time)]
        if any(isinstance(c, Exact) for c in failing):
            return any(time.metric in MUST_DECIDE and not time.excludes_no_change for time in undecided)
        undecided += [time for time in times if time.excluded is not None and _leans_slower(time)]
        others = [c for c in gating if isinstance(c, (Exact, Recorded)) and c.outcome == "inconclusive"]
        if any(time.metric in MUST_DECIDE for time in undecided):
            return True
        return any(c.outcome == "inconclusive" and c.looks_worse for c in (*undecided, *others))

    def pairs_needed(self) -> int | None:
        """About how many pairs would decide the open comparisons; None if that is not known."""
        paired = [c for c in self._paired if c.is_of_call and c.metric not in STRETCH.metrics]
        open_ones = [c for c in paired if c.gating and c.outcome == "inconclusive"]
        known = [c.pairs_needed for c in open_ones if c.pairs_needed is not None]
        return max(known) if known and len(known) == len(open_ones) else None

    def more_calls_would_help(self) -> bool:
        """Whether the mean of calls, or their stalls, look worse and further stretches may show it.

        Also where a gate fails already: what fails it may be accepted later, and the stalls are not.
        """
        return more_calls_would_help(self._evidence, self.comparisons)

    def repetitions_would_help(self) -> bool:
        """Whether a number of the checklist that a tolerance names is measured in turns and not yet decided."""
        return any(c.evidence == "turn" and c.outcome == "inconclusive" and c.pairs for c in self._paired)

    def more_turns_would_help(self) -> bool:
        """Whether a number that the verdict of a job rests on is undecided.

        If the job fails already, by a number or a count, only numbers that look worse are waited for: they show its cost. The
        cost of different work or a wrong output does not matter.
        """
        return bool(self._open_turns())

    def quads_needed(self) -> int | None:
        """About how many quads of a job would decide all numbers that are waited for; None if no number of quads would."""
        needed = [c.pairs_needed for c in self._open_turns()]
        known = [quads for quads in needed if quads is not None and quads < MOST_PAIRS]
        return max(known) if known and len(known) == len(needed) else None

    @property
    def _paired(self) -> list[Paired]:
        return [c for c in self.comparisons if isinstance(c, Paired)]

    def _open_turns(self) -> list[Paired]:
        regressed = self._regressed()
        if any(isinstance(c, Checked) for c in regressed):
            return []
        undecided = [c for c in self._paired if c.gating and c.is_of_job and c.outcome == "inconclusive"]
        return [c for c in undecided if not regressed or c.looks_worse]

    def names_would_help(self) -> bool:
        """Whether operators are judged, or something moved or looks worse, so that its cause needs a name."""
        if judges_subroutines(self._policy.tolerances):
            return True
        if any(c.outcome in ("regressed", "improved") for c in self.comparisons):
            return True
        undecided = [c for c in self.comparisons if c.gating and c.outcome == "inconclusive"]
        return any(isinstance(c, NumberComparison) and c.looks_worse for c in undecided)

    def rerun_would_help(self) -> bool:
        """Whether another job could add to this workload: it is undecided, or its times proved nothing."""
        return self._is_invalid or self.more_pairs_would_help() or self.more_calls_would_help()

    def _is_undecided(self, time: Paired) -> bool:
        if time.excluded is None:
            return time.outcome == "inconclusive"
        sought, _ = margins_for_unchanged(self._policy, time.metric, *time.place, moved=self._moved)
        if time.excluded > sought:
            return True
        return time.is_better and -time.worsening > (time.tolerance or 0.0)


def _leans_slower(time: Paired) -> bool:
    return leans_slower(time.worsening, time.tolerance or 0.0, pairs=time.pairs or 0)

"""The numbers that moved between base and head, and their direction: 1 if one rose, -1 if it fell."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS, RULES, metric
from perfgate.catalogue.names import FRAMEWORK_OPS
from perfgate.document.comparison import Exact, Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.document.run import Finding, RunDocument


class _Number(NamedTuple):
    workload: str
    shape: str
    metric: str


class _Operator(NamedTuple):
    workload: str
    shape: str
    name: str


class Moves:
    """The numbers that moved according to the decision, and the operators that run more or less often."""

    def __init__(self, decision: DecisionDocument, base: RunDocument, head: RunDocument) -> None:
        # On another testbed the counts differ too, with the same code.
        self._comparable = not (decision.testbed_differences and decision.comparing == "code")
        self._moved: dict[_Number, set[int]] = defaultdict(set)
        for row in decision.checklist:
            number = _Number(row.workload, row.shape, row.metric)
            if row.evidence == "count":
                self._add_counts(number, row.base, row.head)
            elif row.is_side_by_side:
                self._add_interval(number, row.interval)
        for comparison in decision.comparisons:
            number = _Number(*comparison.place, comparison.metric)
            if comparison.outcome == "not_comparable":
                continue
            if isinstance(comparison, Exact):
                self._add_counts(number, comparison.base, comparison.head)
            elif isinstance(comparison, Paired) and not comparison.is_of_job:
                self._add_interval(number, comparison.interval)
        before, after = _exact_values(base), _exact_values(head)
        for number in before.keys() & after.keys():
            self._add_counts(number, before[number], after[number])
        self._operators = _changed_operators(base, head)

    def _add_counts(self, number: _Number, base: float | None, head: float | None) -> None:
        if base is not None and head is not None and base != head:
            self._moved[number].add(1 if head > base else -1)

    def _add_interval(self, number: _Number, interval: tuple[float, float] | None) -> None:
        if interval is not None and not interval[0] <= 0.0 <= interval[1]:
            self._moved[number].add(1 if interval[0] > 0 else -1)

    def brought(self, finding: Finding, workload: str) -> bool:
        """Whether the number behind a finding that the head alone has moved so as to bring it."""
        return self._is_shown(finding, workload, 1)

    def removed(self, finding: Finding, workload: str) -> bool:
        """Whether the number behind a finding that the base alone has moved so as to remove it."""
        return self._is_shown(finding, workload, -1)

    def _is_shown(self, finding: Finding, workload: str, sign: int) -> bool:
        """Whether the number behind a finding moved: ``sign`` is 1 for a new finding, and -1 for one that is gone."""
        name = _metric_behind(finding)
        if not name or not self._comparable:
            return False
        shape = finding.evidence.get("shape")
        # One pattern may take the place of another, and their count stays.
        if metric(name).kind == "exact":
            changes = [self._operators.get(_Operator(workload, str(shape), name)) for name in _operators(finding)]
            if sign in changes:
                return True
        # The subject of a finding is worse while the finding is there, and better once it is gone.
        expected = -sign if metric(name).better == "higher" else sign
        value, limit = finding.evidence.get(finding.rule), finding.evidence.get("limit")
        if isinstance(value, (int, float)) and isinstance(limit, (int, float)) and value != limit:
            expected = sign if value > limit else -sign
        for number, moved in self._moved.items():
            is_here = number.workload == workload and shape in (None, number.shape)
            if is_here and number.metric == name and expected in moved:
                return True
        return False


def _metric_behind(finding: Finding) -> str | None:
    """The metric that a finding rests on."""
    rule = RULES.get(finding.rule)
    if rule is None:
        return None
    if rule.rests_on:
        return rule.rests_on
    return rule.judges.metric if rule.judges else None


def _operators(finding: Finding) -> set[str]:
    """The operators that a finding names."""
    names = [finding.evidence.get("op")]
    listed = finding.evidence.get("ops")
    if isinstance(listed, Message):
        listed = listed.values.get("names")
    if isinstance(listed, (list, tuple)):
        names += listed
    return {_plain(name) for name in names if isinstance(name, str)}


def _changed_operators(base: RunDocument, head: RunDocument) -> dict[_Operator, int]:
    """1 or -1 by operator that a call of a shape dispatches more or less often, for shapes with equal counts in all calls."""
    before, after = _steady_operators(base), _steady_operators(head)
    changed: dict[_Operator, int] = {}
    for place in before.keys() & after.keys():
        old, new = before[place], after[place]
        for name in old.keys() | new.keys():
            more = new.get(name, 0) - old.get(name, 0)
            if more:
                changed[_Operator(*place, name)] = 1 if more > 0 else -1
    return changed


def _steady_operators(run: RunDocument) -> dict[tuple[str, str], dict[str, int]]:
    """How often a call of each shape dispatches each operator, for shapes with equal counts in all calls."""
    counts: dict[tuple[str, str], dict[str, int]] = {}
    for counters in run.counters:
        if FRAMEWORK_OPS in counters.values and FRAMEWORK_OPS not in counters.unstable:
            counts[counters.place] = {_plain(operator.op): operator.count for operator in counters.ops}
    return counts


def _plain(operator: str) -> str:
    return operator.rpartition("::")[2]


def _exact_values(run: RunDocument) -> dict[_Number, float]:
    """The exact counts of steps, those of several labels together."""
    totals: dict[_Number, float] = defaultdict(float)
    for step in run.steps:
        for value in step.values:
            if value.value is not None and value.metric in METRICS and METRICS[value.metric].kind == "exact":
                number = _Number(step.workload, value.labels.get("shape", ""), value.metric)
                totals[number] += value.value
    return totals

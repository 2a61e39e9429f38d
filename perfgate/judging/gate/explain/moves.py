"""The numbers that moved between base and head, and their direction: 1 if one rose, -1 if it fell."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from perfgate.catalogue.lookup import RULES, metric
from perfgate.document.comparison import Exact, Paired
from perfgate.document.decision import DecisionDocument
from perfgate.document.message import Message
from perfgate.document.run import Finding
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT


class _Number(NamedTuple):
    workload: str
    shape: str
    metric: str


class Moves:
    """The numbers that moved according to the decision, and the operators that run more or less often."""

    def __init__(self, decision: DecisionDocument) -> None:
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
            name = comparison.metric
            if name.startswith(OPERATOR_COUNT):
                name = OPERATOR_COUNT + _plain(name)
            number = _Number(*comparison.place, name)
            if comparison.outcome == "not_comparable":
                continue
            if isinstance(comparison, Exact):
                self._add_counts(number, comparison.base, comparison.head)
            elif isinstance(comparison, Paired) and not comparison.is_of_job:
                self._add_interval(number, comparison.interval)

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
        if metric(name).is_exact:
            for operator in _operators(finding):
                if sign in self._moved[_Number(workload, str(shape), OPERATOR_COUNT + operator)]:
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


def _plain(operator: str) -> str:
    return operator.rpartition("::")[2]

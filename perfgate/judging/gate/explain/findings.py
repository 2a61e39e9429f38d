"""The findings that a change brought and those that it removed.

A finding rests on a number, and a noisy number lies now above its limit and now below
it. So a finding of one side alone is called new or gone only if the comparison shows
that its number moved: an exact count differs, of the metric or of an operator that the
finding names, or the interval of the difference excludes no change and lies on the
finding's side. Every other finding stands as measured, and a finding is dropped if its
number, measured side by side, lies within the limit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from perfgate.catalogue.lookup import RULES, metric
from perfgate.document.comparison import Comparison, Exact, Paired
from perfgate.document.decision import (
    CountDifference,
    StepComparison,
    StepSummary,
    TurnDifference,
)
from perfgate.document.explanation import Cause
from perfgate.document.lines import split_line
from perfgate.document.message import Message
from perfgate.document.run import Finding, Side, StepResult
from perfgate.judging.gate.evidence.work import OPERATOR_COUNT

# The most findings of one step about the same subject; a document may claim more.
_MOST = 200
# The evidence that identifies a finding; numbers and lines differ between runs of the
# same code, or move with it.
_SUBJECT = (
    "shape",
    "kind",
    "by",
    "reason",
    "name",
    "module",
    "kernel",
    "dtype",
    "stage",
)

_MEASURED = frozenset({"ok", "attention"})


def judged_steps(
    steps: Iterable[StepSummary],
    steps_of_base: Mapping[str, Sequence[StepResult]],
    numbers: Sequence[StepComparison],
    moves: Moves,
    causes: Sequence[Cause],
) -> list[StepSummary]:
    """The steps of the head with the standing of every finding, and the findings that
    are gone.
    """
    by_number = {}
    for workload, of_workload in steps_of_base.items():
        for result in of_workload:
            by_number[workload, result.number] = result
    measured_rows = defaultdict[str, list[StepComparison]](list)
    for row in numbers:
        if isinstance(row.difference, TurnDifference):
            measured_rows[row.workload].append(row)
    judged: list[StepSummary] = []
    for step in steps:
        measured = measured_rows[step.workload]
        remaining = _without_contradicted(step, measured)
        before = by_number.get((step.workload, step.number))
        if before is not None and {before.status, remaining.status} <= _MEASURED:
            remaining = _with_standing(remaining, before, measured, moves, causes)
        judged.append(remaining)
    return judged


def _without_contradicted(
    step: StepSummary, numbers: Sequence[StepComparison]
) -> StepSummary:
    """The step without the findings that its numbers in pairs or turns contradict.

    The head's own measurement of a number is short, and the row that shows the finding
    shows the longer one.
    """
    findings = _standing(step.findings, numbers, "head")
    if len(findings) == len(step.findings):
        return step
    step = replace(step, findings=findings)
    is_ok = all(finding.severity == "info" for finding in findings)
    if step.status == "attention" and is_ok:
        return replace(step, status="ok")
    return step


def _standing(
    findings: Iterable[Finding], numbers: Sequence[StepComparison], side: Side
) -> list[Finding]:
    """The findings that the numbers of a side do not contradict."""
    return [
        finding for finding in findings if not _is_contradicted(finding, numbers, side)
    ]


def _is_contradicted(
    finding: Finding, numbers: Sequence[StepComparison], side: Side
) -> bool:
    """Whether the number that a finding rests on lies within its limit, by the numbers
    of one side.
    """
    rule = RULES.get(finding.rule)
    limit = finding.evidence.get("limit")
    if rule is None or rule.judges is None or not isinstance(limit, (int, float)):
        return False
    judged = rule.judges
    sign = 1 if judged.at_most else -1
    is_within = False
    for row in numbers:
        is_judged = (
            row.metric == judged.metric and judged.labels.items() <= row.labels.items()
        )
        if is_judged and row.shape == finding.evidence.get("shape"):
            value = row.head if side == "head" else row.base
            if value is None or sign * value > sign * limit:
                return False
            is_within = True
    return is_within


def _with_standing(
    step: StepSummary,
    before: StepResult,
    numbers: Sequence[StepComparison],
    moves: Moves,
    causes: Sequence[Cause],
) -> StepSummary:
    only_base, only_head = unmatched(
        _standing(before.findings, numbers, "base"), step.findings
    )
    alone = set(map(id, only_head))
    findings = []
    for finding in step.findings:
        if id(finding) not in alone:
            findings.append(replace(finding, standing="unchanged"))
        elif moves.explains(finding, step.workload, "head"):
            cause = _cause_of(finding, step.workload, causes)
            findings.append(replace(finding, standing="new", cause=cause))
        else:
            findings.append(finding)
    gone = [
        finding
        for finding in only_base
        if moves.explains(finding, step.workload, "base")
    ]
    return replace(step, findings=findings, gone=gone)


def _cause_of(finding: Finding, workload: str, causes: Sequence[Cause]) -> int | None:
    """The number of the cause that changed the finding's line, else its operator, in
    the same place.
    """
    evidence = finding.evidence
    line = evidence.get("line")
    operator = evidence.get("op")
    shape = evidence.get("shape")
    by_operator: int | None = None
    for number, cause in enumerate(causes):
        if cause.workload != workload or shape not in (None, "", cause.shape):
            continue
        lines = [cause.line, *(site.line for site in cause.sites)]
        if line and line in lines:
            return number
        if operator and operator == cause.op and by_operator is None:
            by_operator = number
    return by_operator


# --- the numbers that moved between base and head


class _Number(NamedTuple):
    workload: str
    shape: str
    metric: str


class Moves:
    """The numbers that moved, and the operators that run more or less often.

    On another testbed the counts differ too, with the same code, so nothing is
    ``comparable``.
    """

    def __init__(
        self,
        numbers: Iterable[StepComparison],
        comparisons: Iterable[Comparison],
        *,
        comparable: bool,
    ) -> None:
        self._comparable = comparable
        self._moved: dict[_Number, set[int]] = defaultdict(set)
        for row in numbers:
            number = _Number(row.workload, row.shape, row.metric)
            if isinstance(row.difference, CountDifference):
                self._add_counts(number, row.base, row.head)
            elif row.difference is not None:
                self._add_interval(number, row.difference.interval)
        for comparison in comparisons:
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

    def _add_counts(
        self, number: _Number, base: float | None, head: float | None
    ) -> None:
        if base is not None and head is not None and base != head:
            self._moved[number].add(1 if head > base else -1)

    def _add_interval(
        self, number: _Number, interval: tuple[float, float] | None
    ) -> None:
        if interval is not None and not interval[0] <= 0.0 <= interval[1]:
            self._moved[number].add(1 if interval[0] > 0 else -1)

    def explains(self, finding: Finding, workload: str, side: Side) -> bool:
        """Whether the number behind a finding that only one side has moved so as to
        bring it, or to remove it.
        """
        sign = 1 if side == "head" else -1
        rule = RULES.get(finding.rule)
        if rule is None or not self._comparable:
            return False
        name = rule.rests_on or (rule.judges.metric if rule.judges else "")
        if not name:
            return False
        shape = finding.evidence.get("shape")
        # One pattern may take the place of another, and their count stays.
        if metric(name).is_exact:
            for operator in _operators(finding):
                if (
                    sign
                    in self._moved[
                        _Number(workload, str(shape), OPERATOR_COUNT + operator)
                    ]
                ):
                    return True
        # The subject of a finding is worse while the finding is there, and better once
        # it is gone.
        expected = -sign if metric(name).better == "higher" else sign
        value = finding.evidence.get(finding.rule)
        limit = finding.evidence.get("limit")
        if (
            isinstance(value, (int, float))
            and isinstance(limit, (int, float))
            and value != limit
        ):
            expected = sign if value > limit else -sign
        for number, moved in self._moved.items():
            is_here = number.workload == workload and shape in (None, number.shape)
            if is_here and number.metric == name and expected in moved:
                return True
        return False


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


# --- findings of base and head that are the same


def unmatched(
    before: Iterable[Finding], after: Iterable[Finding]
) -> tuple[list[Finding], list[Finding]]:
    """The findings that only the base has, and the findings that only the head has.

    Two are the same by rule, shape and operator. Of several, the findings with the
    nearest lines are matched: a line moves when lines above it come or go.
    """
    of_base = _by_subject(before)
    of_head = _by_subject(after)
    for subject in of_base.keys() & of_head.keys():
        few, many = sorted((of_base[subject], of_head[subject]), key=len)
        lines = set(map(_line, many))
        # Of the shorter list, exact lines come before near ones.
        for finding in sorted(few[:_MOST], key=lambda own: _line(own) not in lines):
            many.pop(_nearest(_line(finding), many[:_MOST]))
        del few[:_MOST]
    return _flat(of_base), _flat(of_head)


def _nearest(line: tuple[str, int], findings: Sequence[Finding]) -> int:
    """The position of the finding with the nearest line."""

    def distance(at: int) -> tuple[bool, int]:
        file, number = _line(findings[at])
        return file != line[0], abs(number - line[1])

    return min(range(len(findings)), key=distance)


def _by_subject(findings: Iterable[Finding]) -> dict[bytes, list[Finding]]:
    groups: dict[bytes, list[Finding]] = defaultdict(list)
    for finding in findings:
        # A pattern of several operators also names the heaviest, which noise decides.
        operator = "ops" if "ops" in finding.evidence else "op"
        values = [finding.evidence.get(name) for name in (*_SUBJECT, operator)]
        groups[msgspec.json.encode([finding.rule, *values])].append(finding)
    return groups


def _line(finding: Finding) -> tuple[str, int]:
    return split_line(str(finding.evidence.get("line") or ""))


def _flat(groups: dict[bytes, list[Finding]]) -> list[Finding]:
    findings: list[Finding] = []
    for of_subject in groups.values():
        findings += of_subject
    return findings

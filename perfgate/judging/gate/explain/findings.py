"""The findings that a change brought and those that it removed.

A finding rests on a number, and a noisy number lies now above its limit and now below it. So a finding of one side alone is
called new or gone only if the comparison shows that its number moved: an exact count differs, of the metric or of an operator
that the finding names, or the interval of the difference excludes no change and lies on the finding's side. Every other finding
stands as measured, and none stands beside a number measured side by side that lies within its limit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain

import msgspec

from perfgate.catalogue.lookup import METRICS, RULES, metric
from perfgate.document.comparison import Exact, Paired
from perfgate.document.decision import DecisionDocument, StepComparison, StepSummary
from perfgate.document.explanation import Cause
from perfgate.document.lines import split_line
from perfgate.document.message import Message
from perfgate.document.run import Finding, RunDocument, StepResult

_DISPATCHED = "counters.framework_ops"
_MEASURED = frozenset({"ok", "attention"})
# The most findings of one step about the same subject; a document may claim more.
_MOST = 200
# The evidence that identifies a finding; numbers and lines differ between runs of the same code, or move with it.
_ABOUT = ("shape", "kind", "by", "reason", "name", "module", "kernel", "dtype", "stage")


def with_findings(decision: DecisionDocument, base: RunDocument, head: RunDocument) -> DecisionDocument:
    """The decision with the standing of every finding of the head, and the findings that are gone."""
    before = {(step.workload, step.number): step for step in base.steps}
    moves = _Moves(decision, base, head)
    steps = []
    for step in decision.steps:
        numbers = [row for row in decision.checklist if row.workload == step.workload and row.is_side_by_side]
        steps.append(
            _judged(_checked(step, numbers), before.get((step.workload, step.number)), numbers, moves, decision.causes)
        )
    return msgspec.structs.replace(decision, steps=steps)


def _checked(step: StepSummary, numbers: Sequence[StepComparison]) -> StepSummary:
    """The step without the findings that its numbers in pairs or turns contradict.

    The head's own measurement of a number is short, and the row that shows the finding shows the longer one.
    """
    findings = [one for one in step.findings if not _contradicted(one, [(row, row.head) for row in numbers])]
    if len(findings) == len(step.findings):
        return step
    status = step.status
    if status == "attention" and all(finding.severity == "info" for finding in findings):
        status = "ok"
    return msgspec.structs.replace(step, findings=findings, status=status)


def _contradicted(finding: Finding, numbers: Sequence[tuple[StepComparison, float | None]]) -> bool:
    """Whether the number that a finding rests on lies within its limit, by the numbers of one side."""
    rule, limit = RULES.get(finding.rule), finding.evidence.get("limit")
    if rule is None or rule.judges is None or not isinstance(limit, (int, float)):
        return False
    judged, shape = rule.judges, finding.evidence.get("shape")
    values = [
        value
        for row, value in numbers
        if row.metric == judged.metric and row.shape == shape and judged.labels.items() <= row.labels.items()
    ]
    return bool(values) and all(
        value is not None and (value <= limit if judged.at_most else value >= limit) for value in values
    )


def _judged(
    step: StepSummary,
    before: StepResult | None,
    numbers: Sequence[StepComparison],
    moves: _Moves,
    causes: Sequence[Cause],
) -> StepSummary:
    if before is None or not {before.status, step.status} <= _MEASURED:
        return step
    of_base = [one for one in before.findings if not _contradicted(one, [(row, row.base) for row in numbers])]
    only_base, only_head = unmatched(of_base, step.findings)
    alone = {id(finding) for finding in only_head}
    findings = []
    for finding in step.findings:
        if id(finding) not in alone:
            findings.append(msgspec.structs.replace(finding, standing="unchanged"))
        elif moves.shown(finding, step.workload, gone=False):
            cause = _cause_of(finding, step.workload, causes)
            findings.append(msgspec.structs.replace(finding, standing="new", cause=cause))
        else:
            findings.append(finding)
    gone = [finding for finding in only_base if moves.shown(finding, step.workload, gone=True)]
    return msgspec.structs.replace(step, findings=findings, gone=gone)


def unmatched(before: Iterable[Finding], after: Iterable[Finding]) -> tuple[list[Finding], list[Finding]]:
    """The findings that the base alone has, and those that the head alone has.

    Two are the same by rule, shape and operator. Of several, those with the nearest lines are matched: a line moves when lines
    above it come or go.
    """
    left, right = (defaultdict[bytes, list[Finding]](list) for _ in range(2))
    for groups, findings in ((left, before), (right, after)):
        for finding in findings:
            groups[_about(finding)].append(finding)
    for key in left.keys() & right.keys():
        few, many = sorted((left[key], right[key]), key=len)
        rest, lines = list(many), {_line(finding) for finding in many}
        # An exact match of the line comes before the nearest line.
        for finding in sorted(few[:_MOST], key=lambda finding: _line(finding) not in lines):
            rest.pop(_nearest(_line(finding), [_line(one) for one in rest[:_MOST]]))
        few[:], many[:] = few[_MOST:], rest
    return list(chain.from_iterable(left.values())), list(chain.from_iterable(right.values()))


def _nearest(line: tuple[str, int], lines: Sequence[tuple[str, int]]) -> int:
    def distance(at: int) -> tuple[bool, int]:
        file, number = lines[at]
        return file != line[0], abs(number - line[1])

    return min(range(len(lines)), key=distance)


def _about(finding: Finding) -> bytes:
    # A pattern of several operators also names the heaviest, which noise decides.
    operator = "ops" if "ops" in finding.evidence else "op"
    return msgspec.json.encode([finding.rule, *(finding.evidence.get(name) for name in (*_ABOUT, operator))])


def _line(finding: Finding) -> tuple[str, int]:
    return split_line(str(finding.evidence.get("line") or ""))


def _cause_of(finding: Finding, workload: str, causes: Sequence[Cause]) -> int | None:
    """The number of the cause that changed the finding's line, else its operator, in the same place."""
    line, op, shape = (finding.evidence.get(name) for name in ("line", "op", "shape"))
    by_op: int | None = None
    for number, cause in enumerate(causes):
        if cause.workload != workload or shape not in (None, "", cause.shape):
            continue
        if line and line in (cause.line, *(site.line for site in cause.sites)):
            return number
        if op and op == cause.op and by_op is None:
            by_op = number
    return by_op


class _Moves:
    """The numbers that moved according to the decision, and their direction."""

    def __init__(self, decision: DecisionDocument, base: RunDocument, head: RunDocument) -> None:
        # On another testbed the counts differ too, with the same code.
        self._comparable = not (decision.testbed_differences and decision.comparing == "code")
        self._moved: dict[tuple[str, str, str], set[int]] = {}
        for row in decision.checklist:
            key = row.workload, row.shape, row.metric
            if row.evidence == "count":
                self._add_counts(key, row.base, row.head)
            elif row.is_side_by_side:
                self._add_interval(key, row.interval)
        for comparison in decision.comparisons:
            key = comparison.workload, comparison.shape, comparison.metric
            if comparison.outcome == "not_comparable":
                continue
            if isinstance(comparison, Exact):
                self._add_counts(key, comparison.base, comparison.head)
            elif isinstance(comparison, Paired) and not comparison.is_of_job:
                self._add_interval(key, comparison.interval)
        self._operators = _changed_operators(base, head)
        before, after = _exact_values(base), _exact_values(head)
        for key in before.keys() & after.keys():
            self._add_counts(key, before[key], after[key])

    def _add_counts(self, key: tuple[str, str, str], base: float | None, head: float | None) -> None:
        signs = self._moved.setdefault(key, set())
        if base is not None and head is not None and base != head:
            signs.add(1 if head > base else -1)

    def _add_interval(self, key: tuple[str, str, str], interval: tuple[float, float] | None) -> None:
        signs = self._moved.setdefault(key, set())
        if interval is not None and not interval[0] <= 0.0 <= interval[1]:
            signs.add(1 if interval[0] > 0 else -1)

    def shown(self, finding: Finding, workload: str, *, gone: bool) -> bool:
        """Whether the number behind a finding that one side alone has moved so as to bring it, or to remove it."""
        rule = RULES.get(finding.rule)
        name = "" if rule is None else rule.rests_on or (rule.judges.metric if rule.judges else "")
        if not name or not self._comparable:
            return False
        shape = finding.evidence.get("shape")
        sign = -1 if gone else 1
        # The subject of a finding is worse while the finding is there, and better once it is gone.
        expected = -sign if metric(name).better == "higher" else sign
        # One pattern may take the place of another, and their count stays.
        if metric(name).kind == "exact" and any(
            self._operators.get((workload, str(shape), op)) == sign for op in _operators(finding)
        ):
            return True
        signs: set[int] = set()
        for (place, of_shape, of_metric), moved in self._moved.items():
            if (place, of_metric) == (workload, name) and shape in (None, of_shape):
                signs |= moved
        value, limit = (finding.evidence.get(key) for key in (finding.rule, "limit"))
        if not (isinstance(value, (int, float)) and isinstance(limit, (int, float))) or value == limit:
            return expected in signs
        beyond = 1 if value > limit else -1
        return (-beyond if gone else beyond) in signs


def _changed_operators(base: RunDocument, head: RunDocument) -> dict[tuple[str, str, str], int]:
    """1 or -1 by operator that a call of a shape dispatches more or less often, for shapes with equal counts in all calls."""
    before, after = _steady_operators(base), _steady_operators(head)
    changed: dict[tuple[str, str, str], int] = {}
    for place in before.keys() & after.keys():
        old, new = before[place], after[place]
        for op in old.keys() | new.keys():
            if old[op] != new[op]:
                changed[(*place, op)] = 1 if new[op] > old[op] else -1
    return changed


def _steady_operators(run: RunDocument) -> dict[tuple[str, str], Counter[str]]:
    """How often a call of each shape dispatches each operator, for shapes with equal counts in all calls."""
    counts = {}
    for counted in run.counters:
        if _DISPATCHED in counted.values and _DISPATCHED not in counted.unstable:
            counts[counted.place] = Counter({_plain(op.op): op.count for op in counted.ops})
    return counts


def _operators(finding: Finding) -> set[str]:
    listed = finding.evidence.get("ops")
    names = listed.values.get("names") if isinstance(listed, Message) else listed
    operators = names if isinstance(names, (list, tuple)) else []
    return {_plain(op) for op in (finding.evidence.get("op"), *operators) if isinstance(op, str)}


def _plain(op: str) -> str:
    return op.rpartition("::")[2]


def _exact_values(run: RunDocument) -> dict[tuple[str, str, str], float]:
    """The exact counts of steps, those of several labels together."""
    totals: dict[tuple[str, str, str], float] = {}
    for step in run.steps:
        for value in step.values:
            if value.value is not None and value.metric in METRICS and METRICS[value.metric].kind == "exact":
                key = step.workload, value.labels.get("shape", ""), value.metric
                totals[key] = totals.get(key, 0.0) + value.value
    return totals

"""The checklist of a decision in short: a row for each step, and a line for each
workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.catalogue.names import OPERATOR_SHARE
from perfgate.document.decision import StepComparison
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.words import Words, phrases, say
from perfgate.judging.report.view.checklist import (
    NumberView,
    StepView,
    step_numbers,
    worded_steps,
)
from perfgate.judging.report.view.summary import Summary

# The steps in the line of a workload: the first numbers to read about a model.
_BEFORE_OPERATORS = (1, 2)
_OPERATORS = 4
_AFTER_OPERATORS = (5, 3)
_NAMES = phrases(
    {
        "latency.p50": "P50",
        "latency.single": "call",
        "utilization.busy": "device",
        "utilization.host": "CPU",
        "batch.knee": "knee",
        "batch.best": "best batch",
        "transfer.share": "transfer",
        "transfer.h2d_bandwidth": "host to device",
    }
)
_OF_STEPS = phrases(
    {1: "P50", 2: "utilization", 4: "top operators", 5: "knee", 3: "transfer"}
)
_OPERATORS_IN_SHORT = 2


class StepLine(NamedTuple):
    """A step of the head as a row, with its leading numbers: one at most, except for
    the shares of operators.
    """

    step: StepView
    numbers: Sequence[NumberView]

    @property
    def are_operators(self) -> bool:
        return bool(self.numbers) and self.numbers[0].row.metric == OPERATOR_SHARE

    @property
    def resolved(self) -> list[NumberView]:
        return [number for number in self.numbers if number.row.is_resolved]

    @property
    def are_stored(self) -> bool:
        """Whether main's stored runs have any of them."""
        return any(number.main for number in self.numbers)


class CardLine(NamedTuple):
    """A workload in one line; ``place`` is empty if it is the only one.

    The operators, which are outside text, each with its share of the time, stand
    between the other parts.
    """

    place: str
    before: Sequence[Words]
    operators: Sequence[tuple[str, Words]]
    after: Sequence[Words]


def step_lines(summary: Summary) -> list[StepLine]:
    """Every step of the head with its leading number."""
    leading: dict[tuple[int, str], list[NumberView]] = {}
    for number in step_numbers(summary):
        if number.row.leads:
            leading.setdefault(number.step, []).append(number)
    steps = worded_steps(summary.decision.checklist.steps)
    return [
        StepLine(step, leading.get((step.number, step.workload), [])) for step in steps
    ]


def outcome_counts(summary: Summary) -> Words:
    """How many metrics had each outcome; empty without metrics."""
    words = []
    if summary.regressed:
        words.append(say("{count} regressed", count=len(summary.regressed)))
    if summary.improved:
        words.append(say("{count} improved", count=len(summary.improved)))
    if summary.unchanged:
        words.append(say("{count} unchanged", count=len(summary.unchanged)))
    if summary.inconclusive:
        words.append(say("{count} undecided", count=len(summary.inconclusive)))
    return Words(say(", ").join(words))


def card_lines(summary: Summary) -> list[CardLine]:
    """Each workload with a leading number: P50, utilization, top operators, batch knee,
    transfer.
    """
    leading: dict[str, dict[int, list[StepComparison]]] = {}
    for row in summary.decision.checklist.numbers:
        if row.leads and row.step in _OF_STEPS:
            leading.setdefault(row.workload, {}).setdefault(row.step, []).append(row)
    left_out: set[tuple[str, int]] = set()
    for step in summary.decision.checklist.steps:
        if step.status == "not_applicable":
            left_out.add((step.workload, step.number))
    lines = []
    for workload, rows in leading.items():
        name = ""
        if len(leading) > 1:
            name = workload
        before = [
            _part(number, rows, summary, is_left_out=(workload, number) in left_out)
            for number in _BEFORE_OPERATORS
        ]
        after = [
            _part(number, rows, summary, is_left_out=(workload, number) in left_out)
            for number in _AFTER_OPERATORS
        ]
        lines.append(
            CardLine(name, before, _operators(rows.get(_OPERATORS, [])), after)
        )
    return lines


def _part(
    number: int,
    rows: Mapping[int, Sequence[StepComparison]],
    summary: Summary,
    *,
    is_left_out: bool,
) -> Words:
    """The leading number of a step in a few words, or why there is none."""
    if number in rows:
        return _number(rows[number][0], summary)
    name = say(_OF_STEPS[number])
    if is_left_out:
        return say("{name} n/a", name=name)
    return say("{name} not measured", name=name)


def _number(row: StepComparison, summary: Summary) -> Words:
    """``P50 6.65 → 6.61 ms (main 6.60 ms)``, ``knee 16 = 16``."""
    name = Words(metric_name(row.metric, row.clock))
    if row.metric in _NAMES and row.clock not in ("cpu", "device"):
        name = say(_NAMES[row.metric])
    both = _both(row)
    main = summary.stored_beside(row)
    if main is None or main.typical is None or row.is_by_own_clock:
        return say("{name} {both}", name=name, both=both)
    typical = formats.quantity(main.typical, row)
    if main.outside is not None:
        return say(
            "{name} {both} (main {main}, outside its range)",
            name=name,
            both=both,
            main=typical,
        )
    return say("{name} {both} (main {main})", name=name, both=both, main=typical)


def _both(row: StepComparison) -> Words:
    """Two values; equal values are shown once, unless they are batch sizes, which would
    then look like one side's.

    Values that were not measured side by side show no difference, so only head's is
    shown.
    """
    base, head = formats.quantities([row.base, row.head], row)
    if row.difference is None:
        if row.head is not None:
            return say("{head}, not compared", head=head)
        return say("not compared")
    if base != head:
        return numbers.span(base, head)
    if METRICS[row.metric].number.whole:
        return Words(f"{base} = {head}")
    return head


def _operators(rows: Iterable[StepComparison]) -> list[tuple[str, Words]]:
    shares = []
    for row in rows:
        if row.head is not None:
            name = row.labels.get("op", "").removeprefix("aten::")
            shares.append((name, numbers.percent(row.head)))
    return shares[:_OPERATORS_IN_SHORT]

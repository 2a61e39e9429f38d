"""The checklist of a decision in short: a row for each step, and one line for each workload."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from perfgate.catalogue.lookup import CARDS, METRICS
from perfgate.catalogue.names import OPERATOR_SHARE
from perfgate.catalogue.records import GATE_STEP
from perfgate.document.decision import StepComparison, StepSummary, StoredComparison
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.checklist import step_numbers, worded_steps
from perfgate.judging.report.view.summary import Summary

# The steps that a line of a workload sums up: those with numbers by which a model is read first.
_IN_SHORT = (1, 2, 4, 5, 3)
_NAMES = {
    "latency.p50": phrase("P50"),
    "latency.single": phrase("call"),
    "utilization.busy": phrase("device"),
    "utilization.host": phrase("CPU"),
    "batch.knee": phrase("knee"),
    "batch.best": phrase("best batch"),
    "transfer.share": phrase("transfer"),
    "transfer.h2d_bandwidth": phrase("host to device"),
}
_OF_STEPS = {
    1: phrase("P50"),
    2: phrase("utilization"),
    4: phrase("top operators"),
    5: phrase("knee"),
    3: phrase("transfer"),
}
_OPERATORS_IN_SHORT = 2


@dataclass(frozen=True)
class OneNumber:
    """The leading number of a step."""

    template: ClassVar[str] = "comment/step_number.md.j2"

    number: Values


@dataclass(frozen=True)
class Operators:
    """The operators that take most of the time; ``numbers`` are their shares, ``resolved`` those with a shown difference."""

    template: ClassVar[str] = "comment/step_operators.md.j2"

    place: str
    numbers: Sequence[Values]
    resolved: Sequence[Values]


@dataclass(frozen=True)
class NoNumber:
    """A step without a number on either side."""

    template: ClassVar[str] = "comment/step_nothing.md.j2"


@dataclass(frozen=True)
class StepLine:
    """A step of the head as a row, with what stands for it."""

    step: Values
    leading: OneNumber | Operators | NoNumber


@dataclass(frozen=True)
class OperatorShare:
    """An operator, which is outside text, and its share of the time."""

    op: str
    share: Words


@dataclass(frozen=True)
class CardLine:
    """A workload in one line; ``place`` is empty if it is the only one. The operators stand between the other parts."""

    place: str
    before: Sequence[Words]
    operators: Sequence[OperatorShare]
    after: Sequence[Words]


def step_lines(summary: Summary) -> list[StepLine]:
    """Every step of the head with its leading number."""
    leading: dict[tuple[int, str], list[Values]] = {}
    for number in step_numbers(summary):
        if number["leads"]:
            leading.setdefault((number["step"], number["workload"]), []).append(number)
    return [
        StepLine(step, _leading(leading.get((step["number"], step["workload"]), [])))
        for step in worded_steps(summary.decision.steps)
    ]


def _leading(worded: Sequence[Values]) -> OneNumber | Operators | NoNumber:
    if not worded:
        return NoNumber()
    if worded[0]["metric"] == OPERATOR_SHARE:
        resolved = [number for number in worded if number["is_resolved"]]
        return Operators(place=worded[0]["place"], numbers=worded, resolved=resolved)
    return OneNumber(worded[0])


def decision_row(summary: Summary) -> Values:
    """The last step of the checklist, which is the decision."""
    return {
        "number": GATE_STEP,
        "title": say(CARDS[GATE_STEP].title),
        "verdict": Words(summary.verdict),
        "counts": Words(say(", ").join(_outcomes(summary))),
    }


def _outcomes(summary: Summary) -> list[Words]:
    """How many metrics had each outcome; none without metrics."""
    counts = {
        phrase("{count} regressed"): len(summary.regressed),
        phrase("{count} improved"): len(summary.improved),
        phrase("{count} unchanged"): len(summary.unchanged),
        phrase("{count} undecided"): len(summary.inconclusive),
    }
    return [say(words, count=count) for words, count in counts.items() if count]


def card_lines(summary: Summary) -> list[CardLine]:
    """Each workload with a leading number: P50, utilization, top operators, batch knee, transfer."""
    decision = summary.decision
    steps = {(step.workload, step.number): step for step in decision.steps}
    leading: dict[str, dict[int, list[StepComparison]]] = {}
    for row in decision.checklist:
        if row.leads and row.step in _IN_SHORT:
            leading.setdefault(row.workload, {}).setdefault(row.step, []).append(row)
    stored = {_key(entry): entry for entry in decision.stored}
    of_one = len(leading) == 1
    return [
        CardLine(
            place="" if of_one else place(workload, ""),
            before=[_part(number, workload, rows, steps, stored) for number in (1, 2)],
            operators=_operators(rows.get(4, [])),
            after=[_part(number, workload, rows, steps, stored) for number in (5, 3)],
        )
        for workload, rows in leading.items()
    ]


_Key = tuple[str, str, str, tuple[tuple[str, str], ...]]


def _key(entry: StepComparison | StoredComparison) -> _Key:
    return entry.workload, entry.shape, entry.metric, tuple(sorted(entry.labels.items()))


def _part(
    number: int,
    workload: str,
    rows: Mapping[int, Sequence[StepComparison]],
    steps: Mapping[tuple[str, int], StepSummary],
    stored: Mapping[_Key, StoredComparison],
) -> Words:
    """The leading number of a step in a few words, or why there is none."""
    if number in rows:
        row = rows[number][0]
        return _number(row, stored.get(_key(row)))
    step = steps.get((workload, number))
    name = say(_OF_STEPS[number])
    if step is not None and step.status == "not_applicable":
        return say("{name} n/a", name=name)
    return say("{name} not measured", name=name)


def _number(row: StepComparison, main: StoredComparison | None) -> Words:
    """``P50 6.65 → 6.61 ms (main 6.60 ms)``, ``knee 16 = 16``."""
    is_comparable = main is not None and main.typical is not None and (row.clock == "wall" or row.evidence == "turn")
    typical = main.typical if main is not None and is_comparable else None
    base, head = formats.quantities([row.base, row.head], row.unit, metric=row.metric)
    of_main = formats.quantity(typical, row.unit, metric=row.metric)
    both = _both(row, base, head)
    is_short = row.metric in _NAMES and row.clock not in ("cpu", "device")
    name = say(_NAMES[row.metric]) if is_short else Words(metric_name(row.metric, row.clock))
    if typical is None:
        return say("{name} {both}", name=name, both=both)
    if main is not None and main.outside is not None:
        return say("{name} {both} (main {main}, outside its range)", name=name, both=both, main=of_main)
    return say("{name} {both} (main {main})", name=name, both=both, main=of_main)


def _both(row: StepComparison, base: Words, head: Words) -> Words:
    """Two values; equal ones are shown once, unless they are batch sizes, which are often equal and look like one side's.

    Values that were not measured side by side show no difference, so only head's is shown.
    """
    if row.evidence is None:
        return say("{head}, not compared", head=head) if row.head is not None else say("not compared")
    if base != head:
        return numbers.span(base, head)
    return Words(f"{base} = {head}") if METRICS[row.metric].whole else head


def _operators(rows: Iterable[StepComparison]) -> list[OperatorShare]:
    measured = [(row.labels.get("op", ""), row.head) for row in rows if row.head is not None]
    return [
        OperatorShare(op.removeprefix("aten::"), numbers.percent(share)) for op, share in measured[:_OPERATORS_IN_SHORT]
    ]

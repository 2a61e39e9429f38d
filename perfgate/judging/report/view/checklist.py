"""The checklist of a decision in words: its steps, and main's stored runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup

from perfgate.catalogue.lookup import CARDS
from perfgate.catalogue.names import RANKS_STEP
from perfgate.document.decision import (
    CountDifference,
    JudgedFinding,
    StepComparison,
    StepSummary,
    StoredComparison,
    TurnDifference,
)
from perfgate.document.message import Message
from perfgate.document.run import Finding, StepResult
from perfgate.judging.report.text import formats, numbers, svg
from perfgate.judging.report.text.messages import word, word_findings
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.words import Words, phrase, phrases, say
from perfgate.judging.report.view.blocks import listed_regressions
from perfgate.judging.report.view.run_steps import STATUS_NAMES, busy_machine
from perfgate.judging.report.view.summary import Summary, code_of

# Of steps that had no time for turns; the checklist shows these notes.
NOT_IN_TURNS = "notes.not-in-turns"
_SHOWN_FINDINGS = 3


class NumberView(NamedTuple):
    """A number of a step on both sides, and main's stored runs."""

    row: StepComparison
    labels: str
    base: Words
    head: Words
    span: Words
    difference: Words
    main: StoredRow | None
    limit: Words

    @property
    def step(self) -> tuple[int, str]:
        """The number of its step, and the workload."""
        return self.row.step, self.row.workload

    @property
    def operator(self) -> str:
        return self.row.labels.get("op", "").removeprefix("aten::")

    @property
    def main_is_of_the_wall(self) -> bool:
        """Main's runs are timed as turns are, and not by the clock that may decide
        about pairs.
        """
        return self.row.unit == "s" and self.row.is_by_own_clock

    @property
    def plot(self) -> Markup:
        """Main's stored runs as a line."""
        if self.main is None:
            return Markup("")
        return svg.small_line(self.main.source.values, say("main's stored runs"), {})


class QuantileRow(NamedTuple):
    """P50, P90 and P99 of all requests or steps of a job on both sides, with one unit."""

    name: str
    place: str
    base: list[Words]
    head: list[Words]
    counts: Words


class StepView(NamedTuple):
    """A step of the checklist: its findings worth a look, each with whether the change
    introduced it, or its reason.
    """

    number: int
    title: str
    workload: str
    status: str
    key: Words
    busy: Words | None
    notes: list[tuple[str, bool]]
    more: Words | None
    reason: Message | None


class FindingView(NamedTuple):
    """A new or gone finding; ``block`` is the number of the listed cause that it
    belongs to.
    """

    step: int
    title: str
    place: str
    words: str
    line: str | None
    block: int | None


def step_numbers(summary: Summary) -> list[NumberView]:
    """The numbers of the checklist, in step order; a labelled number only if it leads
    or is not zero on both sides.
    """
    rows = [
        row
        for row in summary.decision.checklist.numbers
        if not row.labels or row.base or row.head or row.leads
    ]
    return [_worded_number(row, summary.stored_beside(row)) for row in rows]


def uncompared(warnings: Iterable[Message]) -> list[Message]:
    """The notes of a check on steps that had no time for turns, which belong to the
    checklist.
    """
    return [
        _of_side(note) for note in warnings if code_of(_of_side(note)) == NOT_IN_TURNS
    ]


def notes_except(code: str, warnings: Iterable[Message]) -> list[Message]:
    return [note for note in warnings if code_of(_of_side(note)) != code]


def _of_side(note: Message) -> Message:
    """The note inside a note about a side, without that side."""
    if isinstance(note, Message):
        inner = note.values.get("note")
        if isinstance(inner, Message):
            return inner
    return note


def quantile_rows(summary: Summary) -> list[QuantileRow]:
    rows = []
    for row in summary.decision.checklist.job_quantiles:
        words = numbers.amounts([*row.base, *row.head], "s")
        half = len(row.base)
        base_count, head_count = row.counts
        name = metric_name(row.metric)
        if row.metric == RANKS_STEP:
            name = say("step time of all ranks")
        rows.append(
            QuantileRow(
                name=name,
                place=row.workload,
                base=words[:half],
                head=words[half:],
                counts=Words(f"{base_count:,} / {head_count:,}"),
            )
        )
    return rows


def _worded_number(row: StepComparison, main: StoredComparison | None) -> NumberView:
    values = [row.base, row.head, row.bound]
    beside = values
    stored = None
    if main:
        beside = [*values, main.head, main.typical, *(main.interval or ())]
        stored = stored_row(main, values)
    base, head, bound, *_ = formats.quantities(beside, row)
    limit = numbers.setting(row.tolerance)
    if row.bound is not None:
        limit = Words(f"≥ {bound}")
        if row.at_most:
            limit = Words(f"≤ {bound}")
    return NumberView(
        row=row,
        labels=", ".join(f"{key} {text}" for key, text in sorted(row.labels.items())),
        base=base,
        head=head,
        span=_span(row, base, head),
        difference=_difference(row),
        main=stored,
        limit=limit,
    )


def _span(row: StepComparison, base: Words, head: Words) -> Words:
    """Both values, each with its range if it has one: ``16 (8 to 32) → 16 (8 to 32)``."""
    if row.base_range is None and row.head_range is None:
        return numbers.span(base, head)
    return Words(
        f"{_with_range(base, row.base_range, row)} → {_with_range(head, row.head_range, row)}"
    )


def _with_range(
    value: Words, ends: tuple[float, float] | None, row: StepComparison
) -> Words:
    if ends is None or ends[0] == ends[1]:
        return value
    low, high = formats.quantities(ends, row)
    return Words(f"{value} ({numbers.reach(low, high)})")


def _difference(row: StepComparison) -> Words:
    """A difference in words: of counts, or of values measured side by side, with its
    interval.
    """
    if row.base is None or row.head is None:
        return numbers.DASH
    # A ratio is higher or lower, a count more or fewer.
    measure: formats.HasMeasure = row
    if row.unit == "1" and not float(row.base).is_integer():
        measure = formats.Measure("", row.metric)
    difference = row.difference
    if difference is None:
        return say("measured once per side")
    if isinstance(difference, CountDifference):
        if difference.delta is None:
            return formats.difference(row.base, row.head, row)
        return formats.exact_percent(difference.delta, measure)
    if difference.interval is None or difference.delta is None:
        return say("too few turns")
    if row.is_resolved:
        return formats.change_of_level(difference.delta, difference.interval, measure)
    return _unresolved(
        difference, half=(difference.interval[1] - difference.interval[0]) / 2
    )


def _unresolved(difference: TurnDifference, *, half: float) -> Words:
    if not math.isfinite(half):
        return say("not resolved (no bound)")
    if half < numbers.NO_CHANGE:
        return say("no change")
    width = numbers.plus_minus(half)
    if difference.needed is None:
        return say("not resolved ({width})", width=width)
    return say(
        "not resolved ({width}; about {needed})",
        width=width,
        needed=numbers.counted(difference.needed, difference.unit),
    )


def tally(steps: list[StepSummary]) -> list[Words]:
    """The number of steps by status, good statuses first: ``14 ok``, ``2 to look at``;
    then new and gone findings.
    """
    counts = Counter(step.status for step in steps)
    new = 0
    gone = 0
    for step in steps:
        new += len(new_of(step))
        gone += len(step.gone)
    statuses = [(name, counts[status]) for status, name in STATUS_NAMES.items()]
    words = []
    for name, count in [*statuses, (phrase("new"), new), (phrase("gone"), gone)]:
        if count:
            words.append(
                say("{count} {status}", count=Words(f"{count:,}"), status=say(name))
            )
    return words


def worded_steps(steps: Iterable[StepSummary]) -> list[StepView]:
    """The steps in number order; an error of the whole workload is shown at its first
    step only.
    """
    first: dict[tuple[str, str], int] = {}
    worded = []
    for step in sorted(steps, key=lambda step: (step.number, step.workload)):
        view = _worded_step(step)
        if step.status == "error" and step.reason is not None:
            number = first.setdefault((step.workload, word(step.reason)), step.number)
            if number != step.number:
                view = view._replace(reason=Message("notes.as-step", {"step": number}))
        worded.append(view)
    return worded


def _worded_step(step: StepSummary) -> StepView:
    # Several shapes may have the same finding; new findings come first.
    judged = sorted(step.findings, key=lambda finding: finding.standing != "new")
    new = new_of(step)
    notes: dict[tuple[str, bool], None] = {}
    for finding, words in word_findings(judged):
        notes[words, finding in new] = None
    hidden = len(notes) - _SHOWN_FINDINGS
    more = None
    if hidden > 0:
        more = say("{count} more", count=hidden)
    status = step.status
    key = Words("unknown")
    if step.status in STATUS_NAMES:
        status = say(STATUS_NAMES[step.status])
        key = Words(step.status)
    return StepView(
        number=step.number,
        title=step_title(step),
        workload=step.workload,
        status=status,
        key=key,
        busy=busy_machine(step.waited),
        notes=list(notes)[:_SHOWN_FINDINGS],
        more=more,
        reason=step.reason,
    )


def changed_findings(summary: Summary) -> tuple[list[FindingView], list[FindingView]]:
    """New and gone findings in the order of steps."""
    new = []
    gone = []
    steps = summary.decision.checklist.steps
    for step in sorted(steps, key=lambda step: (step.number, step.workload)):
        new += _views(step, new_of(step), summary)
        gone += _views(step, step.gone, summary)
    return new, gone


def new_of(step: StepSummary) -> list[JudgedFinding]:
    return [finding for finding in step.findings if finding.standing == "new"]


def step_title(step: StepSummary | StepResult) -> str:
    if step.number in CARDS:
        return say(CARDS[step.number].title)
    return step.slug


def _views(
    step: StepSummary, findings: Iterable[Finding], summary: Summary
) -> list[FindingView]:
    views = []
    for finding, words in word_findings(findings):
        line = str(finding.evidence.get("line") or "")
        views.append(
            FindingView(
                step=step.number,
                title=step_title(step),
                place=place(step.workload, str(finding.evidence.get("shape") or "")),
                words=words,
                line=line or None,
                block=_block_of(finding, summary),
            )
        )
    return views


def _block_of(finding: Finding, summary: Summary) -> int | None:
    """The number of the listed cause that is identical to the finding's own."""
    if not isinstance(finding, JudgedFinding) or finding.cause is None:
        return None
    if finding.cause >= len(summary.decision.explained.causes):
        return None
    own = _group(finding.cause, summary)
    for number, regression in enumerate(listed_regressions(summary), 1):
        if any(_group(at, summary) == own for at in regression.causes):
            return number
    return None


def _group(cause: int, summary: Summary) -> int:
    group = summary.decision.explained.causes[cause].group
    if group is None:
        return cause
    return group


_STANDINGS = phrases(
    {None: "inside the range", "above": "above the range", "below": "below the range"}
)
_OUTSIDE = phrases(
    {"above": "head {head}, above {range}", "below": "head {head}, below {range}"}
)


class StoredRow(NamedTuple):
    """A value of the head, and main's level.

    ``outside`` is set if it lies outside the range of one more run of main. If the
    level is not known, ``runs`` counts the incomparable runs.
    """

    source: StoredComparison
    head: Words
    typical: Words
    range: Words
    standing: Words
    runs: Words
    difference: Words
    outside: Words | None


def stored_row(
    comparison: StoredComparison, neighbours: Sequence[float | None] = ()
) -> StoredRow:
    """A row with a unit and digits that suit the ``neighbours`` too."""
    ends = comparison.interval or (None, None)
    row = [comparison.head, comparison.typical, *ends, *neighbours]
    head, typical, low, high, *_ = formats.quantities(row, comparison)
    # All runs of an exact number agree on one level.
    reach = low
    if low != high:
        reach = say("{low} to {high}", low=low, high=high)
    outside = None
    if comparison.outside:
        outside = say(_OUTSIDE[comparison.outside], head=head, range=reach)
    return StoredRow(
        source=comparison,
        head=head,
        typical=typical,
        range=reach,
        standing=_standing(comparison),
        runs=numbers.counted(comparison.runs or comparison.left_out, "run"),
        difference=_from_main(comparison),
        outside=outside,
    )


def _standing(comparison: StoredComparison) -> Words:
    if comparison.interval is None:
        return say("too few runs")
    if comparison.head_is_busy:
        return say("busy machine")
    return say(_STANDINGS[comparison.outside])


def _from_main(comparison: StoredComparison) -> Words:
    """How far the head is from main's level."""
    if comparison.typical is None:
        return numbers.DASH
    if comparison.head == comparison.typical:
        return say("equal")
    if comparison.delta is None:
        return formats.difference(comparison.typical, comparison.head, comparison)
    return numbers.signed_percent(comparison.delta)

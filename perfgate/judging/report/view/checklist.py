"""The steps of a checklist in words: a decision's for the comment and the page, a run's for the terminal and CI."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from perfgate.catalogue.lookup import CARDS, METRICS
from perfgate.catalogue.names import RANKS_STEP
from perfgate.document.conditions import BUSY
from perfgate.document.decision import StepComparison, StepSummary, StoredComparison
from perfgate.document.job import typical_values
from perfgate.document.message import Message
from perfgate.document.run import FROM_PROFILE, RunDocument, StepResult, Value
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers, svg
from perfgate.judging.report.text.escape import clean
from perfgate.judging.report.text.messages import word, word_findings
from perfgate.judging.report.text.names import first_line, metric_name, place
from perfgate.judging.report.text.templates import Values, line
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.findings import new_of
from perfgate.judging.report.view.rows import stored_row
from perfgate.judging.report.view.summary import Summary

# Names of the statuses, the good ones first.
STATUS_NAMES = {
    "ok": phrase("ok"),
    "not_applicable": phrase("not applicable"),
    "unavailable": phrase("unavailable"),
    "attention": phrase("attention"),
    "invalid": phrase("invalid"),
    "error": phrase("error"),
    "left_out": phrase("not run"),
}
_MARKS = {"severe": "!!", "warning": "!", "info": "i"}
_NOT_IN_TURNS = "notes.not-in-turns"
_NOT_SELECTED = "notes.not-selected"
_SHOWN_VALUES = 6
_SHOWN_OPERATORS = 5


class ChecklistRow(NamedTuple):
    """One step as a table row; ``key`` is its status as in the document, ``notes`` one line each."""

    number: int
    name: str
    key: str
    status: str
    notes: list[str]


def run_title(run: RunDocument) -> Words:
    """One line: project, commit, device."""
    values = {
        "project": run.project,
        "commit": None if run.source.commit is None else run.source.commit[:9],
        "dirty": run.source.dirty,
        "recorded": run.session.command == FROM_PROFILE,
        "device": run.testbed.comparable.get("device.name", run.testbed.device_kind),
        "steps": len(run.steps),
    }
    return line("shared/run_title.j2", "plain", values)


def step_rows(run: RunDocument) -> list[ChecklistRow]:
    """The steps in number order, then by workload."""
    ordered = sorted(run.steps, key=lambda step: (step.workload, step.number))
    several = len({step.workload for step in run.steps}) > 1
    return [step_row(step, several) for step in ordered]


def step_row(step: StepResult, several: bool = False) -> ChecklistRow:
    """One step in words, with the name of its workload if there are ``several``."""
    name = f"{step.slug} · {step.workload}" if several else step.slug
    return ChecklistRow(step.number, name, step.status, say(STATUS_NAMES[step.status]), _notes(step))


def recorded_lines(run: RunDocument) -> list[str]:
    """The counters of each shape of a recording, and its heaviest operators, one per line; empty for a measured run."""
    if run.session.command != FROM_PROFILE:
        return []
    lines = []
    for counters in run.counters:
        words = ", ".join(f"{metric_name(name)} {value:,}" for name, value in counters.values.items())
        lines += [f"{clean(counters.shape)}: {words}", *_heaviest(run, counters.shape)]
    return lines


def job_lines(run: RunDocument) -> list[str]:
    """The numbers of every job of a run, each the median of its turns, one line per job."""
    lines = []
    for job in run.jobs:
        units, turns = (
            {one.metric: one.unit for one in job.numbers},
            sum(turn.workload == job.name for turn in run.turns),
        )
        words = ", ".join(
            f"{clean(metric_name(name))} {formats.quantity(value, units[name], metric=name)}"
            for name, value in typical_values(job, run.turns).items()
        )
        if words:
            lines.append(f"{clean(job.name)}: {words} ({numbers.counted(turns, 'turn')})")
    return lines


def _heaviest(run: RunDocument, shape: str) -> list[str]:
    rows = sorted((row for row in run.operators if row.shape == shape), key=lambda row: -row.self_time)
    return [
        f"    {numbers.percent(row.share)} {clean(row.op)}: {numbers.counted(round(row.count), 'call')}, "
        f"{formats.quantity(row.self_time, 's')}"
        for row in rows[:_SHOWN_OPERATORS]
    ]


def _notes(step: StepResult) -> list[str]:
    present = [value for value in step.values if value.value is not None]
    # If there is no room for all values, the step's leading ones are kept.
    by_rank = sorted(present, key=lambda value: value.metric not in METRICS or not METRICS[value.metric].leading)
    listed = {id(value) for value in by_rank[:_SHOWN_VALUES]}
    notes = []
    for value in present:
        if id(value) in listed:
            unit = METRICS[value.metric].unit if value.metric in METRICS else "1"
            quantity = formats.quantity(value.value, unit, metric=value.metric)
            notes.append(f"{_name(value)} {quantity}{_interval(value, unit)}")
    hidden = len(present) - len(notes)
    notes[:0] = [busy] if (busy := busy_machine(step.waited)) else []
    notes += [say("{more} in run.json", more=numbers.counted(hidden, "more value"))] if hidden else []
    notes += _missing_lines(value for value in step.values if value.value is None)
    notes += [
        f"{_MARKS[finding.severity]} {clean(words, limit=200)}" for finding, words in word_findings(step.findings)
    ]
    if step.error:
        return [*notes, clean(first_line(word(step.error.message)))]
    return notes + ([clean(word(step.reason), limit=200)] if step.reason else [])


def _missing_lines(values: Iterable[Value]) -> list[str]:
    names: dict[str, list[str]] = {}
    for value in values:
        listed = names.setdefault(word(value.reason or ""), [])
        name = _name(value)
        if name not in listed:
            listed.append(name)
    lines: list[str] = []
    for reason, listed in names.items():
        joined = Words(say(", ").join(listed))
        lines.append(
            say("{names}: not available, {reason}", names=joined, reason=Words(clean(word(reason))))
            if reason
            else say("{names}: not available", names=joined)
        )
    return lines


def _name(value: Value) -> str:
    labels = ", ".join(f"{key} {text}" for key, text in sorted(value.labels.items()) if text != "default")
    return clean(metric_name(value.metric) + (f" ({labels})" if labels else ""))


def _interval(value: Value, unit: str) -> str:
    if value.interval is None or value.interval == (None, None):
        return ""
    low, high = (
        say("not estimable") if end is None else formats.quantity(end, unit, metric=value.metric)
        for end in value.interval
    )
    return f" ({numbers.reach(low, high)})"


def step_numbers(summary: Summary) -> list[Values]:
    """The numbers of the checklist, in step order; labelled ones only if they lead or are not zero on a side."""
    decision = summary.decision
    stored = {(s.workload, s.shape, s.metric, *sorted(s.labels.items())): s for s in decision.stored}
    listed = [row for row in decision.checklist if not row.labels or row.base or row.head or row.leads]
    return [
        _worded_number(row, stored.get((row.workload, row.shape, row.metric, *sorted(row.labels.items()))))
        for row in listed
    ]


def uncompared(warnings: Iterable[Message]) -> list[Message]:
    """The notes of a check on steps that had no time for turns, which belong to the checklist."""
    notes = [_of_side(note) for note in warnings]
    return [note for note in notes if _is_on_turns(note)]


def other_notes(warnings: Iterable[Message]) -> list[Message]:
    return [note for note in warnings if not _is_on_turns(_of_side(note))]


def terminal_notes(warnings: Iterable[Message]) -> list[Message]:
    """The notes without the one that repeats the selection on the command line."""
    return [note for note in warnings if not (isinstance(note, Message) and _of_side(note).code == _NOT_SELECTED)]


def _of_side(note: Message) -> Message:
    """The note inside a note about a side, without that side."""
    inner = note.values.get("note") if isinstance(note, Message) else None
    return inner if isinstance(inner, Message) else note


def _is_on_turns(note: Message) -> bool:
    return isinstance(note, Message) and note.code == _NOT_IN_TURNS


def quantile_rows(summary: Summary) -> list[Values]:
    """P50, P90 and P99 of all requests or steps of each job on both sides, with one unit per row."""
    rows: list[Values] = []
    for row in summary.decision.quantiles:
        words = formats.quantities([*row.base, *row.head], "s", metric=row.metric)
        counts = Words(" / ".join(f"{count:,}" for count in row.counts))
        half = len(row.base)
        name = say("step time of all ranks") if row.metric == RANKS_STEP else metric_name(row.metric)
        at = place(row.workload, "")
        rows.append({"name": name, "place": at, "base": words[:half], "head": words[half:], "counts": counts})
    return rows


def _worded_number(row: StepComparison, main: StoredComparison | None) -> Values:
    """A number of a step on both sides, beside main's; ``plot`` draws main's stored runs."""
    ends = [row.bound] if row.bound is not None else []
    of_main = [main.head, main.typical, *(main.interval or ())] if main else []
    values = [row.base, row.head, *ends]
    base, head, *bound = formats.quantities([*values, *of_main], row.unit, metric=row.metric)[: len(values)]
    limit = numbers.DASH if row.tolerance is None else numbers.setting(row.tolerance)
    if bound:
        limit = Words(f"{'≤' if row.at_most else '≥'} {bound[0]}")
    return {
        "step": row.step,
        "workload": row.workload,
        "leads": row.leads,
        "is_resolved": row.is_resolved,
        "title": say(CARDS[row.step].title) if row.step in CARDS else Words(""),
        "metric": row.metric,
        "name": metric_name(row.metric, row.clock),
        "operator": row.labels.get("op", "").removeprefix("aten::"),
        "labels": ", ".join(f"{key} {text}" for key, text in sorted(row.labels.items())),
        "place": place(row.workload, row.shape),
        "base": base,
        "head": head,
        "span": _span(row, base, head),
        "difference": _difference(row),
        "main": stored_row(main, values) if main else None,
        # Main's runs are timed as turns are, and not by the clock that may decide about pairs.
        "main_is_of_the_wall": row.unit == "s" and row.clock != "wall" and row.evidence != "turn",
        "limit": limit,
        "plot": svg.small_line(main.values, say("main's stored runs"), {}) if main else Markup(""),
    }


def _span(row: StepComparison, base: Words, head: Words) -> Words:
    """Both values, each with its range if it has one: ``16 (8 to 32) → 16 (8 to 32)``."""
    if row.base_range is None and row.head_range is None:
        return numbers.span(base, head)
    return Words(f"{_with_range(base, row.base_range, row)} → {_with_range(head, row.head_range, row)}")


def _with_range(value: Words, ends: tuple[float, float] | None, row: StepComparison) -> Words:
    if ends is None or ends[0] == ends[1]:
        return value
    low, high = formats.quantities(ends, row.unit, metric=row.metric)
    return Words(f"{value} ({numbers.reach(low, high)})")


def _difference(row: StepComparison) -> Words:
    """A difference in words: of counts, or of values measured side by side, with its interval."""
    if row.base is None or row.head is None:
        return numbers.DASH
    # A ratio is higher or lower, a count more or fewer.
    unit = "" if row.unit == "1" and not float(row.base).is_integer() else row.unit
    if row.evidence == "count":
        if row.delta is None:
            return formats.difference(row.base, row.head, row.unit, metric=row.metric)
        return formats.directed_percent(row.delta, unit, metric=row.metric)
    if row.interval is None or row.delta is None:
        return say("measured once per side") if row.evidence is None else say("too few turns")
    if row.is_resolved:
        ends = formats.bounds(row.interval, unit, metric=row.metric)
        return Words(f"{formats.directed_percent(row.delta, unit, metric=row.metric)} ({ends})")
    half = (row.interval[1] - row.interval[0]) / 2
    if not math.isfinite(half):
        return say("not resolved (no bound)")
    if half < numbers.NO_CHANGE:
        return say("no change")
    if row.pairs_needed is None:
        return say("not resolved ({width})", width=numbers.plus_minus(half))
    needed = numbers.counted(row.pairs_needed, row.evidence or "turn")
    return say("not resolved ({width}; about {needed})", width=numbers.plus_minus(half), needed=needed)


def tally(steps: list[StepSummary]) -> list[Words]:
    """The number of steps by status, the good ones first: ``14 ok``, ``2 to look at``; then new and gone findings."""
    counts = Counter(step.status for step in steps)
    found = {
        phrase("new"): sum(finding.standing == "new" for step in steps for finding in step.findings),
        phrase("gone"): sum(len(step.gone) for step in steps),
    }
    return [
        say("{count} {status}", count=Words(f"{number:,}"), status=say(name))
        for name, number in [*((name, counts[status]) for status, name in STATUS_NAMES.items()), *found.items()]
        if number
    ]


def worded_steps(steps: Iterable[StepSummary]) -> list[Values]:
    """The steps in number order; an error of the whole workload is shown at its first step only."""
    first: dict[tuple[str, str], int] = {}
    worded = []
    for step in sorted(steps, key=lambda step: (step.number, step.workload)):
        number = step.number
        if step.status == "error" and step.reason is not None:
            number = first.setdefault((step.workload, word(step.reason)), step.number)
        view = worded_step(step)
        if number != step.number:
            view = {**view, "reason": Message("notes.as-step", {"step": number})}
        worded.append(view)
    return worded


def worded_step(step: StepSummary) -> Values:
    """A step of the checklist: its findings worth a look, each with whether the change introduced it, or its reason."""
    # Several shapes may have the same finding; new ones come first.
    judged = sorted(step.findings, key=lambda finding: finding.standing != "new")
    notes = list(dict.fromkeys((words, finding in new_of(step)) for finding, words in word_findings(judged)))
    return {
        "number": step.number,
        "title": say(CARDS[step.number].title) if step.number in CARDS else step.slug,
        "workload": step.workload,
        "status": say(STATUS_NAMES[step.status]) if step.status in STATUS_NAMES else step.status,
        "key": Words(step.status) if step.status in STATUS_NAMES else Words("unknown"),
        "busy": busy_machine(step.waited),
        "notes": notes[:3],
        "more": say("{count} more", count=len(notes) - 3) if len(notes) > 3 else None,
        "reason": step.reason,
    }


def busy_machine(waited: float | None) -> Words | None:
    """The mark of a step timed on a busy machine; it precedes the step's values and findings."""
    if waited is None or waited < BUSY:
        return None
    share = numbers.percent(waited)
    return say("busy machine: waited {share} of the time for a CPU", share=share)

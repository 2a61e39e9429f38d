"""The steps of a run in words, for the terminal, CI and the run's page."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfgate.catalogue.lookup import METRICS
from perfgate.document.conditions import BUSY
from perfgate.document.job import typical_values
from perfgate.document.run import FROM_PROFILE, RunDocument, StepResult, Value
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.escape import MAX_PROSE, clean
from perfgate.judging.report.text.messages import word, word_findings
from perfgate.judging.report.text.names import first_line, metric_name
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words, phrases, say

# Names of the statuses, good statuses first.
STATUS_NAMES = phrases(
    {
        "ok": "ok",
        "not_applicable": "not applicable",
        "unavailable": "unavailable",
        "attention": "attention",
        "invalid": "invalid",
        "error": "error",
        "left_out": "not run",
    }
)
_MARKS = {"severe": "!!", "warning": "!", "info": "i"}
_SHOWN_VALUES = 6
_SHOWN_OPERATORS = 5


class ChecklistRow(NamedTuple):
    """One step as a table row; ``key`` is its status as in the document, ``notes`` one
    line each.
    """

    number: int
    name: str
    key: str
    status: str
    notes: list[str]


def run_title(run: RunDocument) -> Words:
    """One line: project, commit, device."""
    return line(
        "shared/run_title.j2",
        "plain",
        run=run,
        recorded=run.session.command == FROM_PROFILE,
        device=run.testbed.comparable.get("device.name", run.testbed.device_kind),
    )


def step_rows(run: RunDocument) -> list[ChecklistRow]:
    """The steps in number order, then by workload."""
    ordered = sorted(run.checklist.steps, key=lambda step: (step.workload, step.number))
    workloads = {step.workload for step in run.checklist.steps}
    return [step_row(step, len(workloads) > 1) for step in ordered]


def step_row(step: StepResult, several: bool = False) -> ChecklistRow:
    """One step in words, with the name of its workload if there are ``several``."""
    name = step.slug
    if several:
        name = f"{step.slug} · {step.workload}"
    return ChecklistRow(
        step.number, name, step.status, say(STATUS_NAMES[step.status]), _notes(step)
    )


def recorded_lines(run: RunDocument) -> list[str]:
    """The counters of each shape of a recording, and its heaviest operators, one per
    line; empty for a measured run.
    """
    if run.session.command != FROM_PROFILE:
        return []
    lines = []
    for counters in run.checklist.counters:
        words = []
        for name, value in counters.values.items():
            quantity = formats.quantity(value, formats.measure_of(name))
            words.append(f"{metric_name(name)} {quantity}")
        lines.append(f"{clean(counters.shape)}{say(': ')}{say(', ').join(words)}")
        lines += _heaviest(run, counters.shape)
    return lines


def job_lines(run: RunDocument) -> list[str]:
    """The numbers of every job of a run, each the median of its turns, one line per
    job.
    """
    lines = []
    for job in run.jobs.records:
        measures = {number.metric: number for number in job.numbers}
        words = []
        for metric, value in typical_values(job, run.jobs.turns).items():
            quantity = formats.quantity(value, measures[metric])
            words.append(f"{clean(metric_name(metric))} {quantity}")
        if words:
            turns = sum(turn.workload == job.name for turn in run.jobs.turns)
            listed = say(", ").join(words)
            lines.append(
                f"{clean(job.name)}{say(': ')}{listed} ({numbers.counted(turns, 'turn')})"
            )
    return lines


def _heaviest(run: RunDocument, shape: str) -> list[str]:
    rows = [row for row in run.checklist.operators if row.shape == shape]
    rows.sort(key=lambda row: -row.self_time)
    lines = []
    for row in rows[:_SHOWN_OPERATORS]:
        calls = numbers.counted(round(row.count), "call")
        time = numbers.amount(row.self_time, "s")
        lines.append(
            f"    {numbers.percent(row.share)} {clean(row.op)}{say(': ')}{calls}{say(', ')}{time}"
        )
    return lines


def _notes(step: StepResult) -> list[str]:
    notes: list[str] = []
    busy = busy_machine(step.waited)
    if busy is not None:
        notes.append(busy)
    notes += _value_notes([value for value in step.values if value.value is not None])
    notes += _missing_notes(step.values)
    for finding, words in word_findings(step.findings):
        notes.append(f"{_MARKS[finding.severity]} {clean(words, limit=MAX_PROSE)}")
    if step.error:
        notes.append(clean(first_line(word(step.error.message)), limit=MAX_PROSE))
    elif step.reason:
        notes.append(clean(word(step.reason), limit=MAX_PROSE))
    return notes


def _value_notes(present: list[Value]) -> list[str]:
    """The values in their order; if there is no room for all, the leading values stay."""
    by_rank = sorted(present, key=lambda value: not _leads(value))
    leading = {id(value) for value in by_rank[:_SHOWN_VALUES]}
    notes = []
    for value in present:
        if id(value) in leading:
            notes.append(f"{_name(value)} {_with_interval(value)}")
    hidden = len(present) - len(notes)
    if hidden:
        notes.append(
            say("{more} in run.json", more=numbers.counted(hidden, "more value"))
        )
    return notes


def _leads(value: Value) -> bool:
    return value.metric in METRICS and METRICS[value.metric].display.leading


def _missing_notes(values: Iterable[Value]) -> list[str]:
    names_by_reason: dict[str, dict[str, None]] = {}
    for value in values:
        reason = ""
        if value.reason:
            reason = word(value.reason)
        if value.value is None:
            names_by_reason.setdefault(reason, {})[_name(value)] = None
    notes: list[str] = []
    for reason, names in names_by_reason.items():
        joined = Words(say(", ").join(names))
        if reason:
            notes.append(
                say(
                    "{names}: not available, {reason}",
                    names=joined,
                    reason=Words(clean(reason, limit=MAX_PROSE)),
                )
            )
        else:
            notes.append(say("{names}: not available", names=joined))
    return notes


def _name(value: Value) -> str:
    labels = []
    for key, text in sorted(value.labels.items()):
        if text != "default":
            labels.append(f"{key} {text}")
    name = metric_name(value.metric)
    if labels:
        name += f" ({', '.join(labels)})"
    return clean(name)


def _with_interval(value: Value) -> str:
    """A value with its interval: ``1.00 ms (0.998 to 1.01 ms)``."""
    ends = value.interval or (None, None)
    quantity, *worded = formats.quantities(
        [value.value, *ends], formats.measure_of(value.metric)
    )
    if ends == (None, None):
        return quantity
    for number, end in enumerate(ends):
        if end is None:
            worded[number] = say("not estimable")
    low, high = worded
    return f"{quantity} ({numbers.reach(low, high)})"


def busy_machine(waited: float | None) -> Words | None:
    """The mark of a step timed on a busy machine; it precedes the step's values and
    findings.
    """
    if waited is None or waited < BUSY:
        return None
    return say(
        "busy machine: waited {share} of the time for a CPU",
        share=numbers.percent(waited),
    )

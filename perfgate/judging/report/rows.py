"""Table rows of comparisons, in words; shared by the comment, the terminal and the page."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from perfgate.catalogue.lookup import MESSAGES
from perfgate.document.decision import RULE_METHODS, Comparison, PartSite
from perfgate.document.message import Message
from perfgate.judging.report import format as formats
from perfgate.judging.report.causes import Cause, cause_of, causes, parted
from perfgate.judging.report.headline import named_change
from perfgate.judging.report.messages import word
from perfgate.judging.report.summary import Summary, place
from perfgate.judging.report.view import CauseView, Line, Row
from perfgate.judging.report.words import Words, phrase, say

# Of the lines that add to one cause.
_NAMED_LINES = 3
# How code calls operators whose names are the framework's own.
_FAMILIAR = {"aten::_local_scalar_dense": ".item()", "aten::_to_copy": ".to()"}
_OUTCOME_LABELS = {
    "improved": phrase("better"),
    "unchanged": phrase("same"),
    "inconclusive": phrase("undecided"),
    "not_comparable": phrase("not compared"),
}


def row(comparison: Comparison, summary: Summary, changes: Iterable[Cause] = ()) -> Row:
    changes = list(changes)
    cause = cause_of(comparison, changes, summary.decision.operator_tests)
    changed = any(place(comparison.workload, comparison.shape) in change.places for change in changes)
    return Row(
        **vars(named_change(comparison)),
        places=(place(comparison.workload, comparison.shape),),
        label=label(comparison, summary),
        cause=None if cause is None else worded_cause(cause),
        see_why=cause is None and changed and comparison.outcome == "regressed" and _says_not_what(comparison),
    )


def _says_not_what(comparison: Comparison) -> bool:
    """Tell whether a comparison does not say itself what it is made of: a time, and a count without parts."""
    return comparison.unit == "s" or (comparison.method == "exact" and not comparison.parts)


def grouped(rows: Iterable[Row]) -> list[Row]:
    """The rows with those joined that say the same of several places, e.g. a counter of every input shape."""
    joined: dict[tuple[object, ...], Row] = {}
    for entry in rows:
        cause = entry.cause and (entry.cause.op, entry.cause.more, entry.cause.line)
        key = (entry.label, entry.metric, entry.base, entry.head, entry.change, entry.limit, str(entry.reason), cause)
        first = joined.get(key)
        joined[key] = entry if first is None else replace(first, places=(*first.places, *entry.places))
    return list(joined.values())


def label(comparison: Comparison, summary: Summary) -> Words:
    """The row's first word: FAIL only for what fails the gate, ``worse`` for what it merely notes."""
    if comparison.method in RULE_METHODS and comparison.outcome == "unchanged":
        return say("kept")
    if comparison.outcome != "regressed":
        return say(_OUTCOME_LABELS[comparison.outcome])
    if comparison.accepted:
        return say("accepted")
    return Words("FAIL") if comparison.gating and summary.verdict == "FAIL" else say("worse")


def worst_cause(summary: Summary) -> CauseView | None:
    """What made worse what the headline names, in words; None where it is about something else."""
    if summary.worst is None or summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return None
    return row(summary.worst, summary, causes(summary)).cause


def worded_cause(cause: Cause) -> CauseView:
    """One operator's change in words; what did not change or is unknown is None."""
    unit = "B" if cause.amount in ("held", "copied") else "1"
    first = cause.sites[0] if cause.sites else None
    more = cause.more_count
    at_line = more if first is None else first.head - first.base
    op, own_aspect = parted(cause.op)
    is_counted = cause.base_count or cause.head_count  # one that is known by its time alone is not
    base, head = _sides(cause, unit) if is_counted else (formats.DASH, formats.DASH)
    base_input, head_input = _changed_input(cause)
    return CauseView(
        amount=cause.amount,
        here=formats.difference(0, at_line, unit) if at_line else None,
        one_here=at_line == 1,
        in_all=formats.quantity(more, unit) if at_line < more else None,
        lines=_worded_lines(cause.sites, unit),
        more_lines=max(0, len(cause.sites) - _NAMED_LINES),
        tensor=first.tensor if first else None,
        # Why something was compiled again is a code where torch names no guard.
        op=word(Message(op)) if cause.compiling and op in MESSAGES else op,
        familiar=_FAMILIAR.get(op),
        aspect=parted(cause.also)[1] if cause.also else own_aspect,
        compiling=cause.compiling,
        places=cause.places,
        line=cause.line,
        more=formats.difference(0, more, unit) if more else None,
        one=abs(more) == 1,
        base=base,
        head=head,
        time=_grown(cause.more_time, "s"),
        kind=cause.part.kind if cause.part else None,
        inclusive=cause.inclusive,
        function=cause.part.function if cause.part else None,
        base_input=base_input,
        head_input=head_input,
    )


def _sides(cause: Cause, unit: str) -> Sequence[Words]:
    counts = (cause.base_count, cause.head_count)
    return [formats.whole(count) for count in counts] if unit == "1" else formats.quantities(counts, unit)


def _worded_lines(sites: Sequence[PartSite], unit: str) -> list[Line]:
    file = sites[0].line.rpartition(":")[0] if sites else ""
    return [
        Line(
            line=site.line if number == 0 else site.line.removeprefix(file),
            more=formats.quantity(site.head - site.base, unit),
        )
        for number, site in enumerate(sites[:_NAMED_LINES])
    ]


def _changed_input(cause: Cause) -> tuple[str | None, str | None]:
    if cause.part is None or cause.part.base_inputs is None or cause.part.head_inputs is None:
        return None, None
    before, after = cause.part.base_inputs.split(", "), cause.part.head_inputs.split(", ")
    changed = [pair for pair in zip(before, after) if pair[0] != pair[1]]
    first, second = max(changed, key=lambda pair: _extent(pair[1]), default=(None, None))
    if first is None or second is None:
        return None, None
    (shape, _, layout), (other_shape, _, other_layout) = first.partition(" "), second.partition(" ")
    return (shape, other_shape) if layout == other_layout else (first, second)


def _extent(form: str) -> tuple[int, float]:
    sizes = [float(size) for size in re.findall(r"\d+", form.partition("[")[2].partition("]")[0])]
    return len(sizes), math.prod(sizes)


def common_confidence(comparisons: Iterable[Comparison]) -> Words | None:
    """The confidence level the intervals share, None where they differ or there is none."""
    levels = {c.confidence for c in comparisons if c.interval is not None and c.confidence is not None}
    return formats.confidence(levels.pop()) if len(levels) == 1 else None


def _grown(amount: float | None, unit: str) -> Words | None:
    return formats.quantity(amount, unit) if amount is not None and amount > 0 else None

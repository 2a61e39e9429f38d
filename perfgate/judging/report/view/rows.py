"""Table rows of comparisons, in words; shared by the comment, the terminal and the page."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from perfgate.catalogue.lookup import MESSAGES
from perfgate.catalogue.names import LATENCY
from perfgate.document.comparison import Bound, Checked, Clock, Comparison, Exact, Paired
from perfgate.document.decision import StoredComparison
from perfgate.document.explanation import MODES, Bottleneck, Cause, Explanation, OperatorDelta, Part
from perfgate.document.message import Message
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.messages import word
from perfgate.judging.report.text.names import metric_name, place, title_of
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.summary import Summary

# Limit on the lines named for one cause.
_NAMED_LINES = 3
# Familiar spellings in user code of the framework's internal operators.
_FAMILIAR = {"aten::_local_scalar_dense": ".item()", "aten::_to_copy": ".to()"}
_OUTCOME_LABELS = {
    "improved": phrase("better"),
    "unchanged": phrase("same"),
    "inconclusive": phrase("undecided"),
    "not_comparable": phrase("not compared"),
    "informs": phrase("informational"),
}
# Share of the measured difference; a smaller remainder is not reported.
_NOTABLE = 0.05
_BOUNDS: Mapping[Bottleneck, str] = {
    "compute": phrase("compute"),
    "memory": phrase("memory"),
    "scheduling": phrase("the host (scheduling)"),
    "synchronisation": phrase("synchronisation"),
    "transfer": phrase("transfer"),
    "communication": phrase("communication"),
}


@dataclass(frozen=True)
class ComparisonRow:
    """One comparison as a row of a table, with several ``places`` if their rows are equal.

    ``block`` is the number of the cause that is shown above the table, ``failed_check`` the message of a check.
    """

    comparison: Comparison
    places: tuple[str, ...]
    label: Words
    cause: Values | None
    failed_check: Message | None
    listed_below: bool
    block: int | None

    @property
    def is_one_sided(self) -> bool:
        """Whether it is an unchanged number that is only shown to be "not worse"."""
        return is_one_sided(self.comparison)


def row(comparison: Comparison, summary: Summary, block: int | None = None) -> ComparisonRow:
    cause = summary.cause_of(comparison)
    changed = comparison.place in summary.changed_places
    # A time, or a count without parts, does not show its own composition.
    is_whole = comparison.unit == "s" or (isinstance(comparison, Exact) and not comparison.parts)
    return ComparisonRow(
        comparison=comparison,
        places=(place(comparison.workload, comparison.shape),),
        label=label(comparison, summary),
        cause=None if cause is None else worded_cause(cause),
        failed_check=comparison.reason if isinstance(comparison, Checked) else None,
        listed_below=cause is None and changed and comparison.outcome == "regressed" and is_whole,
        block=block,
    )


def grouped(rows: Iterable[ComparisonRow]) -> list[ComparisonRow]:
    """The rows, with equal ones of several places merged, e.g. a counter of every input shape."""
    joined: dict[tuple[object, ...], ComparisonRow] = {}
    for entry in rows:
        cause = entry.block or (entry.cause and tuple(entry.cause[name] for name in ("op", "ranks", "more", "line")))
        one = entry.comparison
        words = (title_of(one), *formats.sides(one), formats.change(one), formats.limit(one), str(one.reason))
        key = (entry.label, *words, cause)
        first = joined.get(key)
        joined[key] = entry if first is None else replace(first, places=(*first.places, *entry.places))
    return list(joined.values())


def is_one_sided(comparison: Comparison) -> bool:
    """Whether an unchanged number is only shown to be "not worse": its interval has no end on the worse side."""
    return isinstance(comparison, Paired) and comparison.outcome == "unchanged" and comparison.is_better


def label(comparison: Comparison, summary: Summary) -> Words:
    """The row's first word: FAIL only if it fails the gate, ``worse`` if it is merely noted."""
    if isinstance(comparison, Bound) and comparison.outcome == "unchanged":
        return say("met")
    if is_one_sided(comparison):
        return say("not slower") if comparison.unit == "s" else say("not worse")
    if isinstance(comparison, Exact) and comparison.outcome == "unchanged" and comparison.base != comparison.head:
        return say("allowed")  # another count, within the limit or for a reason that is no regression
    if comparison.outcome != "regressed":
        return say(_OUTCOME_LABELS[comparison.outcome])
    if comparison.accepted:
        return say("accepted")
    return Words("FAIL") if comparison.gating and summary.verdict == "FAIL" else say("worse")


def worst_cause(summary: Summary) -> Values | None:
    """The cause of the regression in the headline, worded for a title; None if the headline is about something else.

    It is the cause of the first block, if that has the regression; its total with other lines is left to the block.
    """
    if summary.worst is None or summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return None
    cause = summary.leading_cause
    return None if cause is None else {**worded_cause(cause), "in_all": None}


def worded_cause(
    cause: Cause, places: tuple[str, ...] = (), *, linked: Callable[[str], str] = lambda line: line
) -> Values:
    """The values of ``shared/cause.j2``: one operator's change, and the places with it; unchanged and unknown ones are None.

    ``lines`` are those of the project that add to it, each with how much. ``origin`` is the changed place behind a line that is
    itself unchanged; ``code`` is the text of the line that changed. ``linked`` gives each line its address.
    """
    unit = "B" if cause.amount in ("held", "copied", "kept") else "1"
    first = cause.sites[0] if cause.sites else None
    more = cause.more_count
    at_line = more if first is None else first.head - first.base
    is_counted = cause.base_count or cause.head_count  # a cause known by its time alone has no counts
    base, head = numbers.DASH, numbers.DASH
    if is_counted:
        counts = (cause.base_count, cause.head_count)
        base, head = map(numbers.whole, counts) if unit == "1" else formats.quantities(counts, unit)
    base_input, head_input = _changed_input(cause)
    origin = None if cause.origin is None or cause.origin.reach == "line" else cause.origin
    return {
        "amount": cause.amount,
        "here": formats.difference(0, at_line, unit) if at_line else None,
        "one_here": at_line == 1,
        "in_all": formats.quantity(more, unit) if at_line < more else None,
        "lines": _worded_lines(cause.sites, unit, linked),
        "more_lines": max(0, len(cause.sites) - _NAMED_LINES),
        "tensor": first.tensor if first else None,
        # The reason for a recompilation is a code if torch names no guard.
        "op": word(Message(cause.op)) if cause.compiling and cause.op in MESSAGES else cause.op,
        "familiar": _FAMILIAR.get(cause.op),
        "aspect": cause.also or cause.aspect,
        "is_mode": cause.aspect in MODES,
        "ranks": cause.ranks,
        "compiling": cause.compiling,
        "places": places or (place(*cause.place),),
        "line": cause.line and linked(cause.line),
        "origin": None if origin is None else msgspec.structs.replace(origin, line=linked(origin.line)),
        "code": origin.code if origin else cause.code,
        "more": formats.difference(0, more, unit) if more else None,
        "one": abs(more) == 1,
        "base": base,
        "head": head,
        "time": formats.quantity(cause.more_time, "s") if cause.more_time is not None and cause.more_time > 0 else None,
        "kind": cause.kind,
        "inclusive": cause.inclusive,
        "function": cause.function,
        "base_input": base_input,
        "head_input": head_input,
    }


def worded_causes(placed: Iterable[tuple[Cause, tuple[str, ...]]]) -> list[Values]:
    return [worded_cause(cause, places) for cause, places in placed]


def _worded_lines(sites: Sequence[Part], unit: str, linked: Callable[[str], str]) -> list[tuple[str, Words]]:
    listed = [(site.line, formats.quantity(site.head - site.base, unit)) for site in sites if site.line]
    file = listed[0][0].rpartition(":")[0] if listed else ""
    return [
        (linked(line) if number == 0 else line.removeprefix(file), more)
        for number, (line, more) in enumerate(listed[:_NAMED_LINES])
    ]


def _changed_input(cause: Cause) -> tuple[str | None, str | None]:
    if cause.base_inputs is None or cause.head_inputs is None:
        return None, None
    before, after = cause.base_inputs.split(", "), cause.head_inputs.split(", ")
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
    """The common confidence level of the intervals, None if they differ or there is none."""
    paired = [c for c in comparisons if isinstance(c, Paired) and c.interval is not None]
    levels = {c.confidence for c in paired if c.confidence is not None}
    return numbers.confidence(levels.pop()) if len(levels) == 1 else None


_STANDINGS = {
    None: phrase("inside the range"),
    "above": phrase("above the range"),
    "below": phrase("below the range"),
}
_OUTSIDE = {"above": phrase("head {head}, above {range}"), "below": phrase("head {head}, below {range}")}


def stored_row(comparison: StoredComparison, beside: Sequence[float | None] = ()) -> Values:
    """A value of the head beside main's level, with enough unit and digits for the values ``beside`` it too.

    ``outside`` is set if it lies outside the range of one more run of main. If the level is not known, ``runs`` are the
    incomparable ones.
    """
    interval = comparison.interval
    numbers_of_row = [comparison.head, comparison.typical, *(interval or ()), *beside]
    values = formats.quantities(numbers_of_row, comparison.unit, metric=comparison.metric)
    outside = comparison.outside and _OUTSIDE[comparison.outside]
    reach = _reach(values[2], values[3]) if interval else numbers.DASH
    return {
        "name": metric_name(comparison.metric),
        "place": place(comparison.workload, comparison.shape),
        "head": values[0],
        "typical": values[1],
        "range": reach,
        "standing": _standing(comparison),
        "runs": numbers.counted(comparison.runs or comparison.left_out, "run"),
        "busy": numbers.whole(comparison.busy) if comparison.busy else None,
        "head_is_busy": comparison.head_is_busy,
        "difference": _from_main(comparison),
        "outside": say(outside, head=values[0], range=reach) if outside else None,
        "is_known": comparison.typical is not None,
    }


def _standing(comparison: StoredComparison) -> Words:
    if comparison.interval is None:
        return say("too few runs")
    if comparison.head_is_busy:
        return say("busy machine")
    return say(_STANDINGS[comparison.outside])


def _reach(low: Words, high: Words) -> Words:
    """The ends of a range, or the level that all runs of an exact number agree on."""
    return low if low == high else say("{low} to {high}", low=low, high=high)


def _from_main(comparison: StoredComparison) -> Words:
    """How far the head is from main's level."""
    if comparison.typical is None:
        return numbers.DASH
    if comparison.head == comparison.typical:
        return say("equal")
    if comparison.delta is None:
        return formats.difference(comparison.typical, comparison.head, comparison.unit, metric=comparison.metric)
    return numbers.signed_percent(comparison.delta)


def worded_account(summary: Summary) -> Values | None:
    """How the parts of the worst slower call add up to the measured difference, and its bottleneck; None unexplained."""
    explained = next((entry for entry in summary.decision.explanations if (entry.measured or 0.0) > 0), None)
    if explained is None or explained.measured is None or explained.metric is None or not explained.contributions:
        return None
    more = sum(part.seconds for part in explained.contributions if part.seconds > 0)
    saved = sum(-part.seconds for part in explained.contributions if part.seconds < 0)
    rest = explained.measured - explained.explained
    notable = abs(rest) >= _NOTABLE * explained.measured
    return {
        "place": place(explained.workload, explained.shape),
        "metric": metric_name(explained.metric, _clock(summary, explained)),
        "measured": formats.quantity(explained.measured, "s"),
        "more": formats.quantity(more, "s"),
        "saved": formats.quantity(saved, "s") if saved >= _NOTABLE * explained.measured else None,
        "share": numbers.percent(explained.explained / explained.measured),
        "left": formats.quantity(rest, "s") if notable and rest > 0 else None,
        "over": formats.quantity(-rest, "s") if notable and rest < 0 else None,
        "bound": say(_BOUNDS[explained.head_bound]) if explained.head_bound else None,
        "base_bound": say(_BOUNDS[explained.base_bound]) if explained.base_bound else None,
    }


def _clock(summary: Summary, explained: Explanation) -> Clock:
    paired = [c for c in summary.decision.comparisons if isinstance(c, Paired)]
    clocks = (c.clock for c in paired if c.place == explained.place and c.metric == explained.metric)
    return next(clocks, "wall")


def whole_call(test: OperatorDelta, summary: Summary) -> Words | None:
    """The change of the whole call in words, None if unknown."""
    paired = [c for c in summary.metrics if isinstance(c, Paired) and c.is_of_call]
    whole = next((c for c in paired if c.place == test.place and c.metric == LATENCY), None)
    if whole is None or whole.delta is None or whole.outcome == "not_comparable":
        return None
    return say("undecided") if whole.outcome == "inconclusive" else formats.directed_percent(whole.delta, whole.unit)

"""Regressions, one block each: the cause, its cost, and how to accept it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Literal, NamedTuple

import msgspec

from perfgate.catalogue.names import LATENCY_STALLS
from perfgate.document.comparison import (
    Bound,
    Checked,
    Comparison,
    NumberComparison,
    Paired,
)
from perfgate.document.decision import Regression, Suggestion
from perfgate.document.explanation import Cause
from perfgate.document.message import Message
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.escape import MAX_COMMAND, clean
from perfgate.judging.report.text.names import place_of
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.causes import CauseView
from perfgate.judging.report.view.summary import Summary

_COMMIT_LENGTH = 9
# A command with more metrics is too long to paste.
_MOST_PASTED = 12
_MOST_BLOCKS = 3


# The templates of a block's first words, in shared/block.
BlockName = Literal["cause", "unknown", "bound", "change", "metric"]


class BlockCost(NamedTuple):
    """The cost of a regression, for ``shared/block_cost.j2``.

    ``slower`` are the times that got worse, ``apart`` the time that the cause adds by
    itself, and ``at_most`` the slowdown that is still possible if no time is shown to
    be worse.
    """

    slower: list[tuple[Comparison, Words | None]]
    apart: Words | None
    of_job: bool
    at_most: Words | None


class AcceptCommands(NamedTuple):
    """How to accept exactly one regression; each is None if it cannot be used.

    ``command`` names the cause by its number for readers with the check's folder, else
    its metrics. ``order`` is the comment on a forge with comment orders.
    """

    command: str | None
    order: str | None


class RegressionBlock(NamedTuple):
    """The regressions of one cause; if no cause was found, ``worst`` names it.

    ``also`` are the cause's effects on other lines. ``unexplained`` is whether times
    got worse and a search found no cause; ``stalls`` is where calls stall, if a search
    found that. ``reason`` explains a broken rule or check.
    ``suggestion`` leaves out the parts that the cause already shows.

    The block does not repeat the title: with ``in_title`` the title is about this
    block, and ``counts`` are the other metrics, each with the tensor that holds the
    additional memory. With ``names_cause`` the title of the comment names the cause and
    its line too.
    """

    name: BlockName
    worst: Comparison
    reason: Message | None
    places: tuple[str, ...]
    in_title: bool
    names_cause: bool
    cause: CauseView | None
    also: list[CauseView]
    unexplained: bool
    stalls: Message | None
    cost: BlockCost
    counts: list[tuple[Comparison, str | None]]
    suggestion: Suggestion | None
    accept: AcceptCommands


def blocks(summary: Summary) -> list[RegressionBlock]:
    """The numbered regressions of the report; none if the verdict is about something
    else.
    """
    return [
        _block(number, regression, summary)
        for number, regression in enumerate(listed_regressions(summary), 1)
    ]


def blocks_with_more(summary: Summary) -> tuple[list[RegressionBlock], int]:
    """The blocks, and how many regressions have none although others do."""
    listed = blocks(summary)
    if not listed:
        return [], 0
    return listed, len(summary.decision.explained.regressions) - len(listed)


def suggestion_lines(suggestion: Suggestion) -> list[str]:
    """A suggestion in words, then the code and the command to copy."""
    lines: list[str] = [line("shared/suggestion.j2", "plain", suggestion=suggestion)]
    for text in (suggestion.code, suggestion.command):
        if text:
            lines.append(clean(text, limit=MAX_COMMAND))
    return lines


def listed_regressions(summary: Summary) -> list[Regression]:
    if summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return []
    return summary.decision.explained.regressions[: min(_MOST_BLOCKS, summary.detail)]


def block_numbers(summary: Summary) -> dict[int, int]:
    """The number of the listed cause that explains each comparison, by the comparison's
    ``id``.
    """
    numbers_by_id = {}
    for number, regression in enumerate(listed_regressions(summary), 1):
        if regression.causes:
            for comparison in summary.comparisons_at(regression.comparisons):
                numbers_by_id[id(comparison)] = number
    return numbers_by_id


def _block(number: int, regression: Regression, summary: Summary) -> RegressionBlock:
    decision = summary.decision
    title = summary.worst
    causes = [decision.explained.causes[at] for at in regression.causes]
    comparisons = summary.comparisons_at(regression.comparisons)
    worst = comparisons[0]
    in_title = any(c is title for c in comparisons)
    leads = bool(causes) and summary.leading_cause is causes[0]
    cost = _cost(regression, comparisons, summary, in_title=in_title)
    stalls = None
    if (
        worst.metric == LATENCY_STALLS
        and worst.reason
        and "line" in worst.reason.values
    ):
        stalls = worst.reason
    # Times got worse, and a search found no cause; jobs have no such search.
    is_unexplained = (
        not causes
        and stalls is None
        and not set(regression.slower).isdisjoint(regression.comparisons)
        and not all(map(_is_of_job, summary.comparisons_at(regression.slower)))
    )
    return RegressionBlock(
        name=_name(
            worst,
            cost,
            has_cause=bool(causes),
            in_title=in_title,
            is_unexplained=is_unexplained,
        ),
        worst=worst,
        reason=worst.reason if isinstance(worst, (Bound, Checked)) else None,
        places=tuple(dict.fromkeys(map(place_of, comparisons))),
        in_title=in_title,
        names_cause=in_title and leads and bool(causes[0].line),
        cause=CauseView(causes[0], linked=summary.linked) if causes else None,
        also=_elsewhere(causes, summary),
        unexplained=is_unexplained,
        stalls=stalls,
        cost=cost,
        counts=_counts(regression, causes, summary, title=title if in_title else None),
        suggestion=_suggestion(regression, causes, summary),
        accept=_commands(number, regression, summary),
    )


def _name(
    worst: Comparison,
    cost: BlockCost,
    *,
    has_cause: bool,
    in_title: bool,
    is_unexplained: bool,
) -> BlockName:
    """The template of a block's first words; a block does not repeat the title."""
    if has_cause:
        return "cause"
    if is_unexplained and in_title:
        return "unknown"
    if isinstance(worst, Bound) and in_title:
        return "metric"
    if isinstance(worst, Bound) and not worst.is_of_kernels and worst.head is not None:
        return "bound"
    if cost.slower:
        return "metric"
    return "change"


def _cost(
    regression: Regression,
    comparisons: Iterable[Comparison],
    summary: Summary,
    *,
    in_title: bool,
) -> BlockCost:
    titled = None
    apart = None
    at_most = None
    if in_title:
        titled = summary.worst
    if regression.apart is not None:
        apart = numbers.amount(regression.apart, "s")
    if regression.at_most is not None:
        bound = regression.at_most
        if 0 < bound < numbers.NO_CHANGE:
            bound = numbers.NO_CHANGE  # "at most 0.1 %", not "at most under 0.1 %"
        at_most = numbers.percent(bound)
    slower = _worst_shapes(summary.comparisons_at(regression.slower))
    return BlockCost(
        _slower(slower, titled), apart, any(map(_is_of_job, comparisons)), at_most
    )


def _is_of_job(comparison: Comparison) -> bool:
    return isinstance(comparison, Paired) and comparison.is_of_job


def _counts(
    regression: Regression,
    causes: Sequence[Cause],
    summary: Summary,
    *,
    title: Comparison | None,
) -> list[tuple[Comparison, str | None]]:
    """The regressed metrics other than times, rules and the title's metric, each with
    the tensor that holds more memory.

    The shape of the cause comes first, to match the text below them.
    """
    counts = []
    for at in regression.comparisons:
        comparison = summary.decision.comparisons[at]
        if at not in regression.slower and isinstance(comparison, NumberComparison):
            counts.append(comparison)
    if causes:
        counts.sort(key=lambda count: count.place != causes[0].place)
    further = [
        count
        for count in _worst_shapes(counts)
        if title is None or count.metric != title.metric
    ]
    return [(count, _holding(count, summary)) for count in further]


def _suggestion(
    regression: Regression, causes: Collection[Cause], summary: Summary
) -> Suggestion | None:
    """The suggestion without its parts that the cause already shows: line, operator and
    an estimated gain.
    """
    if regression.suggestion is None:
        return None
    tip = summary.decision.explained.suggestions[regression.suggestion]
    if any(tip.line == cause.line for cause in causes):
        tip = msgspec.structs.replace(tip, line=None)
    if any(tip.evidence.get("op") == cause.op for cause in causes):
        tip = msgspec.structs.replace(tip, evidence={})
    is_measured = tip.gain is not None and tip.gain.is_measured
    if is_measured:
        return tip
    return msgspec.structs.replace(tip, gain=None)


def _elsewhere(causes: Sequence[Cause], summary: Summary) -> list[CauseView]:
    """The cause's effects on lines other than its first, one per line.

    The block has already named the change behind them.
    """
    lines = {cause.line for cause in causes[:1]}
    also = []
    for cause in causes:
        if cause.line and cause.line not in lines:
            lines.add(cause.line)
            also.append(CauseView(cause, linked=summary.linked, names_origin=False))
    return also


def _slower(
    times: Iterable[Comparison], titled: Comparison | None
) -> list[tuple[Comparison, Words | None]]:
    """The times that got worse; for the time in the title only the interval, since the
    title has the rest.
    """
    slower: list[tuple[Comparison, Words | None]] = []
    for time in times:
        if time != titled:
            slower.append((time, None))
        elif isinstance(time, Paired) and time.interval and time.confidence is not None:
            slower.append(
                (
                    time,
                    say(
                        "{interval} ({confidence} CI)",
                        interval=formats.interval(time),
                        confidence=numbers.confidence(time.confidence),
                    ),
                )
            )
    return slower


def _worst_shapes(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The first comparison of each metric, which belongs to its worst shape."""
    first: dict[str, Comparison] = {}
    for comparison in comparisons:
        first.setdefault(comparison.metric, comparison)
    return list(first.values())


def _holding(comparison: Comparison, summary: Summary) -> str | None:
    """The tensor that holds the additional memory; None if the comparison is not about
    memory held.
    """
    cause = summary.cause_of(comparison)
    is_known = cause is not None and cause.amount == "held" and cause.sites
    if cause and is_known:
        return cause.sites[0].tensor
    return None


def _commands(number: int, regression: Regression, summary: Summary) -> AcceptCommands:
    if not regression.accepts:
        return AcceptCommands(None, None)
    order = summary.context.accept_order
    folder = summary.context.folder
    keys = regression.accepts
    # A CI job's folder is gone by the time its report is read.
    if folder is not None and not summary.decision.measured.in_ci:
        keys = [str(number)]
        if folder:
            keys += ["--from", folder]
    command = None
    if len(keys) <= _MOST_PASTED:
        command = _accept_command(keys, summary)
    comment = None
    if order is not None:
        comment = order(number, regression.accepts)
    return AcceptCommands(command, comment)


def _accept_command(keys: Sequence[str], summary: Summary) -> str | None:
    # Clones of the branch have it, unlike a merge commit, which only the forge has.
    commit = summary.decision.sides.head.reviewed or summary.decision.sides.head.commit
    if commit is None or not COMMIT_ID.fullmatch(commit):
        return None
    command = f"perfgate baseline accept {shlex.join(keys)} --commit {commit[:_COMMIT_LENGTH]} --reason TEXT"
    # Every medium cuts or replaces what it cannot show, and "|" splits table cells.
    if "|" in command or clean(command, limit=MAX_COMMAND) != command:
        return None
    return command

"""Regressions, one block each: the cause, its cost, and how to accept it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from perfgate.document.comparison import Bound, Checked, Comparison, NumberComparison, Paired
from perfgate.document.decision import Regression, Suggestion
from perfgate.document.explanation import Cause
from perfgate.document.message import Message
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import place
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.rows import worded_cause
from perfgate.judging.report.view.summary import Summary

_COMMIT_LENGTH = 9
_MOST_BLOCKS = 3


# The templates of a block's first words, in shared/block.
BlockName = Literal["cause", "unknown", "bound", "change", "metric"]


@dataclass(frozen=True)
class BlockCost:
    """What a regression costs, for ``shared/block_cost.j2``.

    ``slower`` are the times that got worse, ``apart`` the time that the cause adds by itself, and ``at_most`` the slowdown that
    is still possible if no time is shown to be worse.
    """

    slower: list[tuple[Comparison, Words | None]]
    apart: Words | None
    of_job: bool
    at_most: Words | None


@dataclass(frozen=True)
class AcceptCommands:
    """How to accept exactly one regression; each is None where it cannot be used.

    ``command`` works anywhere, ``here`` is the short form for readers with the check's folder, and ``order`` the comment on a
    forge with comment orders.
    """

    command: str | None
    here: str | None
    order: str | None


@dataclass(frozen=True)
class RegressionBlock:
    """The regressions of one cause; if no cause was found, ``worst`` names it.

    ``also`` are the cause's effects on other lines. ``unexplained`` is whether times got worse and a search found no cause.
    ``reason`` is that of a broken rule or check. ``suggestion`` is the decision's without what the cause already shows.

    The block does not repeat the title: with ``in_title`` the title is about this block, and ``counts`` are the other metrics,
    each with the tensor that holds the additional memory. With ``names_cause`` the title of the comment names the cause and its
    line too.
    """

    name: BlockName
    worst: Comparison
    reason: Message | None
    places: tuple[str, ...]
    in_title: bool
    names_cause: bool
    cause: Values | None
    also: list[Values]
    unexplained: bool
    cost: BlockCost
    counts: list[tuple[Comparison, str | None]]
    suggestion: Suggestion | None
    accept: AcceptCommands


def blocks(summary: Summary) -> list[RegressionBlock]:
    """The numbered regressions of the report; none if the verdict is about something else."""
    return [_block(number, one, summary) for number, one in enumerate(listed_regressions(summary), 1)]


def blocks_with_more(summary: Summary) -> tuple[list[RegressionBlock], int]:
    """The blocks, and how many regressions have none although others do."""
    listed = blocks(summary)
    return listed, len(summary.decision.regressions) - len(listed) if listed else 0


def listed_regressions(summary: Summary) -> list[Regression]:
    if summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return []
    return summary.decision.regressions[: min(_MOST_BLOCKS, summary.detail)]


def block_numbers(summary: Summary) -> dict[int, int]:
    """The number of the listed cause that explains each comparison, by the comparison's ``id``."""
    return {
        id(summary.decision.comparisons[comparison]): number
        for number, one in enumerate(listed_regressions(summary), 1)
        if one.causes
        for comparison in one.comparisons
    }


def _block(number: int, regression: Regression, summary: Summary) -> RegressionBlock:
    decision, title = summary.decision, summary.worst
    causes = [decision.causes[at] for at in regression.causes]
    comparisons = [decision.comparisons[at] for at in regression.comparisons]
    worst = comparisons[0]
    in_title = any(c is title for c in comparisons)
    leads = bool(causes) and summary.leading_cause is causes[0]
    cost = _cost(regression, comparisons, summary, in_title=in_title)
    is_unexplained = not causes and _searched_in_vain(regression, summary)
    counts = _worst_shapes(_counts(regression, causes, comparisons))
    if in_title:
        counts = [c for c in counts if title is None or c.metric != title.metric]
    suggestion = None if regression.suggestion is None else decision.suggestions[regression.suggestion]
    return RegressionBlock(
        name=_name(worst, cost, has_cause=bool(causes), in_title=in_title, is_unexplained=is_unexplained),
        worst=worst,
        reason=worst.reason if isinstance(worst, (Bound, Checked)) else None,
        places=tuple(dict.fromkeys(place(c.workload, c.shape) for c in comparisons)),
        in_title=in_title,
        names_cause=in_title and leads and bool(causes[0].line),
        cause=_short(causes[0], summary) if causes else None,
        also=_elsewhere(causes, summary),
        unexplained=is_unexplained,
        cost=cost,
        counts=[(c, _holding(c, summary)) for c in counts],
        suggestion=None if suggestion is None else _beside(causes, suggestion),
        accept=_commands(number, regression, summary),
    )


def _name(worst: Comparison, cost: BlockCost, *, has_cause: bool, in_title: bool, is_unexplained: bool) -> BlockName:
    """The template of a block's first words; a block does not repeat what the title has said."""
    if has_cause:
        return "cause"
    if is_unexplained and in_title:
        return "unknown"
    if isinstance(worst, Bound) and in_title:
        return "metric"
    if isinstance(worst, Bound) and not worst.is_of_kernels and worst.head is not None:
        return "bound"
    return "metric" if cost.slower else "change"


def _cost(regression: Regression, comparisons: Iterable[Comparison], summary: Summary, *, in_title: bool) -> BlockCost:
    slower = [summary.decision.comparisons[at] for at in regression.slower]
    return BlockCost(
        slower=_told(_worst_shapes(slower), summary.worst if in_title else None),
        apart=None if regression.apart is None else formats.quantity(regression.apart, "s"),
        of_job=any(_is_of_job(c) for c in comparisons),
        at_most=None if regression.at_most is None else numbers.percent(regression.at_most),
    )


def _searched_in_vain(regression: Regression, summary: Summary) -> bool:
    """Whether times got worse for which a search found no cause; jobs have no such search."""
    got_worse = set(regression.slower) & set(regression.comparisons)
    slower = [summary.decision.comparisons[at] for at in regression.slower]
    return bool(got_worse) and not all(_is_of_job(c) for c in slower)


def _is_of_job(comparison: Comparison) -> bool:
    return isinstance(comparison, Paired) and comparison.is_of_job


def _commands(number: int, regression: Regression, summary: Summary) -> AcceptCommands:
    order, folder = summary.context.accept_order, summary.context.folder
    here = None
    # A CI job's folder is gone by the time its report is read.
    if folder is not None and regression.accepts and not summary.decision.in_ci:
        from_folder = ["--from", folder] if folder else []
        here = _accept_command([str(number), *from_folder], summary)
    return AcceptCommands(
        command=_accept_command(regression.accepts, summary),
        here=here,
        order=order(number, regression.accepts) if regression.accepts and order else None,
    )


def _counts(regression: Regression, causes: Sequence[Cause], comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The regressed metrics other than times and rules, those of the cause's own shape first, to match the text below them."""
    times = set(regression.slower)
    counts = [
        c for at, c in zip(regression.comparisons, comparisons) if at not in times and isinstance(c, NumberComparison)
    ]
    return sorted(counts, key=lambda c: bool(causes) and c.place != causes[0].place)


def _beside(causes: Collection[Cause], tip: Suggestion) -> Suggestion:
    """The suggestion without its parts that the cause already shows: line, operator and an estimated gain."""
    return msgspec.structs.replace(
        tip,
        line=None if tip.line in {cause.line for cause in causes} else tip.line,
        evidence={} if tip.evidence.get("op") in {cause.op for cause in causes} else tip.evidence,
        gain=tip.gain if tip.gain and tip.gain.kind == "measured" else None,
    )


def _short(cause: Cause, summary: Summary) -> Values:
    worded = worded_cause(cause, linked=summary.linked)
    return {**worded, "time": None} if worded["here"] else worded


def _elsewhere(causes: Sequence[Cause], summary: Summary) -> list[Values]:
    """The cause's effects on lines other than its first, one per line."""
    by_line = {cause.line: cause for cause in reversed(causes) if cause.line}
    first = causes[0].line if causes else None
    also = [_short(cause, summary) for line, cause in reversed(by_line.items()) if line != first]
    # The block has already named the change behind them.
    return [{**cause, "origin": None} for cause in also]


def _told(slower: Sequence[Comparison], titled: Comparison | None) -> list[tuple[Comparison, Words | None]]:
    """The times that got worse; for the one in the title only the interval, since the title has the rest."""
    told: list[tuple[Comparison, Words | None]] = []
    for time in slower:
        if time != titled:
            told.append((time, None))
        elif isinstance(time, Paired) and (interval := formats.interval(time)) and time.confidence is not None:
            level = numbers.confidence(time.confidence)
            told.append((time, say("{interval} ({confidence} CI)", interval=interval, confidence=level)))
    return told


def _worst_shapes(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The first comparison of each metric, which is that of its worst shape."""
    seen: dict[str, Comparison] = {}
    for comparison in comparisons:
        seen.setdefault(comparison.metric, comparison)
    return list(seen.values())


def _holding(comparison: Comparison, summary: Summary) -> str | None:
    """The tensor that holds the additional memory; None if the comparison is not about memory held."""
    cause = summary.cause_of(comparison)
    return cause.sites[0].tensor if cause and cause.amount == "held" and cause.sites else None


def _accept_command(keys: Sequence[str], summary: Summary) -> str | None:
    # Clones of the branch have it, unlike a merge commit, which only the forge has.
    commit = summary.decision.head.reviewed or summary.decision.head.commit
    if not keys or commit is None or not COMMIT_ID.fullmatch(commit):
        return None
    named = " ".join(shlex.quote(key) for key in keys)
    return f"perfgate baseline accept {named} --commit {commit[:_COMMIT_LENGTH]} --reason TEXT"

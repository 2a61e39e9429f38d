"""Regressions, one block each: the cause, its cost, and how to accept it."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence

import msgspec

from perfgate.document.comparison import Bound, Checked, Comparison, NumberComparison, Paired
from perfgate.document.decision import Regression, Suggestion
from perfgate.document.explanation import Cause
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


def blocks(summary: Summary) -> list[Values]:
    """The numbered regressions of the report; none if the verdict is about something else."""
    return [_block(number, one, summary) for number, one in enumerate(listed_regressions(summary), 1)]


def blocks_with_more(summary: Summary) -> tuple[list[Values], int]:
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


def _block(number: int, regression: Regression, summary: Summary) -> Values:
    """The values of ``shared/block.j2``: the regressions of one cause; if no cause was found, ``worst`` gives the name.

    ``also`` are its effects on other lines. ``unexplained`` is whether times got worse and a search found no cause; jobs have
    no such search. ``accept`` is the command that accepts exactly this regression, ``accept_here`` the short form for readers
    with the check's folder, and ``order`` the comment that accepts it, on a forge with comment orders. ``suggestion`` is
    the decision's without its parts that the cause already shows.

    The block does not repeat the title: with ``in_title`` the title is about this block, and ``counts`` are the other metrics.
    With ``names_cause`` the title of the comment names the cause and its line too.
    """
    decision, title = summary.decision, summary.worst
    causes = [decision.causes[at] for at in regression.causes]
    comparisons = [decision.comparisons[at] for at in regression.comparisons]
    slower = [decision.comparisons[at] for at in regression.slower]
    in_title = any(c is title for c in comparisons)
    worst = comparisons[0]
    bounded = isinstance(worst, Bound)
    exceeds = bounded and not in_title and worst.head is not None and not worst.is_of_kernels
    told = _told(_worst_shapes(slower), title if in_title else None)
    of_job = [c for c in comparisons if isinstance(c, Paired) and c.is_of_job]
    has_slower = bool(set(regression.slower) & set(regression.comparisons))
    tip = None if regression.suggestion is None else decision.suggestions[regression.suggestion]
    order, folder = summary.context.accept_order, summary.context.folder
    # None for a check in CI, because a CI job's folder is gone by the time it is read.
    accepts_here = folder is not None and regression.accepts and not decision.in_ci
    return {
        "cause": _short(causes[0], summary) if causes else None,
        "also": _elsewhere(causes, summary),
        "in_title": in_title,
        "names_cause": bool(in_title and title and causes and causes[0].line and summary.leading_cause is causes[0]),
        "unexplained": has_slower and not causes and not all(isinstance(c, Paired) and c.is_of_job for c in slower),
        "worst": worst,
        "exceeds": exceeds,
        "tells_change": not (told or (in_title and bounded)),
        "rule_reason": worst.reason if isinstance(worst, (Bound, Checked)) else None,
        "places": tuple(dict.fromkeys(place(c.workload, c.shape) for c in comparisons)),
        "slower": told,
        "apart": None if regression.apart is None else formats.quantity(regression.apart, "s"),
        "of_job": bool(of_job),
        "at_most": None if regression.at_most is None else numbers.percent(regression.at_most),
        "counts": [
            (c, _holding(c, summary))
            for c in _worst_shapes(_counts(regression, causes, comparisons))
            if not (in_title and title and c.metric == title.metric)
        ],
        "suggestion": None if tip is None else _beside(causes, tip),
        "accepted": worst.accepted,
        "accept": _accept_command(regression.accepts, summary),
        "accept_here": _accept_command([str(number), *(["--from", folder] if folder else [])], summary)
        if accepts_here
        else None,
        "order": order(number, regression.accepts) if regression.accepts and order else None,
    }


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

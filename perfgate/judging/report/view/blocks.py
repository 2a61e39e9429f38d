"""What got worse, one block a cause: where it comes from, what it costs, what it moved, what to try, how to accept it."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from perfgate.catalogue.names import LATENCY
from perfgate.document.decision import RULE_METHODS, SIDE_BY_SIDE, Comparison, Suggestion
from perfgate.document.explanation import Cause
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.words import Words, say
from perfgate.judging.report.view.causes import cause_of
from perfgate.judging.report.view.headline import named_change
from perfgate.judging.report.view.records import Blocks, CauseBlock, CauseView, Change, SuggestionView
from perfgate.judging.report.view.rows import worded_cause
from perfgate.judging.report.view.suggestions import introduced, worded_suggestion
from perfgate.judging.report.view.summary import Summary, place

_COMMIT_LENGTH = 9
_MOST_BLOCKS = 3
# A longer line is nothing to paste.
_MOST_KEYS = 12
# A shape that is called like this would accept others too.
_PATTERN = re.compile(r"[*?\[@]")


class _Group:
    """Comparisons that got worse by one cause; ``causes`` are its effects that the gate tells apart, the leading one first."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.comparisons: list[Comparison] = []

    @cached_property
    def places(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(place(c.workload, c.shape) for c in self.comparisons))

    @cached_property
    def more_time(self) -> float:
        return max((cause.more_time or 0.0 for cause in self.causes), default=0.0)

    @cached_property
    def slower(self) -> list[Comparison]:
        """The times that got worse, the one that decides first."""
        return sorted(filter(_is_timed, self.comparisons), key=lambda c: c.metric != LATENCY)


def blocks(summary: Summary) -> Blocks:
    """The causes of what got worse, what costs most time first; none where the verdict is about something else."""
    if summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return Blocks([], 0)
    groups = _groups(summary)
    most = _most(summary)
    tips = introduced(summary.decision.suggestions)
    slower = Counter(where for group in groups if group.slower for where in group.places)
    timed = Counter(where for group in groups if group.slower or group.more_time for where in group.places)
    failing = Counter(c.metric for c in summary.regressed if c.gating)
    return Blocks(
        [
            _block(number, group, tips, summary, slower=slower, timed=timed, failing=failing)
            for number, group in enumerate(groups[:most], 1)
        ],
        more=max(0, len(groups) - most),
    )


def block_numbers(summary: Summary) -> dict[int, int]:
    """The number of the listed cause that explains each comparison, by the comparison's ``id``."""
    if summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return {}
    listed = _groups(summary)[: _most(summary)]
    return {
        id(comparison): number
        for number, group in enumerate(listed, 1)
        if group.causes
        for comparison in group.comparisons
    }


def _most(summary: Summary) -> int:
    return min(_MOST_BLOCKS, summary.detail)


def _groups(summary: Summary) -> list[_Group]:
    order = {id(cause): number for number, cause in enumerate(summary.decision.causes)}
    by_key: dict[tuple[object, ...], _Group] = {}
    for comparison in summary.regressed:
        cause = cause_of(comparison, summary)
        if cause is not None:
            key: tuple[object, ...] = ("cause", order[id(cause)] if cause.group is None else cause.group)
        elif _is_timed(comparison):
            key = ("time", place(comparison.workload, comparison.shape))
        else:
            key = (comparison.method, comparison.metric, comparison.limit)
        group = by_key.setdefault(key, _Group())
        group.comparisons.append(comparison)
        if cause is not None and not any(cause is known for known in group.causes):
            group.causes.append(cause)
    for group in by_key.values():
        group.causes.sort(key=lambda cause: order.get(id(cause), len(order)))
    rank = {id(comparison): number for number, comparison in enumerate(summary.regressed)}
    return sorted(
        by_key.values(),
        key=lambda group: (
            not any(c.gating or c.accepted for c in group.comparisons),
            -group.more_time if group.slower or group.more_time else 0.0,
            not group.slower,
            rank[id(group.comparisons[0])],
        ),
    )


def _block(
    number: int,
    group: _Group,
    tips: Iterable[Suggestion],
    summary: Summary,
    *,
    slower: Mapping[str, int],
    timed: Mapping[str, int],
    failing: Mapping[str, int],
) -> CauseBlock:
    """One cause in words; the numbers say how many causes make each place slower, and how often each metric fails."""
    first = group.comparisons[0]
    own = bool(group.slower)
    times = {id(comparison) for comparison in group.slower}
    # The cause's own shape first: what stands below it is then of the same.
    where = group.causes[0].place if group.causes else None
    of_cause = sorted(group.comparisons, key=lambda c: (c.workload, c.shape) != where)
    worst = summary.worst
    in_title = any(c is worst for c in group.comparisons)
    counted = [c for c in of_cause if id(c) not in times and not _is_rule(c)]
    lines = {cause.line for cause in group.causes if cause.line}
    ops = {cause.op for cause in group.causes}
    apt = [tip for tip in tips if (tip.line in lines if tip.line else tip.evidence.get("op") in ops)]
    leading = group.causes[0].op if group.causes else None
    tip = min(apt, key=lambda tip: tip.evidence.get("op") != leading, default=None)
    is_slower = any(slower[where] for where in group.places) or not counted
    costs = [] if own else _costs(summary, group.places)
    keys = _acceptable(group, summary, failing)
    is_apart = group.more_time and (not own or any(timed[where] > 1 for where in group.places))
    return CauseBlock(
        cause=_leading(group, summary),
        also=_elsewhere(group, summary),
        in_title=in_title,
        names_cause=bool(
            in_title and worst and group.causes and group.causes[0].line and cause_of(worst, summary) is group.causes[0]
        ),
        unexplained=own and not group.causes and any(c.method != "turns" for c in group.slower),
        worst=named_change(first),
        places=group.places,
        slower=_told(_worst_shapes(group.slower or costs), worst if in_title else None),
        apart=formats.quantity(group.more_time, "s") if is_apart else None,
        of_job=any(c.method == "turns" for c in group.comparisons),
        at_most=None if own or costs or is_slower else _at_most(summary, group.places),
        counts=[
            replace(named_change(c), tensor=_holding(c, summary))
            for c in _worst_shapes(counted)
            if not (in_title and worst and c.metric == worst.metric)
        ],
        tip=tip,
        suggestion=None if tip is None else _worded(tip, lines, ops),
        accepted=first.accepted,
        keys=keys,
        accept=_accept_command(keys, summary),
        order=_accept_order(number, keys, summary),
    )


def _worded(tip: Suggestion, lines: Collection[str], ops: Collection[str]) -> SuggestionView:
    """The suggestion without what stands above it: line and operator of the cause, and what it costs."""
    worded = worded_suggestion(tip)
    return replace(
        worded,
        line=None if worded.line in lines else worded.line,
        op=None if worded.op in ops else worded.op,
        gain=worded.gain if worded.gain and worded.gain.measured else None,
    )


def _leading(group: _Group, summary: Summary) -> CauseView | None:
    return _short(group.causes[0], summary) if group.causes else None


def _short(cause: Cause, summary: Summary) -> CauseView:
    worded = worded_cause(cause, linked=summary.linked)
    return replace(worded, time=None) if worded.here else worded


def _elsewhere(group: _Group, summary: Summary) -> list[CauseView]:
    """What the cause does on other lines than its first, once for each."""
    by_line = {cause.line: cause for cause in reversed(group.causes) if cause.line}
    first = group.causes[0].line if group.causes else None
    also = [_short(cause, summary) for line, cause in reversed(by_line.items()) if line != first]
    # Which change is behind them the block has said.
    return [replace(cause, origin=None) for cause in also]


def _is_timed(comparison: Comparison) -> bool:
    timed = comparison.unit == "s" and comparison.method not in RULE_METHODS
    return timed or comparison.method in SIDE_BY_SIDE


def _is_rule(comparison: Comparison) -> bool:
    return comparison.method in {"check", *RULE_METHODS}


def _told(slower: Sequence[Comparison], worst: Comparison | None) -> list[Change]:
    """The times that got worse; of the one that the title gives only the interval is left to tell."""
    titled = named_change(worst) if worst else None
    told = []
    for time in map(named_change, slower):
        if time != titled:
            told.append(time)
        elif time.interval and time.confidence:
            bounds = say("{interval} ({confidence} CI)", interval=time.interval, confidence=time.confidence)
            told.append(replace(time, change=bounds, percent=bounds))
    return told


def _worst_shapes(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """Of the comparisons of a metric the first, which is that of its worst shape."""
    seen: dict[str, Comparison] = {}
    for comparison in comparisons:
        seen.setdefault(comparison.metric, comparison)
    return list(seen.values())


def _holding(comparison: Comparison, summary: Summary) -> str | None:
    """The tensor that holds what is more; None where the comparison is not about memory held."""
    cause = cause_of(comparison, summary)
    return worded_cause(cause).tensor if cause and cause.amount == "held" else None


def _costs(summary: Summary, places: Iterable[str]) -> list[Comparison]:
    """The fast paths of these places that took longer for certain, in too few pairs for an alarm, the worst first."""
    found = [
        c
        for c in summary.inconclusive
        if c.metric == LATENCY and c.method == "paired" and place(c.workload, c.shape) in set(places)
    ]
    return sorted(
        (c for c in found if c.excludes_no_change and (c.delta or 0.0) > 0.0),
        key=lambda c: c.delta or 0.0,
        reverse=True,
    )


def _at_most(summary: Summary, places: Iterable[str]) -> Words | None:
    """The largest slowdown of the fast path that the intervals of these places leave possible; None where none was timed, or
    times prove nothing.
    """
    timed = [
        c
        for c in summary.decision.comparisons
        if c.metric == LATENCY and c.method == "paired" and place(c.workload, c.shape) in set(places)
    ]
    if any(c.outcome == "not_comparable" for c in timed):
        return None
    ends = [c.interval[1] for c in timed if c.interval]
    return numbers.percent(max(0.0, *ends)) if ends else None


def _acceptable(group: _Group, summary: Summary, failing: Mapping[str, int]) -> tuple[str, ...]:
    """The metrics that accept exactly this, with their places where others would be accepted too; none where nothing can be."""
    decision = summary.decision
    meant = [c for c in group.comparisons if c.gating and c.method != "check"]
    if summary.verdict != "FAIL" or decision.head.dirty or decision.comparing != "code":
        return ()
    here = Counter(c.metric for c in meant)
    keys: dict[str, None] = {}
    for comparison in meant:
        where = f"{comparison.workload}/{comparison.shape}" if comparison.shape else comparison.workload
        is_all = here[comparison.metric] == failing[comparison.metric]
        if not is_all and _PATTERN.search(where):
            return ()
        keys[comparison.metric if is_all else f"{comparison.metric}@{where}"] = None
    return tuple(keys) if len(keys) <= _MOST_KEYS else ()


def _accept_command(keys: Sequence[str], summary: Summary) -> str | None:
    commit = _commit(summary)
    if not keys or commit is None:
        return None
    named = " ".join(shlex.quote(key) for key in keys)
    return f"perfgate baseline accept {named} --commit {commit[:_COMMIT_LENGTH]} --reason TEXT"


def _accept_order(number: int, keys: Sequence[str], summary: Summary) -> str | None:
    order = summary.context.accept_order
    return order(number, keys) if keys and order else None


def _commit(summary: Summary) -> str | None:
    """The measured commit that clones of the branch have: not a merge, which only the forge has."""
    head = summary.decision.head
    commit = head.reviewed or head.commit
    return commit if commit and COMMIT_ID.fullmatch(commit) else None

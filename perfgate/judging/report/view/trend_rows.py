"""The rows of a trend in words; shared by the issue, the page and the terminal."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping
from datetime import timedelta, timezone
from typing import NamedTuple

from perfgate.document.comparison import Exact, Outcome, Paired
from perfgate.document.explanation import Cause
from perfgate.document.history import Acceptance, Triage, moment
from perfgate.document.trend import (
    BridgedMetric,
    CommitLabel,
    TrendCause,
    TrendChange,
    TrendDocument,
    TrendSeries,
    Uplift,
    place_of,
)
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.text import format as formats
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name
from perfgate.judging.report.text.templates import Values
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.rows import worded_cause

# The metric that shows whether calls got slower.
_TIME = "latency.p50"
# Characters of a commit, and the most commits that the line about gates names.
_COMMIT, _MOST_STANDING = 9, 3
_RECENT_WEEKS = 4
# False alarms of either direction, tested after every version: 0.12 per 100 values of recorded histories, at most 0.2 for
# simulated noise, except if it has two levels or wanders for long (benchmarks/trend).
FALSE_ALARMS_PER_VALUE = 0.002
_EVIDENCE = {
    "exact": phrase("exact count"),
    "confirmed": phrase("confirmed"),
    "suspected": phrase("suspected"),
    "refuted": phrase("refuted"),
}
TRIAGE_STATES = {
    "new": phrase("new"),
    "acknowledged": phrase("acknowledged"),
    "fixed": phrase("fixed"),
    "expected": phrase("expected"),
}
_SUGGESTIONS = {
    "fixed": phrase("the level is back, so it can be marked as fixed"),
    "new": phrase("the runs since then are still on the slower level"),
}
_CERTAIN = ("exact", "confirmed")
_MOST_CERTAIN = 3
_REQUEST = re.compile(r"[#!]\d{1,10}")
_NO_COMMIT = {"subject": "", "author": "", "change_request": ""}
_OUTCOMES: dict[str, Outcome] = {"worse": "regressed", "better": "improved", "changed": "inconclusive"}


class MovedSeries(NamedTuple):
    """A change and the series it is in."""

    series: TrendSeries
    change: TrendChange


class Sorted(NamedTuple):
    """The causes of a trend as they are reported: new ones by direction, open regressions, and those that ended since then."""

    new_worse: list[TrendCause]
    new_better: list[TrendCause]
    new_other: list[TrendCause]
    still_open: list[TrendCause]
    ended: list[TrendCause]


def sort_causes(document: TrendDocument) -> Sorted:
    """The reported causes, certain ones first, without those settled long ago."""
    causes = sorted(document.causes, key=lambda cause: not _is_certain(cause, document))
    fresh = [cause for cause in causes if cause.standing == "new"]
    return Sorted(
        new_worse=[cause for cause in fresh if cause.direction == "worse"],
        new_better=[cause for cause in fresh if cause.direction == "better"],
        new_other=[cause for cause in fresh if cause.direction == "changed"],
        still_open=[cause for cause in causes if cause.standing == "open" and cause.direction == "worse"],
        ended=[
            cause for cause in document.causes if cause.news and cause.standing in ("resolved", "accepted", "refuted")
        ],
    )


def moved_by(cause: TrendCause, document: TrendDocument) -> list[MovedSeries]:
    """The changes of a cause, the leading one first."""
    series = [(document.series[place.series], place.change) for place in cause.changes]
    return [MovedSeries(entry, entry.changes[change]) for entry, change in series]


def cause_row(cause: TrendCause, document: TrendDocument, *, most: int) -> Values:
    """A cause with its leading change, at most ``most`` of the others, and the operators that run more often.

    ``certain`` are exact counters among the others if the lead is only suspected; ``next`` are the commands to act on it.
    """
    first, *others = moved_by(cause, document)
    others.sort(key=lambda moved: moved.change.evidence not in _CERTAIN)
    certain = [
        moved for moved in others if moved.change.evidence == "exact" and moved.change.direction == cause.direction
    ]
    return {
        "lead": change_row(first),
        "standing": Words(cause.standing),
        "others": [change_row(moved) for moved in others[:most]],
        "other_count": len(others),
        "more": max(0, len(others) - most),
        "cause": _worded_operator(cause),
        "no_slowdown": _no_slowdown(cause, document),
        "certain": [change_row(moved) for moved in certain[:_MOST_CERTAIN]]
        if first.change.evidence == "suspected"
        else [],
        "next": [*_next_commands(cause, first), *_triage_commands(cause)],
        "triage": triage_view(cause.triage),
        "suggests": say(_SUGGESTIONS[cause.suggests]) if cause.suggests else None,
        "differences": cause.differences,
    }


def triage_view(triage: Triage | None) -> Values | None:
    """The state that a person gave a regression; None if it has none, or was set back to new."""
    if triage is None or triage.state == "new":
        return None
    return {
        "state": say(TRIAGE_STATES[triage.state]),
        "author": triage.author,
        "when": day(triage.changed_at),
        "reason": triage.reason,
    }


def _is_certain(cause: TrendCause, document: TrendDocument) -> bool:
    return any(
        moved.change.evidence in _CERTAIN and moved.change.direction == cause.direction
        for moved in moved_by(cause, document)
    )


def _next_commands(cause: TrendCause, lead: MovedSeries) -> list[str]:
    """The commands that confirm a regression, find its commit, and accept it."""
    series, change = lead
    if cause.direction != "worse" or cause.standing not in ("new", "open") or not change.first_bad:
        return []
    commands = ["perfgate trend --confirm"] if change.evidence == "suspected" and change.confirmation is None else []
    commands += filter(None, [bisect_command(cause, lead)])
    metric = _at_its_place(series) if len(cause.changes) == 1 else "*"
    commands.append(f"perfgate baseline accept {shlex.quote(metric)} --commit {short(change.first_bad)} --reason TEXT")
    return commands


def bisect_command(cause: TrendCause, lead: MovedSeries) -> str | None:
    """The command that finds the commit of an open regression between the last good run and the first bad one, and shows it.

    None if there is nothing to search. A number that only the checklist has is compared by no gate: any regression counts.
    """
    series, change = lead
    if cause.direction != "worse" or cause.standing not in ("new", "open"):
        return None
    if not (change.last_good and change.first_bad):
        return None
    metric = "" if series.labels or series.informing else f"{shlex.quote(_at_its_place(series))} "
    return f"perfgate bisect {metric}--good {short(change.last_good)} --bad {short(change.first_bad)}"


def check_command(good: str | None, bad: str | None) -> str:
    """The command that measures two commits on one machine; empty if one of them is not known."""
    return f"git checkout {short(bad)} && perfgate check --base {short(good)}" if good and bad else ""


def _at_its_place(series: TrendSeries) -> str:
    """A metric with its workload and shape, as `document.budget.parse_place` reads it."""
    place = f"{series.workload}/{series.shape}" if series.shape else series.workload
    return f"{series.metric}@{place}"


def recent_uplifts(document: TrendDocument) -> list[Uplift]:
    """The uplifts of the last weeks, reported again once a commit joins the testbeds."""
    first = moment(document.newest) - timedelta(weeks=_RECENT_WEEKS)
    return [one for one in document.uplifts if moment(one.since) > first]


def uplift_row(uplift: Uplift, document: TrendDocument, *, most: int) -> Mapping[str, object]:
    """An uplift with at most ``most`` of the metrics that it moved, for trend/uplift.j2."""
    return {
        "first": next(iter(uplift.differences), None),
        "others": uplift.differences[1:],
        "since": day(uplift.since),
        "before": uplift.before[:10],
        "after": uplift.after[:10],
        "commits": len(uplift.commits),
        "moved": [_bridged_row(one, document) for one in uplift.moved[:most]],
        "more": max(0, len(uplift.moved) - most),
        "moved_count": len(uplift.moved),
        "unmoved": uplift.unmoved,
        "undecided": uplift.undecided,
        "command": f"git checkout {short(uplift.last_commit)} && perfgate baseline record"
        if uplift.last_commit
        else "",
    }


def _bridged_row(one: BridgedMetric, document: TrendDocument) -> Mapping[str, object]:
    series = document.series[one.after]
    old, new = formats.quantities([one.old, one.new], series.unit, metric=series.metric)
    return {
        "metric": metric_name(series.metric),
        "place": place_of(series.workload, series.shape, series.labels),
        "change": formats.change(
            _compared(
                series,
                _OUTCOMES[one.direction],
                (one.old, one.new),
                delta=one.delta,
                interval=one.interval,
                is_exact=one.interval is None,
            )
        ),
        "span": numbers.span(old, new),
        "direction": Words(one.direction),
    }


def expired_row(entry: Acceptance) -> Mapping[str, object]:
    """An acceptance that no longer counts, for trend/expired.j2."""
    return {
        "metric": entry.metric,
        "commit": short(entry.commit),
        "by": entry.accepted_by,
        "until": day(entry.until or entry.accepted_at),
        "reason": entry.reason,
    }


def _triage_commands(cause: TrendCause) -> list[str]:
    """The command that notes a regression as known, or as what its histories suggest."""
    is_open = cause.direction == "worse" and cause.standing in ("new", "open") and cause.triage is None
    state = cause.suggests or ("acknowledged" if is_open else None)
    if not cause.first_bad or state is None:
        return []
    return [f"perfgate baseline triage {short(cause.first_bad)} {state} --reason TEXT"]


def _no_slowdown(cause: TrendCause, document: TrendDocument) -> Words | None:
    """A note that no time moved with the counters, with the noise that may hide it; None if one did or no noise is known."""
    moved = moved_by(cause, document)
    if cause.direction != "worse" or any(
        series.kind == "noisy" and change.direction == "worse" and change.standing != "refuted"
        for series, change in moved
    ):
        return None
    workloads = {series.workload for series, _ in moved}
    noises = [
        series.noise
        for series in document.series
        if series.current and series.metric == _TIME and series.workload in workloads and series.noise is not None
    ]
    if not noises:
        return None
    return say(
        "no slowdown shown: the {metric} of one version differs from the next by {noise} without any change",
        metric=Words(metric_name(_TIME)),
        noise=numbers.plus_minus(max(noises)),
    )


def _worded_operator(cause: TrendCause) -> Values | None:
    if not cause.operators:
        return None
    change = cause.operators[0]
    return worded_cause(
        Cause(
            workload=change.workload,
            shape=change.shape,
            op=change.op,
            base_count=change.base_count or 0.0,
            head_count=change.head_count or 0.0,
            line=change.line,
            counted=True,
        ),
        (place_of(change.workload, change.shape, {}),),
    )


def change_row(moved: MovedSeries) -> Values:
    """A change of main's histories. ``author`` and ``change_request`` are those of its commit, if it is one."""
    series, change = moved
    before, after = formats.quantities([change.before, change.after], series.unit, metric=series.metric)
    commits = [_worded_commit(commit) for commit in change.commits]
    return {
        "metric": metric_name(series.metric),
        "place": place_of(series.workload, series.shape, series.labels),
        "change": change_words(moved),
        "span": numbers.span(before, after),
        "when": day(change.first_seen),
        "good": short(change.last_good),
        "bad": short(change.first_bad),
        "commits": commits,
        "commit_count": change.commit_count,
        **(commits[0] if change.commit_count == 1 else _NO_COMMIT),
        "evidence": say(_EVIDENCE[change.evidence]),
        "evidence_key": Words(change.evidence),
        "doubted": change.evidence == "suspected" and change.confirmation is not None,
        "measured": _measured(moved),
        "standing": Words(change.standing),
        "accepted": change.accepted or "",
        "accepted_until": day(change.accepted_until) if change.accepted_until else Words(""),
        "resolved_by": short(change.resolved_by),
        "history": [point.value for point in series.points],
    }


def _worded_commit(commit: CommitLabel) -> Values:
    """A commit with the number of its change request, which a forge may turn into a link."""
    request = commit.change_request if _REQUEST.fullmatch(commit.change_request) else ""
    subject = commit.subject.removesuffix(f" ({request})") if request else commit.subject
    return {
        "commit": commit.commit[:10],
        "subject": subject,
        "author": commit.author,
        "change_request": Words(request),
    }


def change_words(moved: MovedSeries) -> Words:
    """The size of a change, as in the comment of a change request: ``6.8 % slower (5.9 to 7.7 %)``."""
    series, change = moved
    if change.delta is None and change.evidence != "exact":
        return formats.difference(change.before, change.after, series.unit, metric=series.metric)
    return formats.change(_as_comparison(series, change))


def headline(document: TrendDocument) -> Words:
    """A sentence on the changes since the last report, or that nothing moved, or that no series could be examined."""
    causes = sort_causes(document)
    parts = [
        numbers.counted(len(causes.new_worse), "regression") if causes.new_worse else None,
        numbers.counted(len(causes.new_better), "improvement") if causes.new_better else None,
        say("{count} other changes", count=len(causes.new_other)) if causes.new_other else None,
        say("{count} settled", count=len(causes.ended)) if causes.ended else None,
    ]
    moved = [part for part in parts if part]
    still = numbers.counted(len(causes.still_open), "regression") if causes.still_open else None
    if not (moved or still or document.looked_at):
        return say("too few runs to look at yet")
    if not moved:
        return say("nothing moved; {still} still open", still=still) if still else say("nothing moved")
    listed = Words(say(", ").join(moved))
    return say("{moved}; {still} still open", moved=listed, still=still) if still else listed


def searched(document: TrendDocument) -> Words:
    if not document.looked_at:
        return say(
            "No history is long enough yet: a time needs {needed} of main on one testbed, a counter two; there are {runs}.",
            needed=numbers.counted(document.versions_needed, "version"),
            runs=numbers.counted(document.runs, "run"),
        )
    series, values = numbers.counted(document.looked_at, "series", "series"), numbers.counted(document.values, "value")
    if not document.new_values:
        return say("Searched {series} with {values}; none of them is new.", series=series, values=values)
    # Rounded up, so as not to promise fewer.
    chance = math.ceil(document.new_values * FALSE_ALARMS_PER_VALUE * 10) / 10
    return say(
        "Searched {series} with {values}, {new} of them new; noise alone may cause up to {chance} suspected changes in these.",
        series=series,
        values=values,
        new=numbers.whole(document.new_values),
        chance=Words(f"{chance:.1f}"),
    )


def gates_line(document: TrendDocument) -> Words | None:
    """The verdicts on changes, and whether they justify a gate that blocks; None if none was kept."""
    gates = document.gates
    if gates is None:
        return None
    told = say(
        "{gates}: {failed} would have failed, {settled} of them withdrawn or accepted.",
        gates=numbers.counted(gates.gates, "gate"),
        failed=gates.failed,
        settled=gates.accepted + gates.withdrawn,
    )
    names = [Words(entry.commit[:_COMMIT]) for entry in gates.standing if COMMIT_ID.fullmatch(entry.commit)]
    if gates.proven:
        advice = say("Let the gate block: set fail-on to regression.")
    elif names:
        commits = Words(", ").join(names[:_MOST_STANDING])
        advice = say("Look at {commits} before the gate blocks.", commits=Words(commits))
    else:
        advice = say("Let the gate block after {needed}.", needed=numbers.counted(gates.needed, "gate"))
    return Words(f"{told} {advice}")


def day(text: str) -> Words:
    return Words(moment(text).date().isoformat())


def minute(text: str) -> Words:
    return Words(moment(text).astimezone(timezone.utc).strftime("%Y-%m-%d %H:%M"))


def short(commit: object) -> str:
    """A commit in its short form; it is still outside text."""
    return str(commit)[:10] if commit else ""


def _measured(moved: MovedSeries) -> Words:
    confirmation = moved.change.confirmation
    if confirmation is None or confirmation.low is None or confirmation.high is None:
        return Words("")
    series = moved.series
    return formats.bounds((confirmation.low, confirmation.high), series.unit, metric=series.metric)


def _as_comparison(series: TrendSeries, change: TrendChange) -> Exact | Paired:
    return _compared(
        series,
        _OUTCOMES[change.direction],
        (change.before, change.after),
        delta=change.delta,
        interval=change.interval,
        is_exact=change.evidence == "exact",
    )


def _compared(
    series: TrendSeries,
    outcome: Outcome,
    sides: tuple[float | None, float | None],
    *,
    delta: float | None,
    interval: tuple[float, float] | None,
    is_exact: bool,
) -> Exact | Paired:
    """Two levels of a series as a comparison, which the functions of ``format`` word."""
    base, head = sides
    if is_exact:
        return Exact(
            workload=series.workload,
            shape=series.shape,
            metric=series.metric,
            unit=series.unit,
            better=series.better,
            outcome=outcome,
            gating=False,
            base=base,
            head=head,
            delta=delta,
        )
    return Paired(
        workload=series.workload,
        shape=series.shape,
        metric=series.metric,
        unit=series.unit,
        better=series.better,
        outcome=outcome,
        gating=False,
        base=base,
        head=head,
        delta=delta,
        interval=interval,
    )

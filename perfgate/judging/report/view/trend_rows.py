"""The rows of a trend in words; shared by the issue, the page and the terminal."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple

from perfgate.document.decision import TestbedDifference
from perfgate.document.explanation import Cause
from perfgate.document.history import Triage, moment
from perfgate.document.trend import (
    BridgedMetric,
    CommitLabel,
    NotLookedAt,
    TrendCause,
    TrendChange,
    TrendDocument,
    TrendSeries,
    Uplift,
    place_of,
)
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.names import day, listed, metric_name, short
from perfgate.judging.report.text.words import EMPTY, Words, phrases, say
from perfgate.judging.report.view.causes import CauseView

# The metric that shows whether calls got slower.
_TIME = "latency.p50"
# Characters of a commit, and the most commits that the line about gates names.
_COMMIT, _MOST_STANDING = 9, 3
# Characters of a testbed.
_TESTBED = 10
_RECENT_WEEKS = 4
# False alarms of either direction, tested after every version: 0.12 per 100 values of
# recorded histories, at most 0.2 for simulated noise, except if it has two levels or
# wanders for long (benchmarks/trend).
FALSE_ALARMS_PER_VALUE = 0.002
_EVIDENCE = phrases(
    {
        "exact": "exact count",
        "confirmed": "confirmed",
        "suspected": "suspected",
        "refuted": "refuted",
    }
)
TRIAGE_STATES = phrases(("new", "acknowledged", "fixed", "expected"))
_SUGGESTIONS = phrases(
    {
        "fixed": "the level is back, so it can be marked as fixed",
        "new": "the runs since then are still on the slower level",
    }
)
_ORIGINS = phrases(
    {
        "code": "the code",
        "benchmark": "a changed benchmark",
        "host": "the host or its environment",
        "noise": "noise",
    }
)
_SIGNS = phrases(
    {
        "exact_counts": "{name} {before} → {after}, an exact count",
        "confirmed": "both commits were measured side by side",
        "bisected": "a bisection found {name}",
        "alone": "no sign of another origin",
        "workload_changed": "the file, batch or shapes of workload {name} changed",
        "packages": "{name} {before} → {after}",
        "clock": "clock {before} → {after} of the rated one",
        "temperature": "temperature {before} → {after} °C",
        "throttled": "throttled share {before} → {after}",
        "waited": "share of time in which other processes had the CPU {before} → {after}",
        "other_machine": "testbed {name} did not move at this commit",
        "all_workloads": "{name} workloads moved alike",
        "refuted": "both commits measured side by side show no change",
        "returned": "the level was back at {after}, which reverts no commit",
        "one_metric": "no other time of the same place moved",
        "one_shape": "only shape {name} is slower, and only in the newest versions",
    }
)
_MOST_SIGNS = 3
_SETTLED: dict[str, str] = phrases(
    {
        "resolved": "the level is back",
        "superseded": "the benchmark was changed since",
        "accepted": "accepted",
        "refuted": "refuted",
    }
)
_SKIPPED = phrases(
    {
        "too_short": "have too few versions to distinguish a change from noise",
        "not_measured": "have no run in the last four weeks",
        "old_testbed": "are of a testbed no longer in use",
        "metric": "are of metrics that the gate does not judge; select them with `--metric`",
    }
)
_CERTAIN = ("exact", "confirmed")
_MOST_CERTAIN = 3
_REQUEST = re.compile(r"[#!]\d{1,10}")


class MovedSeries(NamedTuple):
    """A change and the series it is in."""

    series: TrendSeries
    change: TrendChange


class CommitView(NamedTuple):
    """A commit with the number of its change request, which a forge may turn into a
    link.
    """

    commit: str
    subject: str
    author: str
    change_request: Words


_NO_COMMIT = CommitView("", "", "", EMPTY)


class ChangeView(NamedTuple):
    """A change of main's histories in words; ``measured`` is the interval of a
    side-by-side measurement, if there is one.
    """

    source: TrendChange
    series: TrendSeries
    change: Words
    span: Words
    commits: Sequence[CommitView]
    evidence: Words
    measured: Words

    @property
    def commit(self) -> CommitView:
        """The only commit that can be the culprit, empty if there are several."""
        if self.commits and self.source.commit_count == 1:
            return self.commits[0]
        return _NO_COMMIT

    @property
    def bad(self) -> str:
        """The only commit that can be the culprit, else the first bad run's."""
        return self.commit.commit or short(self.source.first_bad)

    @property
    def is_confirmed(self) -> bool:
        return self.source.evidence == "confirmed"

    @property
    def is_measured(self) -> bool:
        """Whether a side-by-side measurement, whose interval is known, decided it."""
        return bool(self.measured) and self.source.evidence in ("confirmed", "refuted")

    @property
    def is_undecided(self) -> bool:
        """Whether a side-by-side measurement was inconclusive."""
        return (
            self.source.evidence == "suspected" and self.source.confirmation is not None
        )

    @property
    def is_resolved(self) -> bool:
        return self.source.standing == "resolved"

    @property
    def is_accepted(self) -> bool:
        return self.source.standing == "accepted"

    @property
    def is_refuted(self) -> bool:
        return self.source.standing == "refuted"


class CauseRow(NamedTuple):
    """A cause with its leading change, some of the others, and the operator that runs
    more often.

    ``certain`` are exact counters among the others if the lead is only suspected;
    ``next`` are the commands to act on it. ``settled`` is why it is no longer open.
    ``origin`` is what moved main, with the evidence, and ``carried`` the testbed on
    which it is followed, both empty if unknown.
    """

    lead: ChangeView
    settled: Words
    further: Sequence[ChangeView]
    other_count: int
    more: int
    cause: str | None
    no_slowdown: Words | None
    certain: Sequence[ChangeView]
    next: Sequence[str]
    triage: Triage | None
    suggests: Words
    differences: Sequence[TestbedDifference]
    origin: str
    carried: str


class BridgedView(NamedTuple):
    """A metric that an uplift moved."""

    source: BridgedMetric
    series: TrendSeries
    change: Words
    span: Words


class UpliftView(NamedTuple):
    """A change of testbed with the metrics that it moved; ``command`` joins both
    testbeds if no commit does.
    """

    uplift: Uplift
    moved: Sequence[BridgedView]
    more: int
    command: str


class SkippedSeries(NamedTuple):
    """Series that were not searched, and the reason."""

    series: int
    reason: Words
    names: Sequence[str]
    more: int


class Sorted(NamedTuple):
    """The causes of a report: new causes by direction, open regressions, and causes
    that ended since the last report.
    """

    new_worse: list[TrendCause]
    new_better: list[TrendCause]
    new_other: list[TrendCause]
    still_open: list[TrendCause]
    ended: list[TrendCause]


def sort_causes(document: TrendDocument) -> Sorted:
    """The reported causes, certain causes first, without causes settled long ago.

    What did not come from the code is neither a regression nor an improvement.
    """
    sorted_causes = Sorted([], [], [], [], [])
    of_new = {
        "worse": sorted_causes.new_worse,
        "better": sorted_causes.new_better,
        "changed": sorted_causes.new_other,
    }
    certain_first = sorted(
        document.causes, key=lambda cause: not _is_certain(cause, document)
    )
    for cause in certain_first:
        if cause.standing == "new" and not cause.is_of_code:
            sorted_causes.new_other.append(cause)
        elif cause.standing == "new":
            of_new[cause.direction].append(cause)
        elif cause.standing == "open" and cause.is_open_regression:
            sorted_causes.still_open.append(cause)
    for cause in document.causes:
        if cause.news and cause.standing in _SETTLED:
            sorted_causes.ended.append(cause)
    return sorted_causes


def moved_by(cause: TrendCause, document: TrendDocument) -> list[MovedSeries]:
    """The changes of a cause, the leading one first."""
    moved = []
    for place in cause.changes:
        series = document.series[place.series]
        moved.append(MovedSeries(series, series.changes[place.change]))
    return moved


def cause_row(cause: TrendCause, document: TrendDocument, *, most: int) -> CauseRow:
    """A cause with at most ``most`` of its changes besides the leading one."""
    first, *further = moved_by(cause, document)
    further.sort(key=lambda moved: moved.change.evidence not in _CERTAIN)
    settled = EMPTY
    suggests = EMPTY
    if cause.standing in _SETTLED:
        settled = say(_SETTLED[cause.standing])
    if cause.suggests:
        suggests = say(_SUGGESTIONS[cause.suggests])
    return CauseRow(
        lead=change_row(first),
        settled=settled,
        further=[change_row(moved) for moved in further[:most]],
        other_count=len(further),
        more=numbers.beyond(further, most),
        cause=_worded_operator(cause),
        no_slowdown=_no_slowdown(cause, document),
        certain=_certain(cause, first, further),
        next=[*_next_commands(cause, first), *_triage_commands(cause)],
        triage=shown_triage(cause.triage),
        suggests=suggests,
        differences=cause.differences,
        origin=_worded_origin(cause),
        carried=_worded_carrying(first.change),
    )


def _worded_origin(cause: TrendCause) -> str:
    """What moved main, with the evidence; empty if the runs were not read, or only the
    size speaks for the code.
    """
    if cause.origin is None:
        return EMPTY
    signs = []
    for evidence in cause.origin_evidence[:_MOST_SIGNS]:
        name = evidence.name
        after = evidence.after
        match evidence.sign:
            case "alone" if len(cause.origin_evidence) == 1:
                return EMPTY
            case "exact_counts":
                name = metric_name(name)
            case "other_machine":
                name = name[:_TESTBED]
            case "returned":
                after = short(after)
        signs.append(
            say(
                _SIGNS[evidence.sign],
                name=name,
                before=evidence.before or "–",
                after=after or "–",
            )
        )
    return say(
        "origin: {origin} ({signs})",
        origin=say(_ORIGINS[cause.origin]),
        signs=listed(signs),
    )


def _worded_carrying(change: TrendChange) -> str:
    if change.carried is None:
        return EMPTY
    testbed = change.carried.fingerprint[:_TESTBED]
    since = day(change.carried.since)
    if change.carried.commit:
        return say(
            "followed on testbed {testbed} since {since}; both measured {commit}",
            testbed=testbed,
            since=since,
            commit=short(change.carried.commit),
        )
    return say(
        "followed on testbed {testbed} since {since}", testbed=testbed, since=since
    )


def _certain(
    cause: TrendCause, first: MovedSeries, further: Sequence[MovedSeries]
) -> list[ChangeView]:
    if first.change.evidence != "suspected":
        return []
    rows = []
    for moved in further:
        if (
            moved.change.evidence == "exact"
            and moved.change.direction == cause.direction
        ):
            rows.append(change_row(moved))
    return rows[:_MOST_CERTAIN]


def shown_triage(triage: Triage | None) -> Triage | None:
    """The state that a person gave a regression; None if it was set back to new."""
    if triage is None or triage.state == "new":
        return None
    return triage


def _is_certain(cause: TrendCause, document: TrendDocument) -> bool:
    return any(
        change.evidence in _CERTAIN and change.direction == cause.direction
        for _, change in moved_by(cause, document)
    )


def _next_commands(cause: TrendCause, lead: MovedSeries) -> list[str]:
    """The commands that confirm a regression, find its commit, and accept it."""
    series, change = lead
    if not cause.is_open_regression or not change.first_bad:
        return []
    commands = []
    if change.evidence == "suspected" and change.confirmation is None:
        commands.append("perfgate trend --confirm")
    bisect = bisect_command(cause, lead)
    if bisect:
        commands.append(bisect)
    metric = "*"
    if len(cause.changes) == 1:
        metric = _at_its_place(series)
    commands.append(
        f"perfgate baseline accept {shlex.quote(metric)} --commit {_typed(change.first_bad)} --reason TEXT"
    )
    return commands


def bisect_command(cause: TrendCause, lead: MovedSeries) -> str | None:
    """The command that finds the commit of an open regression between the last good run
    and the first bad one, and shows it.

    None without a range to search, or if a bisection found it already. A number that
    only the checklist has is compared by no gate: any regression counts.
    """
    series, change = lead
    if not cause.is_open_regression or not change.last_good or not change.first_bad:
        return None
    if any(evidence.sign == "bisected" for evidence in cause.origin_evidence):
        return None
    metric = f"{shlex.quote(_at_its_place(series))} "
    if series.labels or series.informing:
        metric = ""
    return f"perfgate bisect {metric}--good {_typed(change.last_good)} --bad {_typed(change.first_bad)}"


def check_command(good: str | None, bad: str | None) -> str:
    """The command that measures two commits on one machine; empty if one of them is not
    known.
    """
    if good and bad:
        return f"git checkout {_typed(bad)} && perfgate check --base {_typed(good)}"
    return ""


def _typed(commit: str | None) -> str:
    """A commit in a command that somebody types: a store may come from others."""
    return shlex.quote(short(commit))


def _at_its_place(series: TrendSeries) -> str:
    """A metric with its workload and shape, as `document.budget.parse_place` reads it."""
    return f"{series.metric}@{place_of(series.workload, series.shape, {})}"


def recent_uplifts(document: TrendDocument) -> list[Uplift]:
    """The uplifts of the last weeks, reported again once a commit joins the testbeds."""
    first = moment(document.runs.newest) - timedelta(weeks=_RECENT_WEEKS)
    return [uplift for uplift in document.uplifts if moment(uplift.since) > first]


def uplift_row(uplift: Uplift, document: TrendDocument, *, most: int) -> UpliftView:
    """An uplift with at most ``most`` of the metrics that it moved."""
    command = ""
    if uplift.last_commit:
        command = (
            f"git checkout {_typed(uplift.last_commit)} && perfgate baseline record"
        )
    return UpliftView(
        uplift=uplift,
        moved=[_bridged_row(bridged, document) for bridged in uplift.moved[:most]],
        more=numbers.beyond(uplift.moved, most),
        command=command,
    )


def _bridged_row(bridged: BridgedMetric, document: TrendDocument) -> BridgedView:
    series = document.series[bridged.after]
    old, new = formats.quantities([bridged.old, bridged.new], series)
    change = formats.change_of_level(bridged.delta, bridged.interval, series)
    if bridged.interval is None:
        change = formats.change_of_count(bridged.old, bridged.new, series)
    return BridgedView(bridged, series, change, numbers.span(old, new))


def _triage_commands(cause: TrendCause) -> list[str]:
    """The command that acknowledges a regression, or gives it the state that its
    histories suggest.
    """
    state = cause.suggests
    if state is None and cause.is_open_regression and cause.triage is None:
        state = "acknowledged"
    if not cause.first_bad or state is None:
        return []
    return [f"perfgate baseline triage {_typed(cause.first_bad)} {state} --reason TEXT"]


def _no_slowdown(cause: TrendCause, document: TrendDocument) -> Words | None:
    """A note that no time moved with the counters, with the noise that may hide it;
    None if one did or no noise is known.
    """
    if cause.direction != "worse":
        return None
    workloads = set()
    for series, change in moved_by(cause, document):
        is_worse = change.direction == "worse" and change.standing != "refuted"
        if is_worse and not series.is_exact:
            return None
        workloads.add(series.workload)
    noises = []
    for series in document.series:
        is_time = (
            series.current and series.metric == _TIME and series.workload in workloads
        )
        if is_time and series.noise is not None:
            noises.append(series.noise)
    if not noises:
        return None
    return say(
        "no slowdown shown: the {metric} of one version differs from the next by {noise} without any change",
        metric=Words(metric_name(_TIME)),
        noise=numbers.plus_minus(max(noises)),
    )


def _worded_operator(cause: TrendCause) -> str | None:
    """The operator that runs more often since a change, with its line."""
    if not cause.operators:
        return None
    change = cause.operators[0]
    operator = Cause(
        workload=change.workload,
        shape=change.shape,
        op=change.op,
        base_count=change.base_count or 0.0,
        head_count=change.head_count or 0.0,
        line=change.line,
        counted=True,
    )
    return CauseView(operator).in_short


def change_row(moved: MovedSeries) -> ChangeView:
    series, change = moved
    before, after = formats.quantities([change.before, change.after], series)
    measured = EMPTY
    confirmation = change.confirmation
    if confirmation and confirmation.low is not None and confirmation.high is not None:
        measured = formats.bounds((confirmation.low, confirmation.high), series)
    return ChangeView(
        source=change,
        series=series,
        change=change_words(moved),
        span=numbers.span(before, after),
        commits=list(map(_worded_commit, change.commits)),
        evidence=say(_EVIDENCE[change.evidence]),
        measured=measured,
    )


def _worded_commit(commit: CommitLabel) -> CommitView:
    request = EMPTY
    subject = commit.subject
    if _REQUEST.fullmatch(commit.change_request):
        request = Words(commit.change_request)
        subject = subject.removesuffix(f" ({request})")
    return CommitView(short(commit.commit), subject, commit.author, request)


def change_words(moved: MovedSeries) -> Words:
    """The size of a change, as in the comment of a change request:
    ``6.8 % slower (5.9 to 7.7 %)``.
    """
    series, change = moved
    if change.evidence == "exact":
        return formats.change_of_count(change.before, change.after, series)
    if change.delta is None:
        return formats.difference(change.before, change.after, series)
    return formats.change_of_level(change.delta, change.interval, series)


def headline(document: TrendDocument) -> Words:
    """A sentence on the changes since the last report, or that there are none, or that
    no series could be examined.
    """
    causes = sort_causes(document)
    moved = []
    if causes.new_worse:
        moved.append(numbers.counted(len(causes.new_worse), "regression"))
    if causes.new_better:
        moved.append(numbers.counted(len(causes.new_better), "improvement"))
    if causes.new_other:
        moved.append(say("{count} other changes", count=len(causes.new_other)))
    if causes.ended:
        moved.append(say("{count} settled", count=len(causes.ended)))
    moved_words = Words(say(", ").join(moved))
    if causes.still_open:
        still = numbers.counted(len(causes.still_open), "regression")
        if moved:
            return say("{moved}; {still} still open", moved=moved_words, still=still)
        return say("nothing moved; {still} still open", still=still)
    if moved:
        return moved_words
    if document.searched.looked_at:
        return say("nothing moved")
    return say("too few runs to look at yet")


def searched(document: TrendDocument) -> Words:
    if not document.searched.looked_at:
        return say(
            "No history is long enough yet: a time needs {needed} of main on one testbed, a counter two; main has {runs}.",
            needed=numbers.counted(document.searched.versions_needed, "version"),
            runs=numbers.counted(document.runs.count, "run"),
        )
    series = numbers.counted(document.searched.looked_at, "series", "series")
    values = numbers.counted(document.searched.values, "value")
    if not document.searched.new_values:
        return say(
            "Searched {series} with {values}; none of them is new.",
            series=series,
            values=values,
        )
    suspected = [
        cause
        for cause in document.causes
        if cause.standing == "new" and not _is_certain(cause, document)
    ]
    if not suspected:
        return say(
            "Searched {series} with {values}, {new} of them new.",
            series=series,
            values=values,
            new=numbers.whole(document.searched.new_values),
        )
    # Rounded up, so as not to promise fewer.
    chance = math.ceil(document.searched.new_values * FALSE_ALARMS_PER_VALUE * 10) / 10
    return say(
        "Searched {series} with {values}, {new} of them new; noise alone may cause up to {chance} suspected changes in these.",
        series=series,
        values=values,
        new=numbers.whole(document.searched.new_values),
        chance=Words(f"{chance:.1f}"),
    )


def skipped_series(entry: NotLookedAt, *, most: int) -> SkippedSeries:
    more = numbers.beyond(entry.names, most)
    return SkippedSeries(
        entry.series, say(_SKIPPED[entry.reason]), entry.names[:most], more
    )


def mark_of(document: TrendDocument, *, is_bad: bool) -> Words:
    """The verdict on main's histories, by which a page is coloured."""
    if is_bad:
        return Words("FAIL")
    if document.searched.looked_at:
        return Words("PASS")
    return Words("SKIPPED")


def gates_line(document: TrendDocument) -> Words | None:
    """The verdicts on changes, and whether they justify a gate that blocks; None if
    none was kept.
    """
    gates = document.gates
    if gates is None:
        return None
    counts = say(
        "{gates}: {failed} would have failed, {settled} of them withdrawn or accepted.",
        gates=numbers.counted(gates.gates, "gate"),
        failed=gates.failed,
        settled=gates.accepted + gates.withdrawn,
    )
    names = [
        Words(gate.commit[:_COMMIT])
        for gate in gates.standing
        if COMMIT_ID.fullmatch(gate.commit)
    ]
    if gates.proven:
        advice = say("Let the gate block: set fail-on to regression.")
    elif names:
        advice = say(
            "Look at {commits} before the gate blocks.",
            commits=Words(", ".join(names[:_MOST_STANDING])),
        )
    else:
        advice = say(
            "Let the gate block after {needed}.",
            needed=numbers.counted(gates.needed, "gate"),
        )
    return Words(f"{counts} {advice}")


def biased_machine_lines(document: TrendDocument) -> list[Words]:
    """The machines whose gates favour one side, with the evidence."""
    if document.gates is None:
        return []
    lines = []
    for entry in document.gates.biased:
        low, high = entry.interval
        line = say(
            "{machine} favours one side: base against base differs by {effect} ({interval}) on average of {gates}.",
            machine=Words(entry.machine),
            effect=numbers.signed_percent(entry.effect),
            interval=numbers.reach(
                numbers.signed_percent(low), numbers.signed_percent(high)
            ),
            gates=numbers.counted(entry.gates, "gate"),
        )
        if entry.sister_gates:
            difference = say(
                "It is the difference from {gates} of the other machines.",
                gates=numbers.counted(entry.sister_gates, "gate"),
            )
            line = Words(f"{line} {difference}")
        lines.append(line)
    return lines

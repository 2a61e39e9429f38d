"""The title: the verdict, and the sentence that explains it."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import multimode

from perfgate.catalogue.names import (
    BUSY,
    HOST,
    JOB_OUTPUT,
    JOB_WORK,
    LATENCY,
    LATENCY_STALLS,
    LOW_PRECISION_OPS,
    MEAN,
    P50,
    SIGNATURE,
)
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.decision import (
    SAME_WORK,
    DecisionDocument,
    PackageDifference,
    TestbedDifference,
)
from perfgate.document.explanation import Replacement
from perfgate.document.message import Message
from perfgate.judging.report.text import formats, numbers
from perfgate.judging.report.text.messages import told
from perfgate.judging.report.text.names import (
    evidence_of,
    metric_name,
    missing_words,
    named,
    place_of,
    title_of,
)
from perfgate.judging.report.text.templates import line
from perfgate.judging.report.text.words import (
    EMPTY,
    Words,
    composed,
    joined,
    phrase,
    phrases,
    say,
)
from perfgate.judging.report.view.summary import Summary, code_of

# The most significant fields of a different stack.
_FIRST_FIELDS = ("torch", "torch_npu", "python")
# The verdicts are the same words in every language; their translation follows them.
VERDICTS = phrases(("PASS", "WARN", "FAIL", "INCONCLUSIVE", "SKIPPED"))
# Times that a PASS did not bound, in its title.
_MOST_OPEN = 2
_COUNTS = (LOW_PRECISION_OPS,)


def headline(summary: Summary) -> Words:
    decision = summary.decision
    stack = ""
    if decision.sides.comparing == "stack":
        stack = _stack(stack_differences(decision))
    title = _title(summary)
    if not title:
        title = (
            told(decision.reasons[0])
            if decision.reasons
            else say("no reason was given")
        )
    return line(
        "shared/headline.j2",
        summary.medium,
        verdict=say(summary.verdict),
        stack=stack,
        title=title,
    )


def _stack(differences: Sequence[TestbedDifference]) -> str:
    """The first difference of an upgraded stack, and how many others there are."""
    upgrade = say("upgrade")
    if not differences:
        return composed("{}: ", upgrade)
    more = EMPTY
    if len(differences) > 1:
        more = say(
            " and {more_differences} more", more_differences=len(differences) - 1
        )
    first = differences[0]
    absent = say("none")
    return composed(
        "{} ({} {} → {}{}): ",
        upgrade,
        first.field,
        first.base or absent,
        first.head or absent,
        more,
    )


def _title(summary: Summary) -> str | None:
    """The sentence behind the verdict; None if the decision's first reason is it."""
    if summary.verdict == "PASS":
        return _of_pass(summary)
    if summary.is_about_harness:
        return _of_harness(summary)
    worst = _worst(summary)
    if summary.verdict in {"FAIL", "WARN"} and worst is not None:
        return _of_loss(worst, summary)
    if summary.failures:
        return _of_failure(summary)
    if summary.verdict == "INCONCLUSIVE":
        return _of_undecided(summary)
    return None


def _worst(summary: Summary) -> Comparison | None:
    """The comparison that got worse, or a rule or check that is not known to hold."""
    if summary.worst is not None:
        return summary.worst
    for comparison in summary.inconclusive:
        if isinstance(comparison, (Bound, Checked)):
            return comparison
    return None


def further_reasons(summary: Summary) -> list[Message]:
    """The decision's reasons that are not in the title, without acceptances, which are
    shown with their causes.
    """
    reasons = summary.decision.reasons
    if _title(summary) is None:
        reasons = reasons[1:]
    return [reason for reason in reasons if code_of(reason) != "verdict.accepted"]


def _is_only_place(summary: Summary) -> bool:
    """Whether everything that was compared, or failed, belongs to one place: numbers
    are then named without it.
    """
    places = {comparison.place for comparison in summary.metrics}
    if len(places) != 1:
        return False
    [(workload, _)] = places
    return all(
        failure.workload == workload for failure in summary.decision.gaps.failures
    )


def _named(comparison: Comparison, summary: Summary) -> str:
    return named(comparison, placeless=_is_only_place(summary))


def _of_loss(worst: Comparison, summary: Summary) -> str:
    """The sentence about one comparison that got worse."""
    place = place_of(worst)
    reason = worst.reason
    if worst.metric == JOB_WORK:
        return _with_reason(
            say("{place} does different work on base and head", place=place), worst
        )
    if worst.metric == JOB_OUTPUT:
        return _with_reason(
            say("{place} produces a different output on head", place=place), worst
        )
    if worst.metric == LATENCY_STALLS:
        return _of_stalls(worst, summary)
    is_of_kernels = isinstance(worst, Bound) and worst.is_of_kernels
    if reason is not None and (worst.metric == SIGNATURE or is_of_kernels):
        return composed("{} ({})", told(reason), place)
    if isinstance(worst, Exact) or worst.metric in _COUNTS:
        return _of_count(worst, summary)
    if isinstance(worst, Checked):
        return say(
            "the output of {place} is wrong: its correctness check failed", place=place
        )
    if isinstance(worst, Bound):
        return _of_bound(worst)
    return _of_waiting_device(worst, summary) or _of_time(worst, summary)


def _with_reason(words: str, comparison: Comparison) -> str:
    if comparison.reason is None:
        return words
    return composed("{}: {}", words, told(comparison.reason))


def _of_bound(worst: Bound) -> str:
    metric = title_of(worst)
    place = place_of(worst)
    limit = formats.limit(worst)
    if worst.head is None:
        words = say(
            "{metric} of {place} is not shown to meet its bound of {limit}",
            metric=metric,
            place=place,
            limit=limit,
        )
        return _with_reason(words, worst)
    sentence = phrase("{metric} of {place} is {head}, {change} of {limit}")
    words = say(
        sentence,
        metric=metric,
        place=place,
        head=formats.sides(worst)[1],
        change=formats.change(worst),
        limit=limit,
    )
    if not worst.limit:
        return words
    return composed("{} ({})", words, _with_reason(worst.limit, worst))


def _of_count(worst: Comparison, summary: Summary) -> str:
    span = numbers.span(*formats.sides(worst))
    if isinstance(worst, Exact) and worst.costless:
        words = say("{span}, calls not slower", span=span)
    elif formats.is_leak(worst.metric):
        words = say("{span} (a leak)", span=span)
    else:
        words = say("{span} (exact)", span=span)
    return composed("{} {}{}", _named(worst, summary), words, _accepted(worst))


def _of_time(worst: Comparison, summary: Summary) -> str:
    change = formats.percent_change(worst)
    span = numbers.span(*formats.sides(worst))
    if change:
        span = Words(f"{change} ({span})")
    else:
        span = Words(f"({span})")
    return composed("{} {}{}", _named(worst, summary), span, _accepted(worst))


def _of_waiting_device(worst: Comparison, summary: Summary) -> str | None:
    """The device's and the host's time of a call that waits for its host; None if the
    device itself became slower.
    """
    clocks = {
        c.metric: c
        for c in summary.metrics
        if isinstance(c, Paired) and c.place == worst.place
    }
    busy = clocks.get(BUSY)
    host = clocks.get(HOST)
    if worst.metric not in (HOST, LATENCY, P50) or busy is None or host is None:
        return None
    if busy.outcome == "regressed" or host.outcome != "regressed" or not host.gating:
        return None
    words = say(
        "device {device}, host {host}: calls wait for the host",
        device=_with_half_width(busy),
        host=_with_half_width(host),
    )
    return joined(_place_before(worst, summary), words, _accepted(worst))


def _place_before(comparison: Comparison, summary: Summary) -> str:
    """The place with a colon; empty if it is the only one."""
    if _is_only_place(summary):
        return EMPTY
    return composed("{}: ", place_of(comparison))


def _with_half_width(time: Paired) -> Words:
    """A change and half the width of its interval."""
    change = numbers.signed_percent(time.delta or 0.0)
    if time.interval is None:
        return change
    low, high = time.interval
    return Words(f"{change} ({numbers.plus_minus((high - low) / 2)})")


def _of_stalls(worst: Comparison, summary: Summary) -> str:
    """The stalls, with the change of the mean call of their place."""
    parts = [_place_before(worst, summary)]
    if worst.reason:
        parts.append(told(worst.reason))
    for comparison in summary.metrics:
        if comparison.metric == MEAN and comparison.place == worst.place:
            change = formats.percent_change(comparison)
            if change:
                parts.append(say("; mean call {change}", change=change))
            break
    return joined(*parts, _accepted(worst))


def _accepted(comparison: Comparison) -> str:
    if comparison.accepted:
        return say(", accepted by {accepted}", accepted=told(comparison.accepted))
    return EMPTY


def _of_harness(summary: Summary) -> str:
    change = summary.telling_harness_changes[0]
    words = composed("{} ({})", told(change.message), change.workload)
    if len(change.lines) != 1:
        return words
    return joined(words, say(" at {line}", line=change.lines[0]))


def _of_failure(summary: Summary) -> str:
    failure = summary.failures[0]
    who = say("the base could not be measured:")
    if summary.neither_side_runs:
        who = say("neither base nor head runs here:")
    elif failure.side == "head":
        who = say("the change could not be measured:")
    failed = say(
        "{what} of {workload} failed", what=failure.what, workload=failure.workload
    )
    return composed("{} {}", who, failed)


def _of_undecided(summary: Summary) -> str | None:
    """The first obstacle to a verdict; None if only the decision's reasons name it."""
    decision = summary.decision
    if summary.is_unread:
        return say("the measuring job left no usable results")
    if decision.sides.testbed_differences:
        return _of_testbeds(decision.sides.testbed_differences)
    if decision.gaps.invalid:
        first = decision.gaps.invalid[0]
        sentence = phrase("the times of {place} are invalid: {message}")
        return say(sentence, place=place_of(first), message=told(first.message))
    if summary.has_reason("uncounted"):
        return None
    if summary.out_of_time:
        return _of_spent_time(summary.out_of_time)
    if decision.gaps.missing:
        first_missing = missing_words(decision.gaps.missing[0])
        return joined(
            first_missing, _and_more(len(decision.gaps.missing) - 1, "more number")
        )
    if summary.unjudged:
        return _of_unjudged(summary.unjudged[0])
    if summary.too_slow:
        return _of_slow_calls(summary)
    return _of_noise(summary)


def _of_spent_time(workloads: Sequence[str]) -> str:
    words = say(
        "the time budget ran out before a verdict on {workload}", workload=workloads[0]
    )
    return joined(words, _and_more(len(workloads) - 1, "more workload"))


def _of_noise(summary: Summary) -> str | None:
    if not summary.metrics:
        return say("no metric could be compared")
    if summary.inconclusive:
        return _of_open(summary.inconclusive[0], summary)
    if summary.has_reason("untimed"):
        return say("the recordings contain no comparable times")
    return None


def _and_more(count: int, noun: str) -> Words:
    if count > 0:
        return say(" and {more}", more=numbers.counted(count, noun))
    return EMPTY


def _of_testbeds(differences: Sequence[TestbedDifference]) -> str:
    first = say(
        "base and head ran on different testbeds ({differing}",
        differing=differences[0].field,
    )
    more = _and_more(len(differences) - 1, "more field")
    return joined(first, more, say("); nothing was compared"))


def _of_unjudged(rule: Bound) -> str:
    sentence = phrase("{subject} could not be checked against perfgate.toml")
    if rule.is_sla:
        sentence = phrase("{subject} could not be judged")
    words = say(sentence, subject=named(rule))
    if rule.limit:
        words = composed("{} ({})", words, rule.limit)
    return _with_reason(words, rule)


def _of_slow_calls(summary: Summary) -> str:
    words = say("times were not measured")
    if summary.unchanged:
        words = say(
            "{unchanged} unchanged, but times were not measured",
            unchanged=numbers.counted(len(summary.unchanged), "metric"),
        )
    slow = summary.too_slow[0]
    return composed("{} ({}: {})", words, slow.workload, told(slow.error.message))


def _of_open(comparison: Comparison, summary: Summary) -> str:
    parts = [say("{subject} undecided", subject=_named(comparison, summary))]
    interval = formats.interval(comparison)
    if interval:
        parts.append(Words(f": {interval}"))
    if isinstance(comparison, Paired) and comparison.pairs:
        parts.append(
            say(
                " after {pairs}",
                pairs=numbers.counted(comparison.pairs, evidence_of(comparison)),
            )
        )
    return joined(*parts)


def _of_pass(summary: Summary) -> str | None:
    if summary.improved:
        words = _of_improvement(summary)
    elif summary.unchanged:
        words = _of_no_slowdown(summary) or _of_unchanged(summary)
    else:
        return None
    return joined(words, *_not_excluded(summary), *_replaced(summary.decision))


def _of_improvement(summary: Summary) -> str:
    best = summary.improved[0]
    span = numbers.span(*formats.sides(best))
    is_in_percent = not isinstance(best, Exact) and formats.percent_change(best)
    change = formats.change(best) if is_in_percent else say("improved")
    parts: list[str] = [composed("{} {}: {}", _named(best, summary), change, span)]
    faster = _faster(summary)
    if not is_in_percent and faster:
        parts += [
            say(", "),
            composed("{} {}", _named(faster, summary), formats.change(faster)),
        ]
    return joined(
        *parts,
        say(", {unchanged} unchanged", unchanged=Words(f"{len(summary.unchanged):,}")),
    )


def deciding_times(summary: Summary) -> list[Paired]:
    """The fast paths of calls, on an accelerator with the time of kernels and of an
    exposed host, and the numbers of jobs.
    """
    times = []
    for comparison in summary.metrics:
        if isinstance(comparison, Paired) and comparison.gating:
            is_fast_path = comparison.is_of_call and comparison.metric in (
                BUSY,
                LATENCY,
                HOST,
            )
            if comparison.is_of_job or is_fast_path:
                times.append(comparison)
    return times


def _faster(summary: Summary) -> Paired | None:
    """The deciding time with the largest improvement, for titles that lead with a
    count; None if no interval shows one.
    """
    best = None
    largest = 0.0
    for time in deciding_times(summary):
        if time.is_better and abs(time.delta or 0.0) > largest:
            best = time
            largest = abs(time.delta or 0.0)
    return best


def _of_no_slowdown(summary: Summary) -> str | None:
    """The deciding time that may have got worse by most: a call's fast path or a number
    of a job; None if none was compared.

    Of jobs the places are numbers.
    """
    times = [
        time
        for time in deciding_times(summary)
        if time.interval and time.delta is not None
    ]
    if not times:
        return None
    of_jobs = any(time.is_of_job for time in times)
    if any(code_of(time.reason) == SAME_WORK for time in times):
        largest = 0.0
        for time in times:
            low, high = time.interval or (0.0, 0.0)
            largest = max(largest, abs(low), abs(high))
        return say("same work; time within {size}", size=numbers.plus_minus(largest))
    margin = _margin(times, summary, of_jobs=of_jobs)
    parts = [say("no slowdown above {margin}", margin=numbers.setting(margin))]
    several = len(times) > 1
    places = len({time.place for time in times})
    if of_jobs and several:
        parts.append(
            say(" in {numbers}", numbers=numbers.counted(len(times), "number"))
        )
    worst = max(times, key=_possible_loss)
    sentence = phrase("{metric} {change}, at most {at_most}")
    if places > 1:
        sentence = phrase(
            "worst of {places} shapes is {metric} of {place} {change}, at most {at_most}"
        )
    if of_jobs and several:
        sentence = phrase("worst is {metric} of {place} {change}, at most {at_most}")
    words = say(
        sentence,
        metric=title_of(worst),
        place=place_of(worst),
        places=Words(f"{places:,}"),
        change=numbers.signed_percent(worst.delta or 0.0),
        at_most=numbers.signed_percent(_worse_end(worst)),
    )
    return joined(*parts, *_wider_margins(times, margin), Words(": "), words)


def _worse_end(time: Paired) -> float:
    low, high = time.interval or (0.0, 0.0)
    if time.better == "higher":
        return low
    return high


def _possible_loss(time: Paired) -> float:
    """The share by which a time may have got worse; below 0 if it certainly got
    better.
    """
    if time.better == "higher":
        return -_worse_end(time)
    return _worse_end(time)


def _margin(times: Sequence[Paired], summary: Summary, *, of_jobs: bool) -> float:
    """The most frequent margin; of calls the largest, because they are one number in
    several places.
    """
    margins = [time.excluded for time in times if time.excluded is not None]
    if not margins:
        return summary.decision.excluded
    if of_jobs:
        return min(multimode(margins))
    return max(margins)


def _wider_margins(times: Sequence[Paired], margin: float) -> list[str]:
    """The numbers for which only a larger slowdown is excluded, in parentheses."""
    wider: dict[tuple[float, str], None] = {}
    for time in times:
        if time.excluded is not None and time.excluded > margin:
            wider[time.excluded, title_of(time)] = None
    words = []
    separator = Words(" (")
    for excluded, metric in wider:
        words += [
            separator,
            say(
                "{margin} for {metric}", margin=numbers.setting(excluded), metric=metric
            ),
        ]
        separator = say(", ")
    if words:
        words.append(Words(")"))
    return words


def _of_unchanged(summary: Summary) -> str:
    words = say(
        "{all} unchanged", all=numbers.counted(len(summary.unchanged), "metric")
    )
    if summary.is_about_rules:
        met = sum(isinstance(comparison, Bound) for comparison in summary.unchanged)
        words = say("{rules} of perfgate.toml met", rules=numbers.counted(met, "rule"))
    if not summary.inconclusive:
        return words
    return joined(
        words,
        say(
            ", {undecided} undecided", undecided=Words(f"{len(summary.inconclusive):,}")
        ),
    )


def _not_excluded(summary: Summary) -> list[str]:
    """The gating times that may be slower by more than their margin, farthest beyond it
    first; of each metric the worst.
    """
    largest: dict[str, tuple[float, Paired]] = {}
    for time in summary.inconclusive:
        if not isinstance(time, Paired) or time.interval is None:
            continue
        is_open = code_of(time.reason) == "gate.slowdown-possible"
        if not (is_open and time.is_of_call and time.gating and time.unit == "s"):
            continue
        bound = time.interval[1]
        if time.metric not in largest or bound > largest[time.metric][0]:
            largest[time.metric] = bound, time
    ranked = sorted(
        largest.values(),
        key=lambda entry: entry[0] - (entry[1].tolerance or 0.0),
        reverse=True,
    )
    words = []
    for bound, time in ranked[:_MOST_OPEN]:
        words.append(
            say(
                "; {metric} may be up to {bound} slower",
                metric=metric_name(time.metric, time.clock),
                bound=numbers.percent(bound),
            )
        )
    return words


def _replaced(decision: DecisionDocument) -> list[str]:
    """The operators replaced by others, each once for all workloads and shapes."""
    distinct: dict[tuple[object, ...], Replacement] = {}
    for replaced in decision.explained.replaced:
        distinct.setdefault((replaced.before, replaced.after, replaced.line), replaced)
    if not distinct:
        return []
    first = decision.explained.replaced[0]
    words = [
        say("; {before} replaced by {after}", before=first.before, after=first.after)
    ]
    if first.line:
        words.append(say(" at {line}", line=first.line))
    return [*words, _and_more(len(distinct) - 1, "more operator")]


def loaded_differences(decision: DecisionDocument) -> list[PackageDifference]:
    """The differing packages of which the workloads load a module."""
    return [
        difference
        for difference in decision.sides.package_differences
        if difference.loaded
    ]


def stack_differences(decision: DecisionDocument) -> list[TestbedDifference]:
    """The differing fields and packages: torch and Python first, those on one side only
    last; each package once.
    """
    fields = {difference.field for difference in decision.sides.testbed_differences}
    packages = [
        difference
        for difference in loaded_differences(decision)
        if difference.field not in fields
    ]
    return [
        *sorted(decision.sides.testbed_differences, key=_rank),
        *sorted(packages, key=_rank),
    ]


def _rank(difference: TestbedDifference) -> tuple[int, bool]:
    rank = len(_FIRST_FIELDS)
    if difference.field in _FIRST_FIELDS:
        rank = _FIRST_FIELDS.index(difference.field)
    return rank, difference.base is None or difference.head is None

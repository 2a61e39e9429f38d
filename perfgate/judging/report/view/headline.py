"""The title: the choice among the sentences of ``templates/shared/headline.j2``, and the numbers in it."""

from __future__ import annotations

from statistics import multimode

from perfgate.catalogue.names import (
    JOB_OUTPUT,
    JOB_WORK,
    LATENCY,
    LATENCY_STALLS,
    LOW_PRECISION_OPS,
    MEAN,
    SIGNATURE,
)
from perfgate.document.comparison import Bound, Checked, Comparison, Exact, Paired
from perfgate.document.decision import DecisionDocument, PackageDifference, TestbedDifference
from perfgate.document.explanation import Replacement
from perfgate.document.message import Message
from perfgate.judging.report.text import numbers
from perfgate.judging.report.text.names import metric_name, place
from perfgate.judging.report.text.templates import Medium, Values, line
from perfgate.judging.report.text.words import Words, phrase, say
from perfgate.judging.report.view.summary import Summary

# The most significant fields of a different stack.
_FIRST_FIELDS = ("torch", "torch_npu", "python")
_NAMED_MISSING = 8
# The verdicts are the same words in every language; their translation is shown beside them.
_VERDICTS = {
    "PASS": phrase("PASS"),
    "WARN": phrase("WARN"),
    "FAIL": phrase("FAIL"),
    "INCONCLUSIVE": phrase("INCONCLUSIVE"),
    "SKIPPED": phrase("SKIPPED"),
}
# Titles about one number.
_NUMBERS = {"time", "counter", "undecided", "improved", "stalls"}
# Times that a PASS did not bound, in its title.
_MOST_OPEN = 2
_METRIC_KINDS = {
    SIGNATURE: "signature",
    LOW_PRECISION_OPS: "counter",
    LATENCY_STALLS: "stalls",
    JOB_WORK: "other_work",
    JOB_OUTPUT: "other_output",
}


def headline(summary: Summary, medium: Medium) -> Words:
    return line("shared/headline.j2", medium, {"headline": headline_values(summary)})


def headline_values(summary: Summary) -> Values:
    """The values of ``shared/headline.j2``; ``kind`` picks the sentence.

    With ``placeless`` it names numbers without their place, because there is only one.
    """
    kind = _kind(summary)
    worst = _named(summary, kind)
    best = next(iter(summary.improved), None)
    differences = stack_differences(summary.decision)
    return {
        "upgrade": summary.decision.comparing == "stack",
        "rules": summary.decision.comparing == "rules",
        "kept": sum(isinstance(comparison, Bound) for comparison in summary.unchanged),
        "difference": next(iter(differences), None),
        "more_differences": max(0, len(differences) - 1),
        "harness": next(iter(summary.telling_harness_changes), None),
        "verdict": say(_VERDICTS[summary.verdict]),
        "kind": kind,
        "worst": worst,
        "costless": isinstance(worst, Exact) and worst.costless,
        "best": best,
        "best_is_count": isinstance(best, Exact),
        "faster": _faster(summary),
        "placeless": kind in _NUMBERS and _is_only_place(summary),
        "failure": next(iter(summary.failures), None),
        "neither_runs": summary.neither_side_runs,
        "too_slow": next(iter(summary.too_slow), None),
        "differing": [difference.field for difference in summary.decision.testbed_differences],
        "invalid": summary.decision.invalid,
        "missing": next(iter(summary.decision.missing), None),
        "more_missing": max(0, len(summary.decision.missing) - 1),
        "reason": next(iter(summary.decision.reasons), None),
        "unchanged": len(summary.unchanged),
        "undecided": len(summary.inconclusive),
        "fast": _fast_path(summary),
        "mean": _mean_beside(worst, summary) if kind == "stalls" and worst is not None else None,
        "not_excluded": _not_excluded(summary) if summary.verdict == "PASS" else [],
        "replaced": _replaced(summary.decision),
    }


def _is_only_place(summary: Summary) -> bool:
    """Whether everything that was compared, or failed, belongs to one place."""
    places = {comparison.place for comparison in summary.metrics}
    workloads = {workload for workload, _ in places} | {failure.workload for failure in summary.decision.failures}
    return len(places) == len(workloads) == 1


def _replaced(decision: DecisionDocument) -> list[Replacement]:
    """The operators replaced by others, each once for all workloads and shapes."""
    distinct: dict[tuple[object, ...], Replacement] = {}
    for replaced in decision.replaced:
        distinct.setdefault((replaced.before, replaced.after, replaced.line), replaced)
    return list(distinct.values())


def deciding_times(summary: Summary) -> list[Paired]:
    """The fast paths of calls, and the numbers of jobs."""
    gating = [c for c in summary.metrics if isinstance(c, Paired) and c.gating]
    return [c for c in gating if c.is_of_job or (c.is_of_call and c.metric == LATENCY)]


def _faster(summary: Summary) -> Paired | None:
    """The deciding time with the largest improvement, for titles that lead with a count; None if no interval shows one."""
    better = [c for c in deciding_times(summary) if c.is_better and c.delta is not None]
    return max(better, key=lambda c: abs(c.delta or 0.0), default=None)


def _fast_path(summary: Summary) -> Values | None:
    """The deciding time that may have got worse by most: a call's fast path or a number of a job; None if none was compared.

    Of jobs the places are numbers. ``wider`` are those for which only a slowdown larger than ``margin`` is excluded.
    """
    timed = [
        (c.interval[0] if c.better == "higher" else c.interval[1], c.delta, c)
        for c in deciding_times(summary)
        if c.interval and c.delta is not None
    ]
    if not timed:
        return None
    worst_end, delta, worst = max(timed, key=lambda entry: abs(entry[0]))
    of_jobs = any(c.is_of_job for _, _, c in timed)
    margins = [c.excluded for _, _, c in timed if c.excluded is not None]
    # The most frequent margin; of calls the largest, because they are one number in several places.
    margin = (min(multimode(margins)) if of_jobs else max(margins)) if margins else summary.decision.excluded
    wider = [
        (c.excluded, metric_name(c.metric, c.clock))
        for _, _, c in timed
        if c.excluded is not None and c.excluded > margin
    ]
    return {
        "margin": numbers.setting(margin),
        "wider": [(numbers.setting(excluded), name) for excluded, name in dict.fromkeys(wider)],
        "of_jobs": of_jobs,
        "metric": metric_name(worst.metric, worst.clock),
        "place": place(worst.workload, worst.shape),
        "places": len(timed),
        "change": numbers.signed_percent(delta),
        "at_most": numbers.signed_percent(worst_end),
    }


def _mean_beside(stalls: Comparison, summary: Summary) -> Comparison | None:
    """The mean call of the place of ``stalls``."""
    return next((c for c in summary.metrics if c.metric == MEAN and c.place == stalls.place), None)


def _not_excluded(summary: Summary) -> list[Values]:
    """The gating times that may be slower by more than their margin, farthest beyond it first; of each metric the worst."""
    largest: dict[str, tuple[float, Paired]] = {}
    for compared in summary.inconclusive:
        if not isinstance(compared, Paired) or not compared.is_of_call:
            continue
        reason = compared.reason
        is_open = compared.gating and compared.unit == "s"
        if not is_open or compared.interval is None or reason is None or reason.code != "gate.slowdown-possible":
            continue
        bound = compared.interval[1]
        if compared.metric not in largest or bound > largest[compared.metric][0]:
            largest[compared.metric] = bound, compared
    ranked = sorted(largest.values(), key=lambda entry: entry[0] - (entry[1].tolerance or 0.0), reverse=True)
    return [
        {"metric": metric_name(compared.metric, compared.clock), "bound": numbers.percent(bound)}
        for bound, compared in ranked[:_MOST_OPEN]
    ]


def missing_values(summary: Summary) -> Values:
    """The values of ``shared/missing_list.j2``."""
    missing = summary.decision.missing
    return {
        "missing": missing[:_NAMED_MISSING],
        "more_missing": max(0, len(missing) - _NAMED_MISSING),
    }


def further_reasons(summary: Summary) -> list[Message]:
    """The decision's reasons without the one in the title, and without acceptances, which are shown with their causes."""
    reasons = summary.decision.reasons[1 if _kind(summary) == "reason" else 0 :]
    return [reason for reason in reasons if reason.code != "verdict.accepted"]


def _kind(summary: Summary) -> str:
    if summary.verdict == "PASS":
        return "improved" if summary.improved else "unchanged" if summary.unchanged else "reason"
    if summary.is_about_harness:
        return "harness"
    worst = _named(summary, "")
    if summary.verdict in {"FAIL", "WARN"} and worst is not None:
        return _kind_of_loss(worst)
    if summary.failures:
        return "failure"
    return _undecided_kind(summary) if summary.verdict == "INCONCLUSIVE" else "reason"


def _kind_of_loss(worst: Comparison) -> str:
    """The sentence about one comparison that got worse."""
    if worst.metric in _METRIC_KINDS:
        return _METRIC_KINDS[worst.metric]
    match worst:
        case Checked():
            return "correctness"
        case Bound():
            return "expect" if worst.is_of_kernels else "budget"
        case Exact():
            return "counter"
        case _:
            return "time"


def _named(summary: Summary, kind: str) -> Comparison | None:
    if kind == "unjudged":
        return summary.unjudged[0]
    if kind == "undecided":
        return summary.inconclusive[0]
    broken = [comparison for comparison in summary.inconclusive if isinstance(comparison, (Bound, Checked))]
    return summary.worst or next(iter(broken), None)


def _undecided_kind(summary: Summary) -> str:
    checks: list[tuple[object, str]] = [
        (summary.is_unread, "unread"),
        (summary.decision.testbed_differences, "testbed"),
        (summary.decision.invalid, "invalid"),
        (summary.has_reason("uncounted"), "reason"),
        (summary.decision.missing, "missing"),
        (summary.unjudged, "unjudged"),
        (summary.too_slow, "too_slow"),
        (not summary.metrics, "nothing"),
        (summary.inconclusive, "undecided"),
        (summary.has_reason("untimed"), "untimed"),
    ]
    return next((kind for condition, kind in checks if condition), "reason")


def loaded_differences(decision: DecisionDocument) -> list[PackageDifference]:
    """The differing packages of which the workloads load a module."""
    return [difference for difference in decision.package_differences if difference.loaded]


def stack_differences(decision: DecisionDocument) -> list[TestbedDifference]:
    """The differing fields and packages: torch and Python first, those on one side only last; each package once."""
    fields = {difference.field for difference in decision.testbed_differences}
    packages = [difference for difference in loaded_differences(decision) if difference.field not in fields]
    return [*sorted(decision.testbed_differences, key=_rank), *sorted(packages, key=_rank)]


def _rank(difference: TestbedDifference) -> tuple[int, bool]:
    rank = _FIRST_FIELDS.index(difference.field) if difference.field in _FIRST_FIELDS else len(_FIRST_FIELDS)
    return rank, difference.base is None or difference.head is None

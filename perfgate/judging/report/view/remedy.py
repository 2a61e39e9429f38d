"""The remedy if the gate could not decide, or did not look."""

from __future__ import annotations

from perfgate.document.comparison import Bound, Comparison, NumberComparison, Paired
from perfgate.document.message import Message
from perfgate.document.run import TIME_SPENT
from perfgate.judging.report.text.names import evidence_of, place, title_of
from perfgate.judging.report.text.templates import Medium, ReadyHtml, Values, render
from perfgate.judging.report.text.words import Words
from perfgate.judging.report.view.facts import budget_of
from perfgate.judging.report.view.headline import further_reasons, missing_values
from perfgate.judging.report.view.summary import Summary

_MOST_REASONS = 5
# More pairs than this many whole jobs can measure are out of reach of another job.
_FULL_JOBS = 2
# Reasons already worded in the title, the table or the list of actions.
_WORDED = {
    f"verdict.{code}"
    for code in (
        "regressed",
        "failed",
        "testbed",
        "invalid",
        "missing",
        "nothing-compared",
        "undecided",
        "doubtful",
        "harness",
        "not-judged",
        "costless",
        "counted-only",
    )
}


def remedy(summary: Summary) -> Values:
    """The values of ``shared/remedy.j2``."""
    decision = summary.decision
    open_ones = [c for c in summary.inconclusive if c.must_decide]
    return {
        "verdict": summary.verdict,
        "reasons": [
            reason
            for reason in further_reasons(summary)
            if not (isinstance(reason, Message) and reason.code in _WORDED)
        ][:_MOST_REASONS],
        "failed_sides": set() if summary.is_about_harness else {failure.side for failure in summary.failures},
        "same_tree": any(reason.code == "gate.no-change" for reason in decision.reasons if isinstance(reason, Message)),
        "neither_runs": summary.neither_side_runs,
        "other_harness": summary.is_about_harness and summary.verdict == "INCONCLUSIVE",
        "costless": summary.verdict == "WARN" and summary.has_reason("costless"),
        "unmeasured": needs_workload(summary),
        "narrower": summary.is_about_harness and summary.verdict == "WARN",
        "differs": bool(decision.testbed_differences) and decision.comparing == "code",
        "invalid": decision.invalid[:_MOST_REASONS],
        **missing_values(summary),
        "invalid_kinds": {entry.kind for entry in decision.invalid},
        "undecided": summary.verdict == "INCONCLUSIVE"
        and any(isinstance(comparison, NumberComparison) for comparison in summary.inconclusive),
        "unjudged": summary.verdict == "INCONCLUSIVE" and bool(summary.unjudged),
        "budget_for_slow": max((budget for f in summary.too_slow if (budget := budget_of(f))), default=None),
        "out_of_time": any(failure.error.message == TIME_SPENT for failure in decision.failures),
        "unread": summary.verdict == "INCONCLUSIVE" and summary.is_unread,
        "nothing": summary.verdict == "INCONCLUSIVE" and not summary.metrics,
        # An upgrade report starts anew each time, so it cannot ask for more pairs.
        "wanted": _wanted(open_ones, decision.policy.looks[-1]) if decision.comparing == "code" else None,
        "in_ci": decision.in_ci,
        # Pairs accumulate per commit; uncommitted changes cannot be measured again.
        "uncommitted": decision.head.dirty,
        "recorded": decision.recorded,
        "broken_promise": any(
            isinstance(c, Bound) and not c.is_of_kernels and not c.gating for c in summary.inconclusive
        ),
    }


def needs_workload(summary: Summary) -> bool:
    """Whether the base branch demands that a workload runs changed code, and none does."""
    return not summary.is_measured and summary.verdict in {"WARN", "FAIL"}


def has_remedy(summary: Summary) -> bool:
    return summary.verdict in {"INCONCLUSIVE", "WARN", "SKIPPED"} or needs_workload(summary)


def _wanted(open_ones: list[Comparison], last_look: int) -> Values | None:
    """The evidence missing from the first of these comparisons, which the title names; None if no known amount would decide.

    ``others`` need more too. ``looks_used_up``: the last look ended the measuring, so a larger budget gives no more pairs.
    """
    paired = [c for c in open_ones if isinstance(c, Paired)]
    lacking = [(c, c.pairs, c.pairs_needed) for c in paired if c.pairs and c.pairs_needed and c.pairs_needed > c.pairs]
    if not lacking:
        return None
    (first, measured, needed), *others = lacking
    of_pairs = not first.is_of_job
    return {
        "metric": title_of(first),
        "place": place(first.workload, first.shape),
        "needed": needed,
        "measured": measured,
        "evidence": evidence_of(first),
        "out_of_reach": of_pairs and needed > _FULL_JOBS * last_look,
        "looks_used_up": of_pairs and measured >= last_look,
        "others": [c for c, _, _ in others[:_MOST_REASONS]],
    }


def remedy_lines(summary: Summary, medium: Medium) -> list[Words]:
    """The remedy as one item per line, for media that format lists themselves."""
    if not has_remedy(summary):
        return []
    text = render("shared/remedy.j2", medium, remedy(summary))
    items = [line.strip().removeprefix("- ") for line in text.splitlines() if line.strip()]
    return [ReadyHtml(item) if medium == "html" else Words(item) for item in items]

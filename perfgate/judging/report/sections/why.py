"""Why it got slower: the operators that came or grew, and the lines that call them."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import Bottleneck, Clock, Explanation
from perfgate.judging.report import format as formats
from perfgate.judging.report.causes import across_places, causes
from perfgate.judging.report.headline import metric_name
from perfgate.judging.report.rows import worded_cause
from perfgate.judging.report.summary import Summary, place
from perfgate.judging.report.words import phrase, say

_SHOWN = 6
# Of what was measured; less is not worth a word.
_TOLD = 0.05
_BOUNDS: Mapping[Bottleneck, str] = {
    "compute": phrase("computing"),
    "memory": phrase("memory"),
    "scheduling": phrase("the host (scheduling)"),
    "synchronisation": phrase("synchronisation"),
    "transfer": phrase("transfer"),
    "communication": phrase("communication"),
}


class Why:
    """Operator changes and counter parts, the largest first, and how much time they account for."""

    order = 60
    drop = 10
    title = "why"
    template = "why.md.j2"
    numbered = True

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        ranked = across_places(causes(summary)) if summary.verdict in {"FAIL", "WARN"} and summary.regressed else []
        if not ranked:
            return None
        most = min(_SHOWN, summary.detail)
        return {
            "causes": [worded_cause(cause) for cause in ranked[:most]],
            "more": max(0, len(ranked) - most),
            "account": worded_account(summary),
        }


def worded_account(summary: Summary) -> Mapping[str, object] | None:
    """How the parts of the worst slower call add up to what was measured, and what holds it up; None unexplained."""
    explained = _explanation(summary)
    if explained is None or explained.measured is None or not explained.contributions:
        return None
    more = sum(part.seconds for part in explained.contributions if part.seconds > 0)
    saved = sum(-part.seconds for part in explained.contributions if part.seconds < 0)
    rest = explained.measured - explained.explained
    notable = abs(rest) >= _TOLD * explained.measured
    return {
        "place": place(explained.workload, explained.shape),
        "metric": metric_name(explained.metric or "", _clock(summary, explained)),
        "measured": formats.quantity(explained.measured, "s"),
        "more": formats.quantity(more, "s"),
        "saved": formats.quantity(saved, "s") if saved >= _TOLD * explained.measured else None,
        "share": formats.percent(explained.explained / explained.measured),
        "left": formats.quantity(rest, "s") if notable and rest > 0 else None,
        "over": formats.quantity(-rest, "s") if notable and rest < 0 else None,
        "bound": say(_BOUNDS[explained.head_bound]) if explained.head_bound else None,
        "base_bound": say(_BOUNDS[explained.base_bound]) if explained.base_bound else None,
    }


def _clock(summary: Summary, explained: Explanation) -> Clock:
    key = (explained.workload, explained.shape, explained.metric)
    compared = summary.decision.comparisons
    return next(
        (
            comparison.clock
            for comparison in compared
            if (comparison.workload, comparison.shape, comparison.metric) == key
        ),
        "wall",
    )


def _explanation(summary: Summary) -> Explanation | None:
    slower = [entry for entry in summary.decision.explanations if entry.measured is not None and entry.measured > 0]
    worst = {(entry.workload, entry.shape): number for number, entry in reversed(list(enumerate(summary.regressed)))}
    return min(slower, key=lambda entry: worst.get((entry.workload, entry.shape), len(worst)), default=None)


SECTION = Why()

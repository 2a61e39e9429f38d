"""Why it got slower: the operators that came or grew, and the lines that call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.document.decision import Bottleneck, Comparison, Explanation
from perfgate.judging.report import format as formats
from perfgate.judging.report.causes import across_places, causes
from perfgate.judging.report.locale.language import phrase, say
from perfgate.judging.report.rows import worded_cause
from perfgate.judging.report.summary import Summary, place

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

    def fill(self, summary: Summary) -> Optional[Mapping[str, object]]:
        """Return the changed operators of a decision that says something got worse."""
        found = across_places(causes(summary)) if summary.verdict in {"FAIL", "WARN"} and summary.regressed else []
        if not found:
            return None
        shown = min(_SHOWN, summary.detail)
        return {
            "causes": [worded_cause(cause) for cause in found[:shown]],
            "more": max(0, len(found) - shown),
            "account": worded_account(summary),
            "profiled": _account_of_profiler(summary),
        }


def worded_account(summary: Summary) -> Optional[Mapping[str, object]]:
    """Return how the parts of the worst slower call add up to what was measured, and what holds it up; None unexplained."""
    explained = _explanation(summary)
    if explained is None or explained.measured is None or not explained.contributions:
        return None
    more = sum(part.seconds for part in explained.contributions if part.seconds > 0)
    saved = sum(-part.seconds for part in explained.contributions if part.seconds < 0)
    left = explained.measured - explained.explained
    told = abs(left) >= _TOLD * explained.measured
    return {
        "place": place(explained.workload, explained.shape),
        "measured": formats.quantity(explained.measured, "s"),
        "more": formats.quantity(more, "s"),
        "saved": formats.quantity(saved, "s") if saved >= _TOLD * explained.measured else None,
        "share": formats.percent(explained.explained / explained.measured),
        "left": formats.quantity(left, "s") if told and left > 0 else None,
        "over": formats.quantity(-left, "s") if told and left < 0 else None,
        "bound": say(_BOUNDS[explained.head_bound]) if explained.head_bound else None,
        "base_bound": say(_BOUNDS[explained.base_bound]) if explained.base_bound else None,
    }


def _explanation(summary: Summary) -> Optional[Explanation]:
    """Return the explanation of the worst call that takes longer."""
    slower = [one for one in summary.decision.explanations if one.measured is not None and one.measured > 0]
    worst = {(one.workload, one.shape): number for number, one in reversed(list(enumerate(summary.regressed)))}
    return min(slower, key=lambda one: worst.get((one.workload, one.shape), len(worst)), default=None)


def _account_of_profiler(summary: Summary) -> Optional[Mapping[str, object]]:
    """Return measured and profiled growth of the worst slower call, for documents without an explanation."""
    slower = next((c for c in summary.regressed if c.unit == "s" and c.method == "paired"), None)
    if slower is None or slower.base is None or slower.head is None:
        return None
    profiled = _profiled(summary, slower)
    measured = slower.head - slower.base
    # What the profiler adds makes the two differ; where they differ much, the sentence would explain nothing.
    if measured <= 0 or not 0.3 * measured < profiled < 2 * measured:
        return None
    return {
        "place": place(slower.workload, slower.shape),
        "measured": formats.quantity(measured, "s"),
        "profiled": formats.quantity(profiled, "s"),
    }


def _profiled(summary: Summary, slower: Comparison) -> float:
    """Return by how much the operators' self time grew in the place of one comparison, under the profiler."""
    changes = summary.decision.operator_changes
    here = (c for c in changes if (c.workload, c.shape) == (slower.workload, slower.shape))
    return sum(change.head_time - change.base_time for change in here)


SECTION = Why()

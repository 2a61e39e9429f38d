"""Why it got slower: the operators that came or grew, and the lines that call them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.document.decision import Comparison
from perfgate.judging.report import format as formats
from perfgate.judging.report.causes import across_places, causes
from perfgate.judging.report.rows import worded_cause
from perfgate.judging.report.summary import Summary, place

_SHOWN = 6


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
            "account": _account(summary),
        }


def _account(summary: Summary) -> Optional[Mapping[str, object]]:
    """Return measured and profiled growth of the worst slower call, where both are known."""
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

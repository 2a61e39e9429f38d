"""The metrics that did not change, folded."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report import format as formats
from perfgate.judging.report.rows import common_confidence, grouped, row
from perfgate.judging.report.summary import Summary


class Unchanged:
    """Unchanged metrics with both values, and what slowdown is excluded."""

    order = 110
    drop = 60
    title = "unchanged metrics"
    template = "unchanged.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        comparisons = summary.unchanged
        if not comparisons:
            return None
        listed = comparisons[: summary.detail]
        return {
            "rows": grouped(row(comparison, summary) for comparison in listed),
            "total": len(comparisons),
            "more": len(comparisons) - len(listed),
            "margin": formats.setting(summary.decision.excluded),
            "confidence": common_confidence(listed),
            "timed": any(comparison.method == "paired" for comparison in comparisons),
        }


SECTION = Unchanged()

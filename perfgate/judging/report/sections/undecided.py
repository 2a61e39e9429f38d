"""The metrics that could not be decided or compared, folded."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.rows import row
from perfgate.judging.report.summary import Summary


class Undecided:
    """Inconclusive and not comparable metrics, and what would decide them."""

    order = 120
    drop = 80
    title = "undecided metrics"
    template = "undecided.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The rows, undecided ones first."""
        comparisons = [*summary.inconclusive, *summary.not_comparable]
        if not comparisons:
            return None
        listed = comparisons[: summary.detail]
        return {
            "rows": [row(comparison, summary) for comparison in listed],
            "undecided": len(summary.inconclusive),
            "not_compared": len(summary.not_comparable),
            "more": len(comparisons) - len(listed),
        }


SECTION = Undecided()

"""The table: what got worse, and what got better. Nothing else."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.causes import causes
from perfgate.judging.report.rows import common_confidence, grouped, row
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary


class Failing:
    """Regressed metrics, worst first, then improved ones. A PASS folds its improvements."""

    order = 50
    drop = KEEP
    title = "table"
    template = "failing.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The rows, and how many more there are where the list had to end."""
        moved = [*summary.regressed, *summary.improved]
        if not moved:
            return None
        changes = causes(summary)
        listed = moved[: summary.detail]
        return {
            "rows": grouped(row(comparison, summary, changes) for comparison in listed),
            "more": len(moved) - len(listed),
            "confidence": common_confidence(listed),
            "fold": summary.verdict == "PASS",
            "improved": len(summary.improved),
        }


SECTION = Failing()

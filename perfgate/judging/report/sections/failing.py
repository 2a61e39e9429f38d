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
        shown = [*summary.regressed, *summary.improved]
        if not shown:
            return None
        known = causes(summary)
        kept = shown[: summary.detail]
        return {
            "rows": grouped(row(comparison, summary, known) for comparison in kept),
            "more": len(shown) - len(kept),
            "confidence": common_confidence(kept),
            "fold": summary.verdict == "PASS",
            "improved": len(summary.improved),
        }


SECTION = Failing()

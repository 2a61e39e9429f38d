"""What the documents of a FAIL lack; of an undecided verdict that is a reason, and stands with what to do about it."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.headline import missing_entries
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary


class MissingNumbers:
    """What a verdict needs and was not there, by name, folded."""

    order = 58
    drop = KEEP
    title = "missing numbers"
    template = "missing.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The first names, and how many more there are."""
        if summary.verdict != "FAIL" or not summary.decision.missing:
            return None
        return {**vars(missing_entries(summary)), "count": len(summary.decision.missing)}


SECTION = MissingNumbers()

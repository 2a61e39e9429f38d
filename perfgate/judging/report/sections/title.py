"""The first line people read: the verdict, the worst number and its cause."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.judging.report.causes import causes
from perfgate.judging.report.headline import headline
from perfgate.judging.report.rows import row
from perfgate.judging.report.summary import Summary


class Title:
    """Verdict, worst number or counter, confirmed or suspected, and what made it worse."""

    order = 10
    drop = 0
    title = "title"
    template = "title.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Optional[Mapping[str, object]]:
        """Return the headline, and the cause of the comparison that it names."""
        return {"headline": headline(summary, "markdown"), "cause": _cause(summary)}


def _cause(summary: Summary) -> Optional[object]:
    """Return what made worse what the headline names, in words; None where it is about something else."""
    if summary.worst is None or summary.verdict not in {"FAIL", "WARN"} or summary.is_about_harness:
        return None
    return row(summary.worst, summary, causes(summary))["cause"]


SECTION = Title()

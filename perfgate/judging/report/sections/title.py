"""The first line people read: the verdict, the worst number and its cause."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.headline import headline
from perfgate.judging.report.rows import worst_cause
from perfgate.judging.report.summary import Summary


class Title:
    """Verdict, worst number or counter, and what made it worse."""

    order = 10
    drop = 0
    title = "title"
    template = "title.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        return {"headline": headline(summary, "markdown"), "cause": worst_cause(summary)}


SECTION = Title()

"""The first line people read: the verdict and the worst number."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.judging.report.headline import headline
from perfgate.judging.report.summary import Summary


class Title:
    """Verdict, worst number or counter, confirmed or suspected."""

    order = 10
    drop = 0
    title = "title"
    template = "title.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Optional[Mapping[str, object]]:
        """Return the headline."""
        return {"headline": headline(summary, "markdown")}


SECTION = Title()

"""What to try, as the advice attached to the decision says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.judging.report.summary import Summary

_SHOWN = 4


class Suggestions:
    """The decision's suggestions, each once."""

    order = 70
    drop = 20
    title = "what to try"
    template = "suggestions.md.j2"
    numbered = True

    def fill(self, summary: Summary) -> Optional[Mapping[str, object]]:
        """Return the suggestions of a decision that says something got worse."""
        distinct = {(s.rule, s.message, s.line): s for s in summary.decision.suggestions}
        if not distinct or summary.verdict not in {"FAIL", "WARN"}:
            return None
        return {"suggestions": list(distinct.values())[:_SHOWN], "more": max(0, len(distinct) - _SHOWN)}


SECTION = Suggestions()

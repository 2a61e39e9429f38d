"""What to try about what the change brought; everything else stands in the page and in decision.json."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.suggestions import introduced, worded_suggestion
from perfgate.judging.report.summary import Summary

_SHOWN = 5


class Suggestions:
    """The suggestions on what the change introduced, each once."""

    order = 70
    drop = 20
    title = "what to try"
    template = "suggestions.md.j2"
    numbered = True

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        distinct = introduced(summary.decision.suggestions)
        if not distinct or summary.verdict not in {"FAIL", "WARN"}:
            return None
        listed = [worded_suggestion(suggestion) for suggestion in distinct[:_SHOWN]]
        return {"suggestions": listed, "more": max(0, len(distinct) - _SHOWN)}


SECTION = Suggestions()

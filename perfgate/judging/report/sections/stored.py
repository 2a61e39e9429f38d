"""Main's stored runs beside the head's own times, below everything that the job measured: they inform and judge nothing."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import StoredComparison
from perfgate.judging.report import format as formats
from perfgate.judging.report.headline import metric_name
from perfgate.judging.report.summary import Summary, place
from perfgate.judging.report.view import StoredView
from perfgate.judging.report.words import Words, say


class Stored:
    """The head's times, what main's stored runs show, and whether the head lies where one more run of main would."""

    order = 140
    drop = 85
    title = "main's stored runs"
    template = "stored.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The rows, in document order."""
        beside = summary.decision.stored
        if not beside:
            return None
        listed = beside[: summary.detail]
        return {"rows": [stored_row(comparison) for comparison in listed], "more": len(beside) - len(listed)}


def stored_row(comparison: StoredComparison) -> StoredView:
    interval = comparison.interval
    values = formats.quantities(
        [comparison.head, comparison.typical, *(interval or ())], comparison.unit, metric=comparison.metric
    )
    return StoredView(
        name=metric_name(comparison.metric),
        place=place(comparison.workload, comparison.shape),
        head=values[0],
        typical=values[1],
        range=say("{low} to {high}", low=values[2], high=values[3]) if interval else formats.DASH,
        standing=_standing(comparison),
        runs=formats.counted(comparison.runs, "run"),
    )


def _standing(comparison: StoredComparison) -> Words:
    if comparison.interval is None:
        return say("too few runs to say")
    low, high = comparison.interval
    if low <= comparison.head <= high:
        return say("inside the range")
    return say("above the range" if comparison.head > high else "below the range")


SECTION = Stored()

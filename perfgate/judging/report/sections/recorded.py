"""Times of two recordings, folded: both sides of each, and that nothing follows from them."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import Comparison
from perfgate.judging.report import format as formats
from perfgate.judging.report.headline import metric_name
from perfgate.judging.report.summary import Summary, is_operator, place
from perfgate.judging.report.view import RecordedView
from perfgate.judging.report.words import Words, say


class Recorded:
    """What the profiler wrote of whole steps and of their heaviest operators, side by side and not compared."""

    order = 115
    drop = 70
    title = "recorded times"
    template = "recorded.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The rows, those of a place together."""
        comparisons = summary.recorded
        if not comparisons:
            return None
        listed = comparisons[: summary.detail]
        return {
            "rows": [recorded_row(comparison) for comparison in listed],
            "total": len(comparisons),
            "more": len(comparisons) - len(listed),
        }


def recorded_row(comparison: Comparison) -> RecordedView:
    base, head = formats.sides(comparison)
    return RecordedView(
        name=metric_name(comparison.metric),
        time_of=say("self time of ") if is_operator(comparison) else Words(""),
        place=place(comparison.workload, comparison.shape),
        base=base,
        head=head,
    )


SECTION = Recorded()

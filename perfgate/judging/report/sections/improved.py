"""What got better, and how to keep it: merged, it is what the next change is held to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from perfgate.document.decision import Comparison
from perfgate.judging.report.format import to_two_digits
from perfgate.judging.report.headline import named_change
from perfgate.judging.report.summary import Summary

_SHOWN = 3
# Room above what was measured, so that the next job's noise does not break a budget that was taken from this one.
_ROOM = 1.05


class Improved:
    """The largest improvements and the new baseline that they propose. A change that also fails has other news first."""

    order = 55
    drop = 20
    title = "improvements"
    template = "improved.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        better = [comparison for comparison in summary.improved if comparison.gating]
        if summary.verdict not in {"PASS", "WARN"} or not better:
            return None
        return {
            "better": [named_change(comparison) for comparison in better[:_SHOWN]],
            "more": max(0, len(better) - _SHOWN),
            "budgets": list(_tighter(summary, better))[:_SHOWN],
        }


def _tighter(summary: Summary, better: list[Comparison]) -> Iterator[str]:
    """Yield the lines of ``[budget]`` that would hold on to an improvement, in base units as perfgate.toml takes them."""
    improved = {(comparison.metric, comparison.workload, comparison.shape) for comparison in better}
    for kept in summary.decision.comparisons:
        key = (kept.metric, kept.workload, kept.shape)
        if kept.method != "budget" or kept.outcome != "unchanged" or key not in improved or not kept.head:
            continue
        tighter = kept.head * _ROOM if kept.better == "lower" else kept.head / _ROOM
        rounded = to_two_digits(tighter, up=kept.better == "lower")
        if kept.base is not None and (rounded < kept.base if kept.better == "lower" else rounded > kept.base):
            yield f'"{kept.metric}@{kept.workload}/{kept.shape}" = {rounded:g}'


SECTION = Improved()

"""Compare recordings of several ranks, as `perfgate trace ranks` does: stragglers and slow links."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.measuring.checklist.limits import MaybeEvidence, limit
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.analysis.links import links_between, slow_links
from perfgate.trace.analysis.rank_table import reduce_timeline
from perfgate.trace.analysis.ranks import ranks_by_lag
from perfgate.trace.analysis.summary import DeviceSummary


def judge_ranks(outcome: StepOutcome, summaries: Sequence[DeviceSummary]) -> None:
    """Judge the lag of each rank behind the middle one in a step, and links far slower than others of their kind."""
    if len(summaries) < 2:
        return
    tables = [reduce_timeline(summary.timeline, summary.shape) for summary in summaries]
    for table, lag, part in ranks_by_lag(tables):
        shape, behind = table.path, lag - 1.0
        outcome.under(shape=shape).number("communication.behind", behind, count=len(table.steps))
        outcome.above("communication.behind", behind, {"rank": shape, "behind": behind, "part": part})
    slow = slow_links(links_between(tables), share=limit("communication.slow_link.warning", outcome.limits))
    for link in slow:
        share = link.bandwidth / link.middle
        evidence: MaybeEvidence = {
            "link": link.link,
            "source": link.source,
            "target": link.target,
            "group": link.group,
            "share": share,
            "bandwidth [B/s]": link.bandwidth,
            "middle bandwidth [B/s]": link.middle,
        }
        outcome.below("communication.slow_link", share, evidence)

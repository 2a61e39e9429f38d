"""What recordings of several ranks say beside each other: who is behind, and which link is slow, as `perfgate trace ranks`."""

from __future__ import annotations

from collections.abc import Sequence

from perfgate.document.run import Value
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, below, limit
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.links import links_between, slow_links
from perfgate.trace.rank_table import reduce_timeline
from perfgate.trace.ranks import ranks_by_lag
from perfgate.trace.summary import DeviceSummary


def judge_ranks(summaries: Sequence[DeviceSummary], limits: Limits) -> StepOutcome:
    """How far each rank is behind the middle one in a step of its own, and the links that carry far less than their like."""
    outcome = StepOutcome()
    if len(summaries) < 2:
        return outcome
    tables = [reduce_timeline(summary.timeline, summary.shape) for summary in summaries]
    for rank in ranks_by_lag(tables):
        shape, behind = rank.table.path, rank.behind - 1.0
        labels = {"shape": shape}
        outcome.values.append(
            Value(metric="communication.behind", value=behind, count=len(rank.table.steps), labels=labels)
        )
        evidence: MaybeEvidence = {"rank": shape, "behind": behind, "part": rank.part}
        outcome.findings += above("communication.behind", behind, limits, evidence)
    for slow in slow_links(links_between(tables), share=limit("communication.slow_link.warning", limits)):
        evidence = {
            "link": slow.link.link,
            "source": slow.link.source,
            "target": slow.link.target,
            **({} if slow.link.group is None else {"group": slow.link.group}),
            "share": slow.link.bandwidth / slow.middle,
            "bandwidth [B/s]": slow.link.bandwidth,
            "middle bandwidth [B/s]": slow.middle,
        }
        outcome.findings += below("communication.slow_link", slow.link.bandwidth / slow.middle, limits, evidence)
    return outcome

"""Judge the recorded packets of collectives: whether they are too small, and whether some were retransmitted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from perfgate.measuring.checklist.limits import MaybeEvidence, limit
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.recording import Collective, Packets

_RDMA = "RDMA"


def judge_packets(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Judge the share of time in small packets for every kind of link with recorded sizes."""
    # The packets of each kind of link; totals under other names have none.
    links: dict[str, list[Packets]] = {}
    for use in chain.from_iterable(collective.links for collective in (summary.timeline.collectives or ())):
        if use.packets:
            links.setdefault(use.link, []).extend(use.packets)
    for link, packets in sorted(links.items()):
        total_ns = sum(row.time_ns for row in packets)
        if not total_ns:
            continue
        kind = "rdma" if link == _RDMA else "sdma"
        smallest = limit(f"communication.small_packets.{kind}", outcome.limits)
        small = [row for row in packets if row.size_bytes < smallest]
        share = sum(row.time_ns for row in small) / total_ns
        number = sum(row.number for row in packets)
        outcome.under(link=link).number("communication.small_packets", share, count=number)
        evidence: MaybeEvidence = {
            "link": link,
            "share": share,
            "smaller": smallest,
            "small packets": sum(row.number for row in small),
            "packets": number,
            "small ones [B/s]": _speed(small),
            "others [B/s]": _speed(row for row in packets if row.size_bytes >= smallest),
        }
        outcome.above("communication.small_packets", share, evidence)


def judge_retransmissions(outcome: StepOutcome, summaries: Sequence[DeviceSummary]) -> None:
    """Add a finding for each group of ranks with RDMA transfers so long that packets must have been retransmitted.

    If one of the ranks finished the collective sooner than that, the others waited for a rank, not for packets.
    """
    meetings: dict[tuple[str | None, str, int | None], list[tuple[str, Collective]]] = {}
    for summary in summaries:
        for collective in summary.timeline.collectives or ():
            key = collective.group, collective.name, collective.step
            meetings.setdefault(key, []).append((summary.shape, collective))
    longest = limit("communication.retransmission.warning", outcome.limits) * 1e9
    by_group: dict[str | None, list[tuple[str, Collective]]] = {}
    for (group, _, _), members in meetings.items():
        slowest = max(members, key=lambda member: _rdma_ns(member[1]))
        if min(_rdma_ns(slowest[1]), *(collective.elapsed_ns or 0 for _, collective in members)) > longest:
            by_group.setdefault(group, []).append(slowest)
    for resent in by_group.values():
        shape, collective = max(resent, key=lambda member: _rdma_ns(member[1]))
        evidence: MaybeEvidence = {
            "collective": type_by_name(collective.name),
            "time": _rdma_ns(collective) / 1e9,
            "size [B]": sum(link.size_bytes for link in collective.links if link.link == _RDMA),
            "collectives": len(resent),
        }
        outcome.under(shape=shape).above("communication.retransmission", _rdma_ns(collective) / 1e9, evidence)


def _rdma_ns(collective: Collective) -> int:
    return sum(link.transit_ns for link in collective.links if link.link == _RDMA)


def _speed(packets: Iterable[Packets]) -> float | None:
    rows = list(packets)
    time_ns = sum(row.time_ns for row in rows)
    return sum(row.size_bytes * row.number for row in rows) / time_ns * 1e9 if time_ns else None

"""What a recording says of the packets of collectives: whether they are too small, and whether some were sent again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from perfgate.document.run import Finding, Value
from perfgate.measuring.checklist.limits import Limits, MaybeEvidence, above, limit
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.ascend.kinds import type_by_name
from perfgate.trace.recording import Collective, Packets
from perfgate.trace.summary import DeviceSummary

_RDMA = "RDMA"


def judge_packets(summary: DeviceSummary, limits: Limits) -> StepOutcome:
    """Of every kind of link the share of its time that went to small packets; nothing where sizes were not recorded."""
    outcome = StepOutcome()
    for link, packets in sorted(_packets_by_link(summary.timeline.collectives or ()).items()):
        total_ns = sum(row.time_ns for row in packets)
        if not total_ns:
            continue
        smallest = limit(
            "communication.small_packets.rdma" if link == _RDMA else "communication.small_packets.sdma", limits
        )
        small = [row for row in packets if row.size_bytes < smallest]
        share = sum(row.time_ns for row in small) / total_ns
        labels = {"shape": summary.shape, "link": link}
        number = sum(row.number for row in packets)
        outcome.values.append(Value(metric="communication.small_packets", value=share, count=number, labels=labels))
        evidence: MaybeEvidence = {
            **labels,
            "share": share,
            "smaller": smallest,
            "small packets": sum(row.number for row in small),
            "packets": number,
            "small ones [B/s]": _speed(small),
            "others [B/s]": _speed(row for row in packets if row.size_bytes >= smallest),
        }
        outcome.findings += above("communication.small_packets", share, limits, evidence)
    return outcome


def judge_retransmissions(summaries: Sequence[DeviceSummary], limits: Limits) -> list[Finding]:
    """A finding for each group of ranks whose packets took so long over RDMA that some must have been sent again.

    Where one of the ranks was done with the collective sooner than that, the others waited for a rank, not for packets.
    """
    meetings: dict[tuple[str | None, str, int | None], list[tuple[str, Collective]]] = {}
    for summary in summaries:
        for collective in summary.timeline.collectives or ():
            key = collective.group, collective.name, collective.step
            meetings.setdefault(key, []).append((summary.shape, collective))
    longest = limit("communication.retransmission.warning", limits) * 1e9
    by_group: dict[str | None, list[tuple[str, Collective]]] = {}
    for (group, _, _), members in meetings.items():
        slowest = max(members, key=lambda member: _rdma_ns(member[1]))
        if min(_rdma_ns(slowest[1]), *(collective.elapsed_ns or 0 for _, collective in members)) > longest:
            by_group.setdefault(group, []).append(slowest)
    findings: list[Finding] = []
    for resent in by_group.values():
        shape, collective = max(resent, key=lambda member: _rdma_ns(member[1]))
        evidence: MaybeEvidence = {
            "shape": shape,
            "collective": type_by_name(collective.name),
            "time": _rdma_ns(collective) / 1e9,
            "size [B]": sum(link.size_bytes for link in collective.links if link.link == _RDMA),
            "collectives": len(resent),
        }
        findings += above("communication.retransmission", _rdma_ns(collective) / 1e9, limits, evidence)
    return findings


def rdma_times(summary: DeviceSummary) -> Iterator[Value]:
    """The longest time that one collective sent over RDMA; nothing where none did."""
    longest_ns = max((_rdma_ns(collective) for collective in summary.timeline.collectives or ()), default=0)
    if longest_ns:
        yield Value(metric="communication.rdma_time", value=longest_ns / 1e9, labels={"shape": summary.shape})


def _rdma_ns(collective: Collective) -> int:
    return sum(link.transit_ns for link in collective.links if link.link == _RDMA)


def _packets_by_link(collectives: Iterable[Collective]) -> dict[str, list[Packets]]:
    """The packets of each kind of link; what the profiler adds up under another name has none."""
    links: dict[str, list[Packets]] = {}
    for use in chain.from_iterable(collective.links for collective in collectives):
        if use.packets:
            links.setdefault(use.link, []).extend(use.packets)
    return links


def _speed(packets: Iterable[Packets]) -> float | None:
    rows = list(packets)
    time_ns = sum(row.time_ns for row in rows)
    return sum(row.size_bytes * row.number for row in rows) / time_ns * 1e9 if time_ns else None

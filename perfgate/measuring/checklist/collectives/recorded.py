"""Judge the collectives of a recording: what they hide, the links that carry them, and
the rank that the others wait for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from perfgate.document.run import Evidence
from perfgate.measuring.checklist.recorded import (
    add_rate,
    busy_window,
    collective_shares,
    profiled,
    waiting_shares,
)
from perfgate.measuring.checklist.step import StepOutcome
from perfgate.trace.analysis.rank_table import reduce_timeline
from perfgate.trace.analysis.ranks import links_between, ranks_by_lag, slow_links
from perfgate.trace.analysis.summary import DeviceSummary
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.readings import DIRECTIONS, Link, link_traffic, lost_packets
from perfgate.trace.model.recording import Collective, Packets

# The links between devices; PCIe leads to the host (step 3).
_LINKS: tuple[Link, ...] = ("NIC", "RoCE", "HCCS")
_RDMA = "RDMA"
# From this share on, exposed communication is a matter of late ranks rather than of
# transfers.
_MOSTLY_WAITING = 0.5


def judge_recorded_ranks(
    outcome: StepOutcome, summaries: Sequence[DeviceSummary]
) -> None:
    """Judge every rank that communicated in a recording, and the ranks together."""
    for summary, waiting in zip(summaries, waiting_shares(summaries)):
        rank = outcome.under(shape=summary.shape)
        for kind, ns in sorted(summary.collectives.items()):
            rank.under(collective=kind).number(
                "communication.time", ns / summary.spans / 1e9, count=summary.spans
            )
        shares = collective_shares(summary)
        for part, share in (
            ("waiting", shares.waiting),
            ("transit", shares.transit),
            ("idle", shares.idle),
        ):
            if share is not None:
                rank.number(f"communication.{part}", share, count=shares.timed)
        _judge_links(rank, summary)
        _add_traffic(rank, summary)
        _judge_overlap(outcome.under(**profiled(summary)), summary, waiting)
    if len(summaries) > 1:
        _judge_lag_and_links(outcome, summaries)
    _judge_retransmissions(outcome, summaries)
    _note_slowest_ranks(outcome, summaries)


def _judge_links(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add the bandwidth of each kind of link, and judge the share of its time in small
    packets if their sizes are recorded.
    """
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    packets: dict[str, list[Packets]] = {}
    for collective in summary.timeline.collectives or ():
        for use in collective.links:
            sizes[use.link] += int(use.size_bytes)
            times[use.link] += use.transit_ns
            packets.setdefault(use.link, []).extend(use.packets)
    for link, time_ns in sorted(times.items()):
        if time_ns > 0:
            outcome.under(link=link).number(
                "communication.link_bandwidth", sizes[link] / time_ns * 1e9
            )
    for link, rows in sorted(packets.items()):
        _judge_packets(outcome, link, rows)


def _judge_packets(outcome: StepOutcome, link: str, packets: Sequence[Packets]) -> None:
    smallest = outcome.limit(
        "communication.small_packets.rdma"
        if link == _RDMA
        else "communication.small_packets.sdma"
    )
    small, large = _PacketTotals(), _PacketTotals()
    for row in packets:
        totals = small if row.size_bytes < smallest else large
        totals.add(row)
    total_ns = small.time_ns + large.time_ns
    if not total_ns:
        return
    share = small.time_ns / total_ns
    number = small.number + large.number
    outcome.under(link=link).number("communication.small_packets", share, count=number)
    outcome.above(
        "communication.small_packets",
        share,
        {
            "link": link,
            "share": share,
            "smaller": smallest,
            "small packets": small.number,
            "packets": number,
            "small ones [B/s]": small.bytes_per_second,
            "others [B/s]": large.bytes_per_second,
        },
    )


@dataclass
class _PacketTotals:
    number: int = 0
    time_ns: int = 0
    size_bytes: float = 0

    def add(self, packets: Packets) -> None:
        self.number += packets.number
        self.time_ns += packets.time_ns
        self.size_bytes += packets.size_bytes * packets.number

    @property
    def bytes_per_second(self) -> float | None:
        return self.size_bytes / self.time_ns * 1e9 if self.time_ns else None


def _add_traffic(outcome: StepOutcome, summary: DeviceSummary) -> None:
    """Add what each kind of link carried in the steps by the device's own counters, and
    judge the packets that it lost.
    """
    window, readings = busy_window(summary), summary.timeline.readings
    if window is None:
        return
    for name in _LINKS:
        link = outcome.under(link=name)
        for direction in DIRECTIONS:
            rates = readings.get(link_traffic(name, direction))
            if rates is not None:
                add_rate(
                    link.under(direction=direction),
                    "communication.link_traffic",
                    rates,
                    window,
                )
        losses = readings.get(lost_packets(name))
        if losses is None:
            continue
        packets = losses.risen_within(*window)
        if packets is not None:
            link.number("communication.lost_packets", packets)
            link.above(
                "communication.lost_packets",
                packets,
                {"link": name, "packets": round(packets)},
            )


def _judge_overlap(
    outcome: StepOutcome, summary: DeviceSummary, waiting: float | None
) -> None:
    """Judge the exposed communication, and add the share hidden behind computing.

    ``waiting`` is the share of the time in collectives that a rank only waits for
    others.
    """
    parts = summary.parts()
    if parts is None:
        return
    if parts.communication_ns:
        exposed = parts.exposed_communication_ns / parts.length_ns
        hidden = 1.0 - parts.exposed_communication_ns / parts.communication_ns
        outcome.numbers(
            {"communication.hidden": hidden, "communication.exposed": exposed},
            count=summary.spans,
        )
        is_exposed = outcome.above(
            "communication.exposed", exposed, {"waiting": waiting}
        )
        if is_exposed and waiting is not None and waiting > _MOSTLY_WAITING:
            outcome.note(
                "communication.waiting", "warning", {"share": exposed * waiting}
            )
    if parts.fused_ns:
        outcome.number(
            "communication.fused", parts.fused_ns / parts.length_ns, count=summary.spans
        )


def _judge_lag_and_links(
    outcome: StepOutcome, summaries: Sequence[DeviceSummary]
) -> None:
    """Judge the lag of each rank behind the middle one in a step, and links far slower
    than others of their kind.
    """
    tables = [reduce_timeline(summary.timeline, summary.shape) for summary in summaries]
    for table, lag, part in ranks_by_lag(tables):
        shape, behind = table.path, lag - 1.0
        outcome.under(shape=shape).number(
            "communication.behind", behind, count=len(table.steps)
        )
        outcome.above(
            "communication.behind",
            behind,
            {"rank": shape, "behind": behind, "part": part},
        )
    for link in slow_links(
        links_between(tables), share=outcome.limit("communication.slow_link.warning")
    ):
        share = link.bandwidth / link.middle
        outcome.below(
            "communication.slow_link",
            share,
            {
                "link": link.link,
                "source": link.source,
                "target": link.target,
                "group": link.group,
                "share": share,
                "bandwidth [B/s]": link.bandwidth,
                "middle bandwidth [B/s]": link.middle,
            },
        )


def _judge_retransmissions(
    outcome: StepOutcome, summaries: Sequence[DeviceSummary]
) -> None:
    """Add a finding for each group of ranks whose RDMA transfers take so much time that
    packets must have been retransmitted.

    If one of the ranks finished the collective sooner than that, the others waited for
    a rank, not for packets.
    """
    meetings: dict[
        tuple[str | None, str, int | None], list[tuple[str, Collective]]
    ] = {}
    for summary in summaries:
        for collective in summary.timeline.collectives or ():
            key = collective.group, collective.name, collective.step
            meetings.setdefault(key, []).append((summary.shape, collective))
    longest = outcome.limit("communication.retransmission.warning") * 1e9
    by_group: dict[str | None, list[tuple[str, Collective]]] = {}
    for (group, _, _), members in meetings.items():
        slowest = max(members, key=lambda member: _rdma_ns(member[1]))
        soonest = min(collective.elapsed_ns or 0 for _, collective in members)
        if min(_rdma_ns(slowest[1]), soonest) > longest:
            by_group.setdefault(group, []).append(slowest)
    for resent in by_group.values():
        shape, collective = max(resent, key=lambda member: _rdma_ns(member[1]))
        seconds = _rdma_ns(collective) / 1e9
        outcome.under(shape=shape).above(
            "communication.retransmission",
            seconds,
            {
                "collective": type_by_name(collective.name),
                "time": seconds,
                "size [B]": sum(
                    link.size_bytes for link in collective.links if link.link == _RDMA
                ),
                "collectives": len(resent),
            },
        )


def _rdma_ns(collective: Collective) -> int:
    return sum(link.transit_ns for link in collective.links if link.link == _RDMA)


def _note_slowest_ranks(
    outcome: StepOutcome, summaries: Sequence[DeviceSummary]
) -> None:
    """Name the ranks with the longest and shortest time in each kind of collective; the
    shortest arrived last.
    """
    times: dict[str, dict[str, float]] = {}
    for summary in summaries:
        for kind, ns in summary.collectives.items():
            times.setdefault(kind, {})[summary.shape] = ns / summary.spans / 1e9
    for kind, by_rank in sorted(times.items()):
        if len(by_rank) > 1:
            evidence: dict[str, Evidence] = {
                "collective": kind,
                "longest": max(by_rank, key=by_rank.__getitem__),
                "shortest": min(by_rank, key=by_rank.__getitem__),
            }
            for rank, seconds in by_rank.items():
                evidence[f"{rank} [s]"] = seconds
            outcome.note("collectives.slowest_rank", "info", evidence)

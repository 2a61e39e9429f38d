"""What a recording says of communication: what it takes, how much of it nothing hides, and who waits for whom."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.trace.readers._ascend.kinds import type_by_name
from perfgate.trace.recording import Collective
from perfgate.trace.summary import DeviceSummary

# Of fewer of one kind nothing says which is unusual.
_FEWEST_OF_A_KIND = 3


def recorded_communication(
    summaries: Sequence[DeviceSummary], limits: Mapping[str, float]
) -> tuple[list[Value], list[Finding]]:
    """Return values and findings of every rank that communicated, and which rank comes last."""
    values: list[Value] = []
    findings: list[Finding] = []
    for summary in summaries:
        values += [*_times(summary), *_waiting(summary), *_links(summary)]
        overlap = list(_overlap(summary))
        values += overlap
        findings += [*_judge_exposed(overlap, limits), *_first_of_its_kind(summary, limits)]
    return values, [*findings, *_slowest_ranks(summaries)]


def _times(summary: DeviceSummary) -> Iterator[Value]:
    """Yield the seconds that each kind of collective takes in one step."""
    for kind, spent in sorted(summary.collectives.items()):
        labels = {"shape": summary.shape, "collective": kind}
        yield Value(metric="communication.time", value=spent / summary.spans / 1e9, labels=labels, count=summary.spans)


def _waiting(summary: DeviceSummary) -> Iterator[Value]:
    """Yield the shares as the profiler defines them: waiting of waiting and transit, transit and idling of all the time.

    Idle is what is neither, mostly time before the last rank came (sample msinsight-910B-alexnet-2501: 96.4 of 106.0 ms).
    """
    labels = {"shape": summary.shape}
    known = [one for one in _collectives(summary) if one.elapsed_ns]
    elapsed = sum(one.elapsed_ns or 0 for one in known)
    parts = {
        "communication.waiting": [one.wait_ns for one in known],
        "communication.transit": [one.transit_ns for one in known],
        "communication.idle": [one.idle_ns for one in known],
    }
    for metric, column in parts.items():
        times = [time for time in column if time is not None]
        whole = elapsed
        if metric == "communication.waiting":
            whole = sum((one.wait_ns or 0) + (one.transit_ns or 0) for one in known if one.transit_ns is not None)
        if whole and len(times) == len(known):
            yield Value(metric=metric, value=sum(times) / whole, count=len(known), labels=labels)


def _links(summary: DeviceSummary) -> Iterator[Value]:
    sizes: Counter[str] = Counter()
    times: Counter[str] = Counter()
    for one in _collectives(summary):
        for link in one.links:
            sizes[link.link] += int(link.size_bytes)
            times[link.link] += link.transit_ns
    for name in sorted(name for name, time_ns in times.items() if time_ns > 0):
        labels = {"shape": summary.shape, "link": name}
        yield Value(metric="communication.link_bandwidth", value=sizes[name] / times[name] * 1e9, labels=labels)


def _overlap(summary: DeviceSummary) -> Iterator[Value]:
    """Yield how much of the communication computing hides, and how much of the steps the rest takes."""
    parts = summary.parts()
    if parts is None or not parts.communication_ns:
        return
    labels = {"shape": summary.shape, "under": "profiler"}
    hidden = 1.0 - parts.exposed_communication_ns / parts.communication_ns
    exposed = parts.exposed_communication_ns / parts.length_ns
    yield Value(metric="communication.hidden", value=hidden, count=summary.spans, labels=labels)
    yield Value(metric="communication.exposed", value=exposed, count=summary.spans, labels=labels)


def _judge_exposed(values: Sequence[Value], limits: Mapping[str, float]) -> Iterator[Finding]:
    for value in values:
        if value.metric == "communication.exposed" and value.value is not None:
            yield from above(value.metric, value.value, given=limits, evidence={"shape": value.labels["shape"]})


def _first_of_its_kind(summary: DeviceSummary, limits: Mapping[str, float]) -> Iterator[Finding]:
    """Yield a word on a first collective that took many times as long as the others: the ranks did not begin together."""
    kinds: dict[str, list[Collective]] = {}
    for one in _collectives(summary):
        if one.kind == "collective" and one.elapsed_ns:
            kinds.setdefault(type_by_name(one.name), []).append(one)
    for kind, members in sorted(kinds.items()):
        first, *others = [one.elapsed_ns or 0 for one in members]
        if len(members) < _FEWEST_OF_A_KIND:
            continue
        middle = statistics.median(others)
        if first > limit("communication.first.info", limits) * middle:
            evidence: dict[str, Evidence] = {"collective": kind, "shape": summary.shape}
            numbers: dict[str, Evidence] = {"first [s]": first / 1e9, "median of the others [s]": middle / 1e9}
            links: dict[str, Evidence] = {
                f"{link.link} [B/s]": link.bandwidth for link in members[0].links if link.bandwidth is not None
            }
            yield noticed("communication.first", "info", {**evidence, **numbers, **links})


def _collectives(summary: DeviceSummary) -> tuple[Collective, ...]:
    return summary.timeline.collectives or ()


def _slowest_ranks(summaries: Sequence[DeviceSummary]) -> list[Finding]:
    """Say of each kind of collective which rank spends most time in it; who spends least came last, and was waited for."""
    times: dict[str, dict[str, float]] = {}
    for summary in summaries:
        for kind, spent in summary.collectives.items():
            times.setdefault(kind, {})[summary.shape] = spent / summary.spans / 1e9
    return [_slowest_rank(kind, by_rank) for kind, by_rank in sorted(times.items()) if len(by_rank) > 1]


def _slowest_rank(kind: str, by_rank: Mapping[str, float]) -> Finding:
    longest, shortest = max(by_rank, key=lambda rank: by_rank[rank]), min(by_rank, key=lambda rank: by_rank[rank])
    evidence: dict[str, Evidence] = {"collective": kind, "longest": longest, "shortest": shortest}
    seconds = {f"{rank} [s]": spent for rank, spent in by_rank.items()}
    return noticed("collectives.slowest_rank", "info", {**evidence, **seconds})

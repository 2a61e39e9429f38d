"""What a recording says of communication: what it takes, how much of it nothing hides, and who waits for whom."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Optional

from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above, limit, noticed
from perfgate.measuring.trace.analysis import exposed_length, union_length
from perfgate.measuring.trace.readers._ascend.kinds import type_by_name
from perfgate.measuring.trace.recording import Collective, ProfilerStep
from perfgate.measuring.trace.summary import DeviceSummary

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
    known = [one for one in _collectives(summary) if one.elapsed_ns and one.wait_ns is not None]
    elapsed = sum(one.elapsed_ns or 0 for one in known)
    if elapsed:
        share = sum(one.wait_ns or 0 for one in known) / elapsed
        yield Value(metric="communication.waiting", value=share, count=len(known), labels={"shape": summary.shape})


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


class _Overlap(NamedTuple):
    """Nanoseconds over all steps: of communication, of the part that no computing hides, and of the steps."""

    communication: int
    exposed: int
    length: int
    steps: int


def _overlap(summary: DeviceSummary) -> Iterator[Value]:
    """Yield how much of the communication computing hides, and how much of the steps the rest takes."""
    found = _tabled_overlap(summary.timeline.steps or ()) or _overlap_of_events(summary)
    if found is None:
        return
    labels = {"shape": summary.shape, "under": "profiler"}
    hidden = 1.0 - found.exposed / found.communication
    yield Value(metric="communication.hidden", value=hidden, count=found.steps, labels=labels)
    # What a step launched may end a hair after it.
    exposed = min(found.exposed / found.length, 1.0)
    yield Value(metric="communication.exposed", value=exposed, count=found.steps, labels=labels)


def _tabled_overlap(steps: Sequence[ProfilerStep]) -> Optional[_Overlap]:
    """Return what the table of steps says; None where it tells of no communication."""
    told = [step for step in steps if step.communication_ns and _length_ns(step)]
    if not told:
        return None
    return _Overlap(
        communication=sum(step.communication_ns or 0 for step in told),
        exposed=sum(step.exposed_communication_ns or 0 for step in told),
        length=sum(_length_ns(step) for step in told),
        steps=len(told),
    )


def _length_ns(step: ProfilerStep) -> int:
    """Return what the device's parts of a step add up to; 0 where the recording does not tell them."""
    parts = (step.computing_ns, step.exposed_communication_ns, step.free_ns)
    return sum(part for part in parts if part is not None) if None not in parts else 0


def _overlap_of_events(summary: DeviceSummary) -> Optional[_Overlap]:
    """Return what the device's timeline says, where it is known how long the calls took."""
    events = summary.timeline.events
    communication = events.of_kind("comm").intervals
    if summary.times is None or not communication.start.size:
        return None
    return _Overlap(
        communication=union_length(communication),
        exposed=exposed_length(communication, events.of_kind("compute").intervals),
        length=sum(times.length_ns for times in summary.times),
        steps=summary.spans,
    )


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

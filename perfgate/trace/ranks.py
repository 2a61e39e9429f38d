"""Many ranks beside each other: which one the others wait for, and which link between two is slow.

Every rank is reduced to a small table by itself: its steps, its collectives and what it sent to whom. Only these are put
together, so that thousands of ranks can be.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from perfgate.trace.recording import Timeline

# Perfgate's own marks: a rank that takes a twentieth longer on its own than the middle one, a link at half of its kind's
# middle bandwidth. Fewer of a kind have no middle to speak of.
SLOW_RANK, SLOW_LINK = 1.05, 0.5
FEWEST_RANKS, FEWEST_LINKS = 2, 3
_LOCAL = "LOCAL"  # a rank's copies to itself


class StepParts(msgspec.Struct, frozen=True, array_like=True):
    """A step in nanoseconds. ``exposed`` is communication that nothing hides, ``free`` that nothing ran."""

    number: int | None
    length: int
    computing: int
    exposed: int
    free: int


class Waiting(msgspec.Struct, frozen=True, array_like=True):
    """The collectives of a rank in nanoseconds: all of their time, that in which data moved, and that spent waiting."""

    count: int = 0
    elapsed: int = 0
    transit: int = 0
    wait: int = 0


class LinkTotal(msgspec.Struct, frozen=True, array_like=True):
    """What a rank sent another over one kind of link: bytes and nanoseconds."""

    source: int
    target: int
    link: str
    size: float
    transit: int

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self.size / self.transit * 1e9


class RankTable(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of one device of one rank; ``path`` is the recording it is of."""

    path: str
    rank: int | None
    device: int | None
    steps: list[StepParts]
    waiting: Waiting
    links: list[LinkTotal]

    @property
    def own(self) -> float | None:
        """Nanoseconds of a typical (median) step without the communication that it waits for; None without steps."""
        return self._typical([step.length - step.exposed for step in self.steps])

    @property
    def computing(self) -> float | None:
        return self._typical([step.computing for step in self.steps])

    @property
    def free(self) -> float | None:
        return self._typical([step.free for step in self.steps])

    @property
    def exposed(self) -> float | None:
        return self._typical([step.exposed for step in self.steps])

    @staticmethod
    def _typical(values: Sequence[int]) -> float | None:
        return statistics.median(values) if values else None


class SlowRank(NamedTuple):
    """A rank, by how much it is behind the middle one of all (a ratio of times on its own), and the part that grew most."""

    table: RankTable
    behind: float
    part: str


class SlowLink(NamedTuple):
    """A link and the middle bandwidth of its kind, bytes a second."""

    link: LinkTotal
    middle: float


def reduce_timeline(timeline: Timeline, path: str) -> RankTable:
    """The small table of a timeline."""
    steps = [
        StepParts(step.number, step.length_ns, step.computing_ns, step.exposed_communication_ns or 0, step.free_ns or 0)
        for step in timeline.steps or ()
        if step.number is not None and step.length_ns is not None and step.computing_ns is not None
    ]
    collectives = [one for one in timeline.collectives or () if one.elapsed_ns is not None]
    waiting = Waiting(
        count=len(collectives),
        elapsed=sum(one.elapsed_ns or 0 for one in collectives),
        transit=sum(one.transit_ns or 0 for one in collectives),
        wait=sum(one.wait_ns or 0 for one in collectives),
    )
    totals: dict[tuple[int, int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for link in timeline.rank_links or ():
        total = totals[link.source, link.target, link.link]
        total[0] += link.size_bytes
        total[1] += link.transit_ns
    links = [LinkTotal(*key, size=size, transit=int(transit)) for key, (size, transit) in totals.items()]
    return RankTable(path=path, rank=timeline.rank, device=timeline.device, steps=steps, waiting=waiting, links=links)


def slow_ranks(tables: Iterable[RankTable]) -> list[SlowRank]:
    """The ranks that the others wait for, the slowest first; none where all are alike, or too few can be compared.

    All ranks of a job take equally long, because the early ones wait in collectives: compared is what each takes without that.
    """
    known = [(table, own) for table in tables if (own := table.own) is not None]
    if len(known) < FEWEST_RANKS:
        return []
    # Of two the faster one is the measure.
    middle = statistics.median_low([own for _, own in known])
    slow = [(table, own / middle) for table, own in known if middle and own > SLOW_RANK * middle]
    parts = {name: _middle(getattr(table, name) for table, _ in known) for name in ("computing", "free")}
    return sorted(
        (
            SlowRank(table, behind, max(parts, key=lambda name: (getattr(table, name) or 0.0) - parts[name]))
            for table, behind in slow
        ),
        key=lambda slow_rank: -slow_rank.behind,
    )


def slow_links(tables: Iterable[RankTable]) -> list[SlowLink]:
    """The links that carry far less than others of their kind, the slowest first."""
    kinds: dict[str, list[LinkTotal]] = defaultdict(list)
    for table in tables:
        for link in table.links:
            if link.link != _LOCAL and link.source != link.target and link.size > 0 and link.transit > 0:
                kinds[link.link].append(link)
    found = []
    for links in kinds.values():
        if len(links) >= FEWEST_LINKS:
            middle = statistics.median(link.bandwidth for link in links)
            found += [SlowLink(link, middle) for link in links if link.bandwidth < SLOW_LINK * middle]
    return sorted(found, key=lambda slow: slow.link.bandwidth / slow.middle)


def _middle(values: Iterable[float | None]) -> float:
    known = [value for value in values if value is not None]
    return statistics.median_low(known) if known else 0.0

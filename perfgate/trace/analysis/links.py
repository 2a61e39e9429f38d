"""Links between ranks: their traffic by global ranks, and the links that carry far less than comparable links.

Ascend's communication_matrix.json numbers ranks by their position in a group, and names groups by hashes that its metadata does
not have. Each recording contains its own rank's position in each group, so the recordings together give most members; the rest
follow from the lists of groups in the metadata, if those allow one answer only.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from perfgate.document.trace import SlowLinkRow
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.model.recording import RankLink

# Perfgate's own thresholds: a link at half of the median bandwidth of comparable links. Fewer links have no meaningful median,
# smaller transfers are dominated by latency, and sizes are comparable within a factor of four.
SLOW_LINK, FEWEST_LINKS, SMALLEST, ALIKE = 0.5, 3, 1e6, 4.0
LOCAL = "LOCAL"  # a rank's copies to itself


def links_between(tables: Sequence[RankTable]) -> list[RankLink]:
    """All links between different ranks with traffic, positions in groups replaced by global ranks if those are known."""
    members = _members(tables)
    links = []
    for table in tables:
        for link in table.links:
            carries = link.size_bytes > 0 and link.transit_ns > 0
            if carries and link.link != LOCAL and link.source != link.target:
                links.append(_by_global_ranks(link, table, members))
    return links


# The global rank at a position in a group.
_Members = Mapping[tuple[str | None, int], int]


def _members(tables: Sequence[RankTable]) -> _Members:
    """The members that the recordings name; recordings that contradict each other give none."""
    ranks: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    for table in tables:
        if table.rank is not None:
            for link in table.links:
                ranks[link.group, link.source].add(table.rank)
    return {
        place: min(candidates)
        for place, candidates in ranks.items()
        if len(candidates) == 1
    }


def _by_global_ranks(link: RankLink, table: RankTable, members: _Members) -> RankLink:
    source = table.rank
    if source is None:
        source = members.get((link.group, link.source))
    target = members.get((link.group, link.target))
    if target is None:
        target = _by_lists(table, link)
    if source is None or target is None:
        return link
    return link._replace(source=source, target=target, group=None)


def _by_lists(table: RankTable, link: RankLink) -> int | None:
    """The only rank at the target's position in the groups that have this rank at the source's; None if there are several."""
    fits = set()
    for ranks in table.groups:
        if (
            max(link.source, link.target) < len(ranks)
            and ranks[link.source] == table.rank
        ):
            fits.add(ranks[link.target])
    return fits.pop() if len(fits) == 1 else None


def slow_links(
    links: Iterable[RankLink], *, share: float = SLOW_LINK
) -> list[SlowLinkRow]:
    """The links far slower than others of their kind in the same sort of operation at similar size, the slowest first."""
    comparable: dict[tuple[str, str], list[RankLink]] = defaultdict(list)
    for link in links:
        if link.size_bytes >= SMALLEST and link.bandwidth is not None:
            comparable[link.link, link.operation].append(link)
    slow = []
    for comparable_links in comparable.values():
        for link in comparable_links:
            bandwidth = link.bandwidth or 0.0
            middle = _middle_bandwidth(link, comparable_links)
            if middle is not None and bandwidth < share * middle:
                row = SlowLinkRow(
                    source=link.source,
                    target=link.target,
                    link=link.link,
                    operation=link.operation,
                    group=link.group,
                    size=link.size_bytes,
                    bandwidth=bandwidth,
                    middle=middle,
                )
                slow.append(row)
    return sorted(slow, key=lambda row: row.bandwidth / row.middle)


def _middle_bandwidth(
    link: RankLink, comparable_links: Sequence[RankLink]
) -> float | None:
    """The median bandwidth of links that carried similar sizes; None if they are too few."""
    least, most = link.size_bytes / ALIKE, link.size_bytes * ALIKE
    bandwidths = [
        candidate.bandwidth or 0.0
        for candidate in comparable_links
        if least <= candidate.size_bytes <= most
    ]
    if len(bandwidths) < FEWEST_LINKS:
        return None
    return statistics.median(bandwidths)

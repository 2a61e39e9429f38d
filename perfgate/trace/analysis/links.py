"""Links between ranks: their traffic by global ranks, and the links that carry far less than comparable ones.

Ascend's communication_matrix.json numbers ranks by their position in a group, and names groups by hashes that its metadata does
not have. Each recording contains its own rank's position in each group, so the recordings together give most members; the rest
follow from the lists of groups in the metadata, if those allow one answer only.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence

from perfgate.document.trace import SlowLinkRow
from perfgate.trace.analysis.rank_table import RankTable
from perfgate.trace.model.recording import RankLink

# Perfgate's own thresholds: a link at half of the median bandwidth of comparable ones. Fewer links have no meaningful median,
# smaller transfers are dominated by latency, and sizes are comparable within a factor of four.
SLOW_LINK, FEWEST_LINKS, SMALLEST, ALIKE = 0.5, 3, 1e6, 4.0
LOCAL = "LOCAL"  # a rank's copies to itself


def links_between(tables: Sequence[RankTable]) -> list[RankLink]:
    """All links between different ranks with traffic, positions in groups replaced by global ranks if those are known."""
    told: dict[tuple[str | None, int], set[int]] = defaultdict(set)
    for table in tables:
        if table.rank is not None:
            for link in table.links:
                told[link.group, link.source].add(table.rank)
    # Recordings that contradict each other give no member.
    members = {place: next(iter(ranks)) for place, ranks in told.items() if len(ranks) == 1}
    found = []
    for table in tables:
        for link in table.links:
            if link.link != LOCAL and link.source != link.target and link.size_bytes > 0 and link.transit_ns > 0:
                source = table.rank if table.rank is not None else members.get((link.group, link.source))
                target = members.get((link.group, link.target))
                if target is None:
                    target = _by_lists(table, link)
                known = source is not None and target is not None
                ends = (source, target) if source is not None and target is not None else (link.source, link.target)
                group = None if known else link.group
                found.append(link._replace(source=ends[0], target=ends[1], group=group))
    return found


def _by_lists(table: RankTable, link: RankLink) -> int | None:
    """The only rank at the target's position in the groups that have this rank at the source's; None if there are several."""
    fits = {
        ranks[link.target]
        for ranks in table.groups
        if max(link.source, link.target) < len(ranks) and ranks[link.source] == table.rank
    }
    return next(iter(fits)) if len(fits) == 1 else None


def slow_links(links: Iterable[RankLink], *, share: float = SLOW_LINK) -> list[SlowLinkRow]:
    """The links far slower than others of their kind in the same sort of operation at similar size, the slowest first."""
    kinds: dict[tuple[str, str], list[tuple[float, RankLink]]] = defaultdict(list)
    for link in links:
        if link.size_bytes >= SMALLEST and link.bandwidth is not None:
            kinds[link.link, link.operation].append((link.bandwidth, link))
    slow = []
    for of_kind in kinds.values():
        for bandwidth, link in of_kind:
            least, most = link.size_bytes / ALIKE, link.size_bytes * ALIKE
            alike = [other for other, one in of_kind if least <= one.size_bytes <= most]
            if len(alike) >= FEWEST_LINKS and bandwidth < share * (middle := statistics.median(alike)):
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

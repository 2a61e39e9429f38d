"""Servers that took turns: their own counters, and how requests had to be sent. It informs and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from perfgate.document.comparison import Comparison
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.comparison import ShapePlace, informing, rounded
from perfgate.judging.gate.evidence import Evidence

# Keeping connections alive, among the names of HTTP features that requests go without.
_KEEP_ALIVE = "keep-alive"
# Allowed growth in the share of prompt tokens in the cache, from the first turns of a start to the later ones.
_DRIFT = 0.1
# The counts of a ratio, as numerator and denominator: the first pair that both sides have.
_CACHED = (("prefix_hits", "prefix_queries"), ("cached_tokens", "input_tokens"))
_RATIOS = {
    "serving.prefix_hits": _CACHED,
    "serving.accepted": (("accepted", "drafted"),),
    "serving.preemptions": (("preemptions", "requests"),),
    "serving.iterations": (("iterations", "output_tokens"),),
}


def compare_counters_of_servers(place: ShapePlace, base: Iterable[Turn], head: Iterable[Turn]) -> Iterator[Comparison]:
    """Yield the ratios of counters that both sides have, over all their turns."""
    sides = [_totals(turns) for turns in (base, head)]
    for name, pairs in _RATIOS.items():
        if known := next((pair for pair in pairs if all(_is_known(side, *pair) for side in sides)), None):
            ratios = [side[known[0]] / side[known[1]] for side in sides]
            yield informing(place, name, *ratios)


def notes_on_requests(evidence: Evidence) -> list[Message]:
    """Notes on how requests to servers had to be sent, and on a cache that made them easier from turn to turn."""
    servers = [job.name for job in evidence.head.run.jobs if job.kind == "server"]
    return [note for name in servers for note in _notes_on(name, *evidence.turns(name))]


def _notes_on(name: str, base: list[Turn], head: list[Turn]) -> Iterator[Message]:
    without = {entry for turn in (*base, *head) for entry in turn.without}
    if fields := sorted(without - {_KEEP_ALIVE}):
        yield Message("notes.fields-rejected", {"workload": name, "names": fields})
    if _KEEP_ALIVE in without:
        yield Message("notes.connections-closed", {"workload": name})
    resent = [sum(turn.resent for turn in side) for side in (base, head)]
    if any(resent):
        yield Message("notes.requests-resent", {"workload": name, "base": resent[0], "head": resent[1]})
    for side in (base, head):
        if shares := _first_and_later_shares(side):
            yield Message("notes.cache-fills", {"workload": name, "first": shares[0], "later": shares[1]})
            return


def _first_and_later_shares(turns: list[Turn]) -> tuple[float, float] | None:
    """The shares of prompt tokens in the cache, in the first turn of the starts and after it, if they are far apart."""
    first = {turn.start: turn for turn in reversed(turns)}
    groups = [_totals(first.values()), _totals(turn for turn in turns if turn is not first[turn.start])]
    known = next((pair for pair in _CACHED if all(_is_known(group, *pair) for group in groups)), None)
    if known is None:
        return None
    before, later = (group[known[0]] / group[known[1]] for group in groups)
    return (rounded(before), rounded(later)) if later - before > _DRIFT else None


def _is_known(totals: Counter[str], count: str, of: str) -> bool:
    return count in totals and totals[of] > 0


def _totals(turns: Iterable[Turn]) -> Counter[str]:
    total: Counter[str] = Counter()
    for turn in turns:
        total.update(turn.counters)
        total.update(turn.work)
    return total

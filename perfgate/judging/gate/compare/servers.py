"""Servers that took turns: their own counters, and how requests had to be sent. It informs and decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from perfgate.document.comparison import Paired
from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.compare.comparison import informing
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.values import rounded

# Keeping connections alive, among the names of HTTP features that requests go without.
_KEEP_ALIVE = "keep-alive"
# Allowed growth in the share of prompt tokens in the cache, from the first turns of a start to the later ones.
_DRIFT = 0.1
# The counts of a ratio, as numerator and denominator: the first pair that both sides have.
_Ratio = tuple[str, str]
_CACHED: tuple[_Ratio, ...] = (("prefix_hits", "prefix_queries"), ("cached_tokens", "input_tokens"))
_RATIOS: Mapping[str, tuple[_Ratio, ...]] = {
    "serving.prefix_hits": _CACHED,
    "serving.accepted": (("accepted", "drafted"),),
    "serving.preemptions": (("preemptions", "requests"),),
    "serving.iterations": (("iterations", "output_tokens"),),
}


def compare_counters_of_servers(place: ShapePlace, base: Iterable[Turn], head: Iterable[Turn]) -> Iterator[Paired]:
    """Yield the ratios of counters that both sides have, over all their turns."""
    before, after = _totals(base), _totals(head)
    for name, pairs in _RATIOS.items():
        known = _first_known(pairs, before, after)
        if known is not None:
            count, of = known
            yield informing(place, name, before[count] / before[of], after[count] / after[of])


def notes_on_requests(evidence: Evidence) -> list[Message]:
    """Notes on how requests to servers had to be sent, and on a cache that made them easier from turn to turn."""
    servers = [job.name for job in evidence.head.run.jobs if job.kind == "server"]
    notes: list[Message] = []
    for name in servers:
        notes += _notes_on(name, *evidence.turns(name))
    return notes


def _notes_on(name: str, base: list[Turn], head: list[Turn]) -> Iterator[Message]:
    without = {entry for turn in (*base, *head) for entry in turn.without}
    if fields := sorted(without - {_KEEP_ALIVE}):
        yield Message("notes.fields-rejected", {"workload": name, "names": fields})
    if _KEEP_ALIVE in without:
        yield Message("notes.connections-closed", {"workload": name})
    resent = {"base": sum(turn.resent for turn in base), "head": sum(turn.resent for turn in head)}
    if any(resent.values()):
        yield Message("notes.requests-resent", {"workload": name, **resent})
    for side in (base, head):
        if shares := _first_and_later_shares(side):
            yield Message("notes.cache-fills", {"workload": name, "first": shares[0], "later": shares[1]})
            return


def _first_and_later_shares(turns: list[Turn]) -> tuple[float, float] | None:
    """The shares of prompt tokens in the cache, in the first turn of the starts and after it, if they are far apart."""
    first = {turn.start: turn for turn in reversed(turns)}
    of_first = _totals(first.values())
    of_others = _totals(turn for turn in turns if turn is not first[turn.start])
    known = _first_known(_CACHED, of_first, of_others)
    if known is None:
        return None
    count, of = known
    before, later = of_first[count] / of_first[of], of_others[count] / of_others[of]
    return (rounded(before), rounded(later)) if later - before > _DRIFT else None


def _first_known(pairs: Iterable[_Ratio], *totals: Counter[str]) -> _Ratio | None:
    """The first numerator and denominator that all totals have."""
    for count, of in pairs:
        if all(count in total and total[of] > 0 for total in totals):
            return count, of
    return None


def _totals(turns: Iterable[Turn]) -> Counter[str]:
    total: Counter[str] = Counter()
    for turn in turns:
        total.update(turn.counters)
        total.update(turn.work)
    return total

"""Servers that took turns: notes on how requests had to be sent. They only inform."""

from __future__ import annotations

from collections.abc import Iterator

from perfgate.document.job import Turn
from perfgate.document.message import Message
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.server_counters import CACHED, common_ratio
from perfgate.judging.gate.evidence.values import rounded

# Keeping connections alive, among the names of HTTP features that requests go without.
_KEEP_ALIVE = "keep-alive"
# Allowed growth in the share of prompt tokens in the cache, from the first turns of a start to the later ones.
_DRIFT = 0.1


def notes_on_requests(evidence: Evidence) -> list[Message]:
    """Notes on how requests to servers had to be sent, and on a cache that made them easier from turn to turn."""
    notes: list[Message] = []
    for job in evidence.head.run.jobs:
        notes += _notes_on(job.name, *evidence.turns(job.name))
    return notes


def _notes_on(name: str, base: list[Turn], head: list[Turn]) -> Iterator[Message]:
    without: set[str] = set()
    for turn in (*base, *head):
        without.update(turn.without)
    if fields := sorted(without - {_KEEP_ALIVE}):
        yield Message("notes.fields-rejected", {"workload": name, "names": fields})
    if _KEEP_ALIVE in without:
        yield Message("notes.connections-closed", {"workload": name})
    resent = {"base": sum(turn.resent for turn in base), "head": sum(turn.resent for turn in head)}
    if any(resent.values()):
        yield Message("notes.requests-resent", {"workload": name, **resent})
    for side in (base, head):
        shares = _cached_shares(side)
        if shares is not None:
            yield Message("notes.cache-fills", {"workload": name, "first": shares[0], "later": shares[1]})
            return


def _cached_shares(turns: list[Turn]) -> tuple[float, float] | None:
    """The shares of prompt tokens in the cache, in the first turn of the starts and after it, if they are far apart."""
    first = {turn.start: turn for turn in reversed(turns)}
    others = [turn for turn in turns if turn is not first[turn.start]]
    shares = common_ratio(CACHED, first.values(), others)
    if shares is None or shares[1] - shares[0] <= _DRIFT:
        return None
    return rounded(shares[0]), rounded(shares[1])

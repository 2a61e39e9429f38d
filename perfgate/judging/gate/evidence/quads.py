"""The quads of a job: the turns of base and head to compare with each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfgate.document.job import Turn, turns_by_quad
from perfgate.judging.gate.evidence.index import Evidence


class Quad(NamedTuple):
    """The turns of both sides to compare with each other, and their start."""

    start: int
    base: list[Turn]
    head: list[Turn]


def quads_of(evidence: Evidence, job: str) -> dict[int, Quad]:
    """The quads with turns of both sides, in the order of measuring."""
    before, after = (turns_by_quad(turns, job) for turns in evidence.turns(job))
    quads = {}
    for number in sorted(before.keys() & after.keys()):
        of_base, of_head = before[number], after[number]
        quads[number] = Quad(of_base[0].start, of_base, of_head)
    return quads


def turns_of(quads: Iterable[Quad]) -> tuple[list[Turn], list[Turn]]:
    """All turns of the base and of the head."""
    base: list[Turn] = []
    head: list[Turn] = []
    for quad in quads:
        base += quad.base
        head += quad.head
    return base, head

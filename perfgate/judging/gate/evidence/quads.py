"""The quads of a job: the turns of base and head to compare with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from perfgate.document.job import Fits, JobKind, Turn, turns_by_quad
from perfgate.judging.gate.evidence.index import Evidence

# The numbers of quads after which a job may be decided. A quad of a command is two whole runs, one of the other kinds some
# seconds of turns.
LOOKS: Mapping[JobKind, tuple[int, ...]] = {
    "command": (10, 16, 24, 40, 64),
    "ranks": (8, 16, 32, 64, 128, 256),
    "server": (8, 16, 32, 64, 128, 256),
}


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
        of_base = before[number]
        of_head = after[number]
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


def looks_of(kind: JobKind, fits: Fits) -> tuple[int, ...]:
    """The numbers of quads after which a job may be decided; an alternate job, with one process a turn, counts as a command."""
    return LOOKS["command" if fits == "alternate" else kind]


class OtherWork(NamedTuple):
    """A count of work that differs between the sides of a quad."""

    name: str
    base: int
    head: int


def other_work(quads: Iterable[Quad]) -> OtherWork | None:
    """The first difference between the work of both sides; None if all quads did the same."""
    for quad in quads:
        before = _work_of(quad.base)
        after = _work_of(quad.head)
        for name in sorted(before.keys() | after.keys()):
            if before.get(name) != after.get(name):
                return OtherWork(name, before[name], after[name])
    return None


def _work_of(turns: Iterable[Turn]) -> Counter[str]:
    total: Counter[str] = Counter()
    for turn in turns:
        total.update(turn.work)
    return total

"""A job that both sides measured, and its quads: the turns of base and head to compare with each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from perfgate.document.job import Fits, JobKind, JobRecord, Turn, turns_by_quad
from perfgate.document.profile import JobProfile
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.changed_code import ChangedCode

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


@dataclass(frozen=True)
class JobOfSides:
    """A job as the head lists it, with the turns and the profiles of both sides."""

    record: JobRecord
    base: list[Turn]
    head: list[Turn]
    base_profile: JobProfile | None
    head_profile: JobProfile | None
    code: ChangedCode

    @property
    def place(self) -> ShapePlace:
        return ShapePlace(self.record.name, "")

    @cached_property
    def quads(self) -> list[Quad]:
        """The quads with turns of both sides, in the order of measuring."""
        before = turns_by_quad(self.base, self.record.name)
        after = turns_by_quad(self.head, self.record.name)
        quads = []
        for number in sorted(before.keys() & after.keys()):
            of_base = before[number]
            quads.append(Quad(of_base[0].start, of_base, after[number]))
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

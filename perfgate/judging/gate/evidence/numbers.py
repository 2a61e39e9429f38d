"""The table of numbers: everything that both sides measured in turns.

A producer of evidence is a module of ``producers``. The rest of the gate treats all rows alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.terms import Better
from perfgate.document.decision import Policy
from perfgate.document.job import JobRecord
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence import producers
from perfgate.judging.gate.evidence.answers import AnswerCounts
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.stretches import StretchSample
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged, tolerance
from perfgate.judging.gate.evidence.trusted import TrustedNumbers
from perfgate.plugins import load_members

# Families of numbers that families.toml does not list: numbers of the checklist that a tolerance names, numbers of a job, and
# numbers that are tested without a share of the alpha.
REPEATED, JOB, ALONE = "repeated", "job", "alone"


class Levels(NamedTuple):
    """A number on both sides that no test compares."""

    base: float
    head: float


# A Message is the reason that a number has no paired units.
Units: TypeAlias = PairedEffect | StretchSample | AnswerCounts | Levels | Message


class Terms(NamedTuple):
    """The terms on which a number is decided.

    A worsening by ``tolerance`` is allowed; "unchanged" excludes the first of ``margins`` that it can. It may be decided after
    the numbers of units in ``looks``. Other code of equal speed differs by ``luck`` in all units alike.
    """

    tolerance: float
    margins: tuple[float, ...]
    looks: tuple[int, ...]
    luck: float = 0.0


class Number(NamedTuple):
    """A row of the table: a metric of a place, measured in paired units, and the terms on which it is judged.

    The numbers of a ``family`` share a part of the alpha of their workload. If a number is not ``directed``, only the documents
    state which direction is better. A number that may only fail, ``only_worse``, leaves no verdict open.
    """

    place: ShapePlace
    metric: str
    units: Units
    family: str
    terms: Terms
    unit: str
    better: Better
    gating: bool = True
    directed: bool = True
    only_worse: bool = False


class Rules(NamedTuple):
    """The rules of the trusted side for numbers: its policy, and the numbers of the jobs that it knows."""

    policy: Policy
    jobs: Mapping[str, TrustedNumbers] = MappingProxyType({})

    def numbers_of(self, job: JobRecord) -> TrustedNumbers:
        return self.jobs.get(job.name, TrustedNumbers(job.numbers))

    def number(self, place: ShapePlace, name: str, units: Units, family: str, *, moved: bool = True) -> Number:
        """A number on the terms of its catalogue entry; ``moved`` is whether its memory layout moved."""
        entry = metric(name)
        terms = Terms(
            tolerance=tolerance(self.policy, name, place, moved=moved),
            margins=margins_for_unchanged(self.policy, name, place, moved=moved),
            looks=tuple(self.policy.looks),
            luck=entry.gate.luck if moved else entry.gate.unmoved_luck,
        )
        return Number(place, name, units, family, terms, entry.unit, entry.better)


def numbers_of(evidence: Evidence, rules: Rules) -> list[Number]:
    """The rows of all producers."""
    rows: list[Number] = []
    for producer in load_members(producers):
        rows += producer.numbers(evidence, rules)
    return rows

"""The table of numbers: everything that both sides measured in turns, and base against
itself.

A producer of evidence is a module of ``producers``. The rest of the gate treats all
rows alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import BUSY, HOST, INSTRUCTIONS, TURNAROUND, WALL_TIME
from perfgate.catalogue.terms import Better
from perfgate.document.decision import Invalid, Policy
from perfgate.document.job import JobRecord
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence import producers
from perfgate.judging.gate.evidence.bounds import HeadNumbers
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.quads import AnswerCounts
from perfgate.judging.gate.evidence.stretches import StretchSample
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged, tolerance
from perfgate.judging.gate.evidence.trusted import TrustedNumbers
from perfgate.judging.gate.evidence.validity import invalid_times, invalid_turns
from perfgate.judging.gate.evidence.values import rounded
from perfgate.plugins import load_members

# Families of numbers that families.toml does not list: numbers of the checklist that a
# tolerance names, numbers of a job, and numbers that are tested without a share of the
# alpha.
REPEATED, JOB, ALONE = "repeated", "job", "alone"
# Times of the host that do not decide on an accelerator, or only where the device waits
# for the host.
HOST_TIMES = (HOST, TURNAROUND, WALL_TIME)


class Levels(NamedTuple):
    """A number on both sides that no test compares."""

    base: float
    head: float


# A Message is the reason that a number has no paired values.
PairedValues: TypeAlias = PairedEffect | StretchSample | AnswerCounts | Levels | Message


class Terms(NamedTuple):
    """The terms on which a number is decided.

    A worsening by ``tolerance`` is allowed; "unchanged" excludes the first of
    ``margins`` that it can. The last margin is wider if both sides did the
    ``same_work``. It may be decided after the numbers of units in ``looks``. Other code
    of equal speed differs by ``luck`` in all units alike.
    """

    tolerance: float
    margins: tuple[float, ...]
    looks: tuple[int, ...]
    luck: float = 0.0
    same_work: bool = False


class Number(NamedTuple):
    """A row of the table: a metric of a place, with its paired values and the terms
    on which it is judged.

    The numbers of a ``family`` share a part of the alpha of their workload. If a number
    is not ``directed``, only the documents state which direction is better. A number
    that may only fail, ``only_worse``, leaves no verdict open. ``informs`` is the
    reason that it does not decide.
    """

    place: ShapePlace
    metric: str
    values: PairedValues
    family: str
    terms: Terms
    unit: str
    better: Better
    gating: bool = True
    directed: bool = True
    only_worse: bool = False
    informs: Message | None = None

    @property
    def is_of_call(self) -> bool:
        """Whether process pairs or stretches of calls measured it."""
        if isinstance(self.values, PairedEffect):
            return self.values.evidence == "pair"
        return isinstance(self.values, StretchSample)


class Rules(NamedTuple):
    """The rules of the trusted side for numbers: its policy, and the numbers of the
    jobs that it knows.
    """

    policy: Policy
    jobs: Mapping[str, TrustedNumbers] = MappingProxyType({})

    def numbers_of(self, job: JobRecord) -> TrustedNumbers:
        return self.jobs.get(job.name, TrustedNumbers(job.numbers))

    def number(
        self,
        place: ShapePlace,
        name: str,
        values: PairedValues,
        family: str,
        *,
        moved: bool = True,
    ) -> Number:
        """A number on the terms of its catalogue entry; ``moved`` is whether its memory
        layout moved.
        """
        entry = metric(name)
        terms = Terms(
            tolerance=tolerance(self.policy, name, place, moved=moved),
            margins=margins_for_unchanged(self.policy, name, place, moved=moved),
            looks=tuple(self.policy.looks),
            luck=entry.gate.luck if moved else entry.gate.unmoved_luck,
        )
        return Number(place, name, values, family, terms, entry.unit, entry.better)


class Twins(NamedTuple):
    """A number of base against base, the slowdown that "unchanged" excludes of it, and
    the pairs of base and head.
    """

    place: ShapePlace
    metric: str
    effect: PairedEffect
    margin: float
    pairs: int


@dataclass(frozen=True)
class NumberTable:
    """The numbers of a session.

    Both sides ``measured`` most of them; ``twins`` compare the base with itself, and
    rules judge the numbers ``of_head``. The times of places in ``invalid_times`` and of
    jobs in ``invalid_turns`` are not evidence. ``waited`` is the share of its CPU time
    that each job waited for, None if the wall clock decides. ``subjects`` is the number
    of workloads and jobs, which share the alpha of the gate.
    """

    measured: list[Number]
    twins: list[Twins]
    of_head: HeadNumbers
    invalid_times: list[Invalid]
    invalid_turns: list[Invalid]
    waited: Mapping[str, float | None]
    subjects: int

    @classmethod
    def of(cls, evidence: Evidence, rules: Rules) -> NumberTable:
        return cls(
            measured=numbers_of(evidence, rules),
            twins=list(_twins_of(evidence, rules.policy)),
            of_head=HeadNumbers.of(evidence.base, evidence.head, rules.policy),
            invalid_times=invalid_times(evidence),
            invalid_turns=invalid_turns(evidence),
            waited={
                name: job.waited_where_cpu_is_fair
                for name, job in evidence.jobs.items()
            },
            subjects=len(evidence.head.subjects),
        )


def numbers_of(evidence: Evidence, rules: Rules) -> list[Number]:
    """The rows of all producers."""
    rows: list[Number] = []
    for producer in load_members(producers):
        for number in producer.numbers(evidence, rules):
            rows.append(number._replace(informs=_why_it_informs(evidence, number)))
    return rows


def _why_it_informs(evidence: Evidence, number: Number) -> Message | None:
    """The reason that a number does not decide; None if it counts.

    On an accelerator the wall alone decides no time of a call. If the clock of the
    device differed between the sides, only the cycles of its kernels and the host's
    time compare. Stretches of calls that one side may have made on a busier host
    inform, and so do instructions, as every poll of a slower device takes some.
    """
    if number.place not in evidence.on_device or not number.is_of_call:
        return None
    name = number.metric
    of_stretch = isinstance(number.values, StretchSample)
    if name in HOST_TIMES:
        if name != HOST:
            return Message("gate.wall-informs")
        if not number.gating:
            return Message("gate.host-not-exposed")
    elif name != BUSY and (number.gating or of_stretch):
        change = evidence.clock_shift(number.place)
        if change is not None:
            return Message("gate.cycles-decide", {"change": rounded(change)})
    if of_stretch and not number.gating:
        return Message("gate.host-waited")
    if name == INSTRUCTIONS:
        return Message("gate.host-waits")
    return None


def _twins_of(evidence: Evidence, policy: Policy) -> Iterator[Twins]:
    """Yield the numbers of base against base by clocks that are fair to both."""
    for place in evidence.base.places:
        pairs = len(evidence.pairs.get(place.workload, ()))
        moved = place.workload not in evidence.unmoved
        for name, effect in evidence.effects(place, of_twins=True).items():
            if effect.fair:
                _, margin = margins_for_unchanged(policy, name, place, moved=moved)
                yield Twins(place, name, effect, margin, pairs)

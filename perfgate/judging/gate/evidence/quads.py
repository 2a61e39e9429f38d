"""A job that both sides measured: its quads, the turns of base and head to compare with
each other, and what these turns show besides their numbers: work, answers, stalls and
counters.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import NamedTuple

import numpy as np

from perfgate.catalogue.names import ITL
from perfgate.document.job import (
    PYTHON_LINES,
    Fits,
    JobKind,
    JobProfile,
    JobRecord,
    Turn,
    turns_by_quad,
)
from perfgate.document.samples import STALL_FACTOR, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import ALIKE, COMPUTES, WAITED
from perfgate.judging.gate.evidence.changed_code import ChangedCode
from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.stats.arrays import Flags, Floats, Ints
from perfgate.stats.summary import median

# The numbers of quads after which a job may be decided. A quad of a command is two
# whole runs, one of the other kinds some seconds of turns.
LOOKS: Mapping[JobKind, tuple[int, ...]] = {
    "command": (10, 16, 24, 40, 64),
    "ranks": (8, 16, 32, 64, 128, 256),
    "server": (8, 16, 32, 64, 128, 256),
}


def looks_of(kind: JobKind, fits: Fits) -> tuple[int, ...]:
    """The numbers of quads after which a job may be decided; an alternate job, with one
    process a turn, counts as a command.
    """
    return LOOKS["command" if fits == "alternate" else kind]


class Quad(NamedTuple):
    """The turns of both sides to compare with each other, and their start."""

    start: int
    base: list[Turn]
    head: list[Turn]


class OtherWork(NamedTuple):
    """A count of work that differs between the sides of a quad."""

    name: str
    base: int
    head: int


class CpuDemand(NamedTuple):
    """The CPUs that a process of a side wanted on average, and the share of that it
    waited for.
    """

    cpus: float
    waited: float


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

    @cached_property
    def turns(self) -> tuple[list[Turn], list[Turn]]:
        """All turns of base and of head in quads."""
        base: list[Turn] = []
        head: list[Turn] = []
        for quad in self.quads:
            base += quad.base
            head += quad.head
        return base, head

    @cached_property
    def other_work(self) -> OtherWork | None:
        """The first difference between the work of both sides; None if all quads did
        the same.
        """
        for quad in self.quads:
            before = _totals(turn.work for turn in quad.base)
            after = _totals(turn.work for turn in quad.head)
            for name in sorted(before.keys() | after.keys()):
                if before.get(name) != after.get(name):
                    return OtherWork(name, before[name], after[name])
        return None

    @property
    def cpu_demands(self) -> list[CpuDemand]:
        """The CPU time that the processes of base and of head wanted, of sides that
        report it.
        """
        demands = []
        for turns in (self.base, self.head):
            demand = _cpu_demand(turns)
            if demand is not None:
                demands.append(demand)
        return demands

    @property
    def waited_where_cpu_is_fair(self) -> float | None:
        """The share of the CPU time that both sides wanted and did not get; None if the
        wall clock decides.

        The wall clock decides on an idle host, and if a side does not want to compute
        for most of its turns, or the sides differ in that: their other waits show on
        the wall clock alone.
        """
        demands = self.cpu_demands
        if len(demands) < 2:
            return None
        before, after = demands
        waited = (before.waited + after.waited) / 2
        computes = min(before.cpus, after.cpus) >= COMPUTES
        are_alike = abs(after.cpus - before.cpus) <= ALIKE * max(
            1.0, before.cpus, after.cpus
        )
        if computes and are_alike and waited >= WAITED:
            return waited
        return None


def _totals(counts: Iterable[Mapping[str, int]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for of_turn in counts:
        total.update(of_turn)
    return total


def _cpu_demand(turns: Sequence[Turn]) -> CpuDemand | None:
    """The demand of a side; None if a turn lacks the data."""
    used = waited = seconds = 0.0
    for turn in turns:
        if turn.cpu is None or turn.cpu.waited is None:
            return None
        used += max(0.0, turn.cpu.used)
        waited += max(0.0, turn.cpu.waited)
        seconds += max(0.0, turn.cpu.seconds)
    # Sums of damaged documents may be infinite.
    if not 0 < seconds < math.inf or not 0 < used + waited < math.inf:
        return None
    processes = max(1, turns[0].work.get("ranks", 1))
    return CpuDemand((used + waited) / seconds / processes, waited / (used + waited))


# --- counters of turns: the lines of Python that the runs of a command execute, and
# ratios of a server's own counters

# The fewest runs of a side that show whether the count of lines repeats.
FEWEST_COUNTED = 2
# The counts of a ratio, as numerator and denominator: the first pair that both sides
# have.
Ratio = tuple[str, str]
CACHED: tuple[Ratio, ...] = (
    ("prefix_hits", "prefix_queries"),
    ("cached_tokens", "input_tokens"),
)
RATIOS: Mapping[str, tuple[Ratio, ...]] = {
    "serving.prefix_hits": CACHED,
    "serving.accepted": (("accepted", "drafted"),),
    "serving.preemptions": (("preemptions", "requests"),),
    "serving.iterations": (("iterations", "output_tokens"),),
}


def counted_lines(turns: Iterable[Turn]) -> list[int]:
    return [
        turn.counters[PYTHON_LINES] for turn in turns if PYTHON_LINES in turn.counters
    ]


def common_ratio(
    candidates: Iterable[Ratio], first: Iterable[Turn], second: Iterable[Turn]
) -> tuple[float, float] | None:
    """The first ratio that both lists of turns have, of each of them."""
    before = _totals(chain.from_iterable((turn.counters, turn.work) for turn in first))
    after = _totals(chain.from_iterable((turn.counters, turn.work) for turn in second))
    for count, of in candidates:
        if count in before and count in after and min(before[of], after[of]) > 0:
            return before[count] / before[of], after[count] / after[of]
    return None


# --- nondeterministic answers of a server: how often they agree within a side and
# across sides. Rounding depends on the other requests in a batch, so a server on a card
# seldom reproduces every text. Both sides answer the same requests in every start. Each
# answer is compared with the same side's answer in the previous start and with the
# other side's in the same start.


class AlikeAnswers(NamedTuple):
    """Counts of a side's answers: equal to its previous start's, equal to the other
    side's, and equal to only one of these.
    """

    answers: int
    own: int
    other: int
    own_alone: int
    other_alone: int


class AnswerCounts(NamedTuple):
    """The answers of base compared with head's, and the answers of head compared with
    base's.
    """

    base: AlikeAnswers
    head: AlikeAnswers


def answers_of(base: Iterable[Turn], head: Iterable[Turn]) -> AnswerCounts | None:
    """Compare the answers of consecutive starts; None if no two starts have them."""
    before = {turn.start: turn.texts for turn in base if turn.texts}
    after = {turn.start: turn.texts for turn in head if turn.texts}
    of_base = _alike(before, after)
    of_head = _alike(after, before)
    if of_base is None or of_head is None:
        return None
    return AnswerCounts(of_base, of_head)


def _alike(
    answers: Mapping[int, Sequence[str]], others: Mapping[int, Sequence[str]]
) -> AlikeAnswers | None:
    count = own = other = own_alone = other_alone = 0
    for previous, start in pairwise(sorted(answers)):
        if start not in others:
            continue
        texts = zip(answers[start], answers[previous], others[start])
        for text, text_before, text_of_other in texts:
            is_own = text == text_before
            is_other = text == text_of_other
            count += 1
            own += is_own
            other += is_other
            own_alone += is_own and not is_other
            other_alone += is_other and not is_own
    if not count:
        return None
    return AlikeAnswers(count, own, other, own_alone, other_alone)


# --- stalls: times far above the median of their side and quad, which a mean hides or
# turns into a slowdown of every call. A call of a function, or a gap between two tokens
# of a server, is a stall if it is longer than three times the median. So a uniform
# slowdown has no more stalls. Stalls of a server are compared by the rule for all
# numbers of jobs, stalls of functions in their long stretches (``stretches``).

# Added to numbers of stalls, because 0 has neither a logarithm nor a ratio.
HALF = 0.5
# A quad with fewer gaps has no measurable tail.
_FEWEST_GAPS = 20


def is_stall(times: Floats | Ints) -> Flags:
    """Which times of one side and quad are stalls."""
    stalled: Flags = times > STALL_FACTOR * median(times)
    return stalled


def stall_effect(quads: Iterable[Quad]) -> PairedEffect | None:
    """The stalls of both sides, quad by quad; None if turns have too few gaps between
    tokens, or no stall at all.
    """
    # Of base and of head.
    stalls = [0, 0]
    gaps = [0, 0]
    differences = []
    starts = []
    for quad in quads:
        log_shares = []
        for side, turns in enumerate((quad.base, quad.head)):
            times = _token_gaps(turns)
            if times.size < _FEWEST_GAPS:
                return None
            stalled = int(np.count_nonzero(is_stall(times)))
            stalls[side] += stalled
            gaps[side] += times.size
            log_shares.append(math.log((stalled + HALF) / (times.size + 1)))
        differences.append(log_shares[1] - log_shares[0])
        starts.append(quad.start)
    if not any(stalls):
        return None
    base, head = (count / of for count, of in zip(stalls, gaps))
    return PairedEffect(Differences.of(differences, starts), base, head, "quad")


def _token_gaps(turns: Iterable[Turn]) -> Ints:
    columns: list[Ints] = [np.zeros(0, dtype=np.int64)]
    for turn in turns:
        columns += [
            unpack(entry.samples) for entry in turn.samples if entry.metric == ITL
        ]
    return np.concatenate(columns)

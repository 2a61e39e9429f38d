"""The numbers of jobs that took turns, quad by quad and start by start.

A quad compares the mean logarithm of the turns of each side. Quads of one start share
its luck, so another start is stronger evidence than its quads alone
(``stats/clusters.py``), and a single start is not evidence.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

import numpy as np

from perfgate.catalogue.lookup import metric
from perfgate.catalogue.names import (
    JOB_HALVES,
    RANKS_EXPOSED,
    RANKS_SKEW,
    SAME_TEXT,
    STALLS,
    TTFT_P99,
)
from perfgate.document.job import JobNumber, Turn
from perfgate.judging.gate.evidence.checklist import LARGEST_RATIO
from perfgate.judging.gate.evidence.effect import Differences, PairedEffect
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import (
    ALONE,
    JOB,
    Levels,
    Number,
    Rules,
    Terms,
)
from perfgate.judging.gate.evidence.quads import (
    LOOKS,
    RATIOS,
    JobOfSides,
    Quad,
    answers_of,
    common_ratio,
    looks_of,
    stall_effect,
)
from perfgate.judging.gate.evidence.work import exposed, profiled_starts, skew
from perfgate.stats.summary import median

# The slowdown of a job that "unchanged" excludes: whole programs spread more than
# calls.
JOB_OK_MARGIN = 0.03
# Pairs of starts from which a difference of profiled times is tested: fewer give no
# interval of 95 %.
_STARTS_TO_TEST = 7
# The variation of the profiler's own cost: the tolerance of a time under it, and the
# change that "unchanged" excludes.
_PROFILED_MARGIN = 0.1


def numbers(evidence: Evidence, rules: Rules) -> Iterator[Number]:
    """Yield the numbers of every job; if the two sides did different work, only shares
    of counts and of equal answers.
    """
    for job in evidence.jobs.values():
        measured = JobQuads(job, rules)
        yield from measured.ratios_of_counters()
        yield from measured.times_of_profiled_steps()
        yield from measured.answers()
        if job.other_work is None:
            yield from measured.reported_numbers()
            yield from measured.halves()
            yield from measured.stalls()


class JobQuads:
    """The turns of a job."""

    def __init__(self, job: JobOfSides, rules: Rules) -> None:
        self._job = job
        self._record = job.record
        self._rules = rules
        self._place = job.place
        self._looks = looks_of(job.record.kind, job.record.fits)
        self._trusted = rules.numbers_of(job.record)
        self._base, self._head = job.turns

    def reported_numbers(self) -> Iterator[Number]:
        """Yield the numbers that all turns have; a missing value is reported by the
        plan.
        """
        for entry in self._trusted.numbers:
            effect = self._effect(entry.metric)
            if effect is not None:
                yield self._reported(entry, effect)

    def _effect(self, name: str) -> PairedEffect | None:
        turns = [*self._base, *self._head]
        if not turns or not all(name in turn.values for turn in turns):
            return None
        base = np.array([_mean_log(quad.base, name) for quad in self._job.quads])
        head = np.array([_mean_log(quad.head, name) for quad in self._job.quads])
        if not np.isfinite([base, head]).all():
            return None
        starts: list[int] | None = None
        if not self._record.starts_afresh:
            starts = [quad.start for quad in self._job.quads]
        differences = Differences.of(head - base, starts)
        return PairedEffect.of(differences, math.exp(median(base)), "quad")

    def _reported(self, entry: JobNumber, effect: PairedEffect) -> Number:
        """A number as the trusted side lists it.

        The tail of few requests is weak evidence: it may only fail the gate.
        """
        margin = self._rules.policy.ok_margin
        if margin is None:
            margin = JOB_OK_MARGIN * metric(entry.metric).gate.ok_margin_scale
        is_tail = entry.metric == TTFT_P99 and not entry.gating
        return self._number(entry.metric, effect, margin)._replace(
            unit=entry.unit,
            better=entry.better,
            gating=entry.gating or is_tail,
            directed=entry.metric not in self._trusted.undirected,
            only_worse=is_tail,
        )

    def _number(self, name: str, effect: PairedEffect, margin: float = 0.0) -> Number:
        """A number on the terms of a job: "unchanged" excludes ``margin``, or what is
        tolerated if that is more.
        """
        number = self._rules.number(self._place, name, effect, JOB)
        allowed = number.terms.tolerance
        return number._replace(
            terms=Terms(allowed, (max(allowed, margin),), self._looks)
        )

    def stalls(self) -> Iterator[Number]:
        effect = stall_effect(self._job.quads)
        if effect is not None:
            yield self._number(STALLS, effect)._replace(only_worse=True)

    def halves(self) -> Iterator[Number]:
        """Yield the slowdown on the second half of the devices relative to the first,
        by the first number that gates.
        """
        gating = [number for number in self._trusted.numbers if number.gating]
        if self._record.fits != "swap" or not gating:
            return
        # A quad with fewer turns is missing evidence.
        quads = [
            quad
            for quad in self._job.quads
            if len(quad.base) > 1 and len(quad.head) > 1
        ]
        slowdowns = np.array(
            [_slowdown_on_second_half(quad, gating[0]) for quad in quads]
        )
        if quads and np.isfinite(slowdowns).all():
            differences = Differences.of(slowdowns, [quad.start for quad in quads])
            effect = PairedEffect.of(differences, 1.0, "quad")
            yield self._number(JOB_HALVES, effect)._replace(
                terms=Terms(1.0, (1.0,), self._looks), gating=False
            )

    def ratios_of_counters(self) -> Iterator[Number]:
        for name, candidates in RATIOS.items():
            shares = common_ratio(candidates, self._base, self._head)
            if shares is not None:
                yield self._rules.number(self._place, name, Levels(*shares), ALONE)

    def times_of_profiled_steps(self) -> Iterator[Number]:
        """Yield the communication of profiled steps, start by start."""
        base = profiled_starts(self._base)
        head = profiled_starts(self._head)
        if not base or not head:
            return
        for name, seconds_of in ((RANKS_EXPOSED, exposed), (RANKS_SKEW, skew)):
            before = list(map(seconds_of, base))
            yield self._profiled(name, before, list(map(seconds_of, head)))

    def _profiled(
        self, name: str, base: Sequence[float], head: Sequence[float]
    ) -> Number:
        """A time of profiled steps: tested over enough starts, otherwise it only
        informs.
        """
        level = statistics.median(base)
        ratios = _log_ratios(base, head)
        if len(ratios) < _STARTS_TO_TEST or max(map(abs, ratios)) > LARGEST_RATIO:
            levels = Levels(level, statistics.median(head))
            return self._rules.number(self._place, name, levels, ALONE)
        effect = PairedEffect.of(Differences.of(ratios), level, "quad")
        number = self._rules.number(self._place, name, effect, ALONE)
        terms = Terms(_PROFILED_MARGIN, (_PROFILED_MARGIN,), (len(ratios),))
        return number._replace(terms=terms, gating=False)

    def answers(self) -> Iterator[Number]:
        counts = answers_of(self._job.base, self._job.head)
        if counts is not None:
            number = self._rules.number(self._place, SAME_TEXT, counts, JOB)
            yield number._replace(terms=number.terms._replace(looks=LOOKS["server"]))


def _mean_log(turns: Sequence[Turn], name: str) -> float:
    logarithms = []
    for turn in turns:
        value = turn.values.get(name, math.nan)
        logarithms.append(math.log(value) if value > 0 else -math.inf)
    return float(np.mean(logarithms))


def _slowdown_on_second_half(quad: Quad, number: JobNumber) -> float:
    """The head begins on the second half of the devices, and the base ends there."""
    head_on_second, head_on_first = _mean_logs_of_halves(quad.head, number.metric)
    base_on_first, base_on_second = _mean_logs_of_halves(quad.base, number.metric)
    more = ((head_on_second - base_on_first) - (head_on_first - base_on_second)) / 2
    if number.better == "higher":
        return -more
    return more


def _mean_logs_of_halves(turns: Sequence[Turn], name: str) -> tuple[float, float]:
    """The mean logarithm of a number in the first and in the second half of the turns."""
    half = len(turns) // 2
    return _mean_log(turns[:half], name), _mean_log(turns[half : 2 * half], name)


def _log_ratios(base: Sequence[float], head: Sequence[float]) -> list[float]:
    """The logarithms of head over base, start by start; none if a time is 0."""
    ratios = []
    for before, after in zip(base, head):
        if min(before, after) <= 0:
            return []
        ratios.append(math.log(after) - math.log(before))
    return ratios

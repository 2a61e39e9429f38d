"""One judge for every number that both sides measured in turns.

The numbers of a family and workload are corrected for together. The unit of evidence
decides the test: the rule for pairs, turns and quads, sign flips for long stretches, a
sign test for answers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.catalogue.lookup import FAMILIES
from perfgate.catalogue.names import (
    E2E,
    INSTRUCTIONS,
    LATENCY,
    RANKS_CPU,
    RANKS_STEP,
    REQUEST_CPU,
    SERVING_CPU,
    SERVING_THROUGHPUT,
    TPOT,
    TTFT,
)
from perfgate.document.budget import judges_subroutines
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import CPU_DECIDES, SAME_WORK, NoiseFloor, Policy
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare import answers, effects, stretches
from perfgate.judging.gate.compare.comparison import JudgedNumber, informing, paired
from perfgate.judging.gate.compare.rule import Errors
from perfgate.judging.gate.compare.stretches import METRICS as OF_STRETCHES
from perfgate.judging.gate.evidence.effect import PairedEffect
from perfgate.judging.gate.evidence.numbers import (
    ALONE,
    HOST_TIMES,
    JOB,
    REPEATED,
    Levels,
    Number,
)
from perfgate.judging.gate.evidence.producers.device_clocks import SAME_WORK_MARGIN
from perfgate.judging.gate.evidence.quads import AnswerCounts
from perfgate.judging.gate.evidence.stretches import StretchSample
from perfgate.judging.gate.evidence.tolerance import repeated_metrics
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.error_control import holm

OPERATORS = "operators"
# In addition to the shares of the families.
_SHARES = {REPEATED: 0.05, OPERATORS: 0.2}


class AlphaShares(NamedTuple):
    """The errors of a gate: alpha of the ``gate``, of a ``subject``, which is a
    workload or a job, and of a share of 1 of a workload; and the error of an
    ``unchanged``.

    At an ``interim`` look alarms of pairs and turns are surer than at the end.
    """

    gate: float
    subject: float
    per_share: float
    unchanged: float
    interim: bool = False

    @classmethod
    def of_subjects(
        cls, policy: Policy, *, subjects: int, interim: bool = False
    ) -> AlphaShares:
        """The shares for this number of workloads and jobs."""
        shares = sum(family.share for family in FAMILIES.values() if family.gating)
        if repeated_metrics(policy):
            shares += _SHARES[REPEATED]
        if judges_subroutines(policy.tolerances):
            shares += _SHARES[OPERATORS]
        subject = policy.alpha / max(1, subjects)
        return cls(policy.alpha, subject, subject / shares, policy.alpha_ok, interim)

    def of(self, family: str) -> float:
        """The alpha that the numbers of a family share in a workload or job."""
        if family == ALONE:
            return self.gate
        if family == JOB:
            return self.subject
        share = FAMILIES[family].share if family in FAMILIES else _SHARES[family]
        return self.per_share * share


_FINER = {SERVING_THROUGHPUT: ({TTFT, TPOT}, {E2E})}
# Metrics by the wall clock, and the CPU time of the same work.
_OF_THE_WALL = {TTFT, TPOT, E2E, SERVING_THROUGHPUT, RANKS_STEP}
_OF_THE_CPU = (SERVING_CPU, REQUEST_CPU, RANKS_CPU)


def judge_numbers(
    numbers: Sequence[Number],
    shares: AlphaShares,
    floors: Iterable[NoiseFloor],
    waited: Mapping[str, float | None] = MappingProxyType({}),
) -> list[Comparison]:
    """Judge all numbers, in their order; ``waited`` are the shares of CPU time for
    which jobs waited.
    """
    families: dict[tuple[str, str], list[Number]] = defaultdict(list)
    for number in numbers:
        families[number.family, number.place.workload].append(number)
    judges = {}
    for key, members in families.items():
        judges[key] = _FamilyJudge(members, shares)
    floor_of = {(*floor.place, floor.metric): floor for floor in floors}
    comparisons: list[Comparison] = []
    for number in numbers:
        judge = judges[number.family, number.place.workload]
        for row in judge.judge(number, floor_of.get((*number.place, number.metric))):
            comparisons.append(_with_reason(row, number))
    by_place: dict[ShapePlace, list[Paired]] = defaultdict(list)
    for row in comparisons:
        if isinstance(row, Paired):
            by_place[row.place].append(row)
    for index, row in enumerate(comparisons):
        if isinstance(row, Paired):
            reason = _implied_by(row, by_place[row.place], waited)
            if reason is not None:
                comparisons[index] = informing_because(row, reason)
    return comparisons


def _with_reason(row: Comparison, number: Number) -> Comparison:
    """The comparison, with the reason that its number informs, or that a wider margin
    is enough.
    """
    if not isinstance(row, Paired):
        return row
    if number.informs is not None and row.gating == number.gating:
        return informing_because(row, number.informs)
    if number.terms.same_work and row.excluded == SAME_WORK_MARGIN:
        return replace(row, reason=Message(SAME_WORK, {"margin": SAME_WORK_MARGIN}))
    return row


class _FamilyJudge:
    """Judges the numbers of one family, which share its alpha."""

    def __init__(self, members: Sequence[Number], shares: AlphaShares) -> None:
        self._shares = shares
        self._alpha = shares.of(members[0].family)
        corrected = list(filter(_is_corrected, members))
        p_values = holm(list(map(self._p_of_alarm, corrected)))
        self._p_adjusted = {id(number): p for number, p in zip(corrected, p_values)}
        self._tests = max(
            1, sum(isinstance(number.values, PairedEffect) for number in corrected)
        )

    def _errors(self, number: Number) -> Errors:
        return Errors(
            alarm=self._alpha,
            unchanged=self._shares.unchanged,
            looks=number.terms.looks,
        )

    def _p_of_alarm(self, number: Number) -> float:
        values = number.values
        if isinstance(values, StretchSample):
            return stretches.p_of_alarm(number.metric, values)
        if isinstance(values, AnswerCounts):
            return answers.p_of_alarm(values, len(number.terms.looks))
        assert isinstance(values, PairedEffect)
        return effects.p_of_alarm(
            number, values, self._errors(number), interim=self._shares.interim
        )

    def judge(self, number: Number, floor: NoiseFloor | None) -> list[Comparison]:
        p_adjusted = self._p_adjusted.get(id(number))
        judged = JudgedNumber(
            number, self._errors(number), p_adjusted, self._tests, floor
        )
        match number.values:
            case Levels() as levels:
                return [informing(number, levels)]
            case Message() as reason:
                # It cannot be compared, so it is undecided.
                return [replace(paired(number, reason=reason), evidence="turn")]
            case PairedEffect() as effect:
                return [effects.judge_effect(judged, effect)]
            case AnswerCounts() as counts:
                return list(answers.judge_answers(judged, counts))
            case sample:
                return [stretches.judge_sample(judged, sample)]


def _is_corrected(number: Number) -> bool:
    """Whether a number shares the alpha of its family; a number of a job that does not
    gate is tested alone.
    """
    if isinstance(number.values, (Levels, Message)):
        return False
    is_of_quads = (
        isinstance(number.values, PairedEffect) and number.values.evidence == "quad"
    )
    return number.gating or not is_of_quads


# --- numbers that follow from others: if they are left open, they do not gate


def informing_because(comparison: Paired, reason: Message) -> Paired:
    """The comparison, which does not decide by itself."""
    name = comparison.metric
    if name == INSTRUCTIONS:
        shown = reason if comparison.outcome == "regressed" else comparison.reason
        return replace(comparison, gating=False, reason=shown)
    row = replace(comparison, gating=False, reason=reason, pairs_needed=None)
    if name in HOST_TIMES or name in OF_STRETCHES:
        return replace(row, outcome="informs", excluded=None)
    return row


def _implied_by(
    comparison: Paired,
    of_place: Sequence[Paired],
    waited: Mapping[str, float | None],
) -> Message | None:
    """The reason that a comparison does not decide by itself; None if it counts.

    ``waited`` are the shares of CPU time for which jobs waited, if CPU time is fair to
    both sides.
    """
    if comparison.metric == INSTRUCTIONS and comparison.gating:
        if any(row.metric == LATENCY and row.outcome == "improved" for row in of_place):
            return Message("gate.calls-take-less")
        return None
    if (
        not comparison.is_of_job
        or not comparison.gating
        or comparison.outcome != "inconclusive"
    ):
        return None
    outcomes = {
        row.metric: row.outcome for row in of_place if row.is_of_job and row.gating
    }
    for names in _FINER.get(comparison.metric, ()):
        if names <= outcomes.keys():
            return Message("gate.covered", {"by": sorted(names)})
    cpu = next(
        (
            name
            for name in _OF_THE_CPU
            if outcomes.get(name) in ("unchanged", "improved")
        ),
        None,
    )
    if cpu is None or comparison.metric not in _OF_THE_WALL or comparison.looks_worse:
        return None
    share = waited.get(comparison.workload)
    if share is None:
        return None
    return Message(CPU_DECIDES, {"waited": rounded(share), "by": cpu})

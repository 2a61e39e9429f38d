"""All comparisons of one session, in the order in which their evidence counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.comparison import Comparison, Paired, Recorded
from perfgate.document.decision import Invalid, NoiseFloor, Policy
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.alpha import OPERATORS, AlphaShares
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.compare.harmless_counts import with_costless
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.implied_numbers import with_implied
from perfgate.judging.gate.compare.jobs import compare_jobs
from perfgate.judging.gate.compare.judge import judge_numbers
from perfgate.judging.gate.compare.noise import base_differs, noise_floors
from perfgate.judging.gate.compare.operators import judge_subroutines
from perfgate.judging.gate.compare.parts import with_parts
from perfgate.judging.gate.compare.recordings import compare_kernel_times
from perfgate.judging.gate.compare.settings import compare_settings
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.numbers import Rules, numbers_of
from perfgate.judging.gate.evidence.trusted import TrustedNumbers
from perfgate.judging.gate.evidence.validity import invalid_times, invalid_turns


class SessionComparisons(NamedTuple):
    """The comparisons, the noise floors, and the places with invalid times."""

    comparisons: list[Comparison]
    floors: list[NoiseFloor]
    invalid: list[Invalid]

    @property
    def spoiled(self) -> set[ShapePlace]:
        return {entry.place for entry in self.invalid}


def compare_sides(
    evidence: Evidence,
    policy: Policy,
    shares: AlphaShares,
    numbers: Mapping[str, TrustedNumbers],
) -> SessionComparisons:
    """Compare everything that one session measured on both sides; invalid times are set aside.

    ``numbers`` are the trusted side's numbers of jobs.
    """
    floors = noise_floors(evidence, policy)
    invalid = [*invalid_times(evidence), *base_differs(floors), *invalid_turns(evidence)]
    reasons = {entry.place: entry.message for entry in invalid}
    rows = numbers_of(evidence, Rules(policy, numbers))
    judged = judge_numbers(rows, shares, floors)
    judged = list(with_parts(with_implied(judged, evidence), evidence))
    kernel_times: list[Recorded] = []
    if evidence.recorded:
        kernel_times = compare_kernel_times(evidence, policy)
    comparisons: list[Comparison] = [
        *compare_rules(evidence.base, evidence.head, policy),
        *compare_counters(evidence, policy),
        *compare_settings(evidence),
        *kernel_times,
        *_without_invalid(judged, reasons),
        *judge_subroutines(evidence, policy, shares.of(OPERATORS), spoiled=reasons),
        *_of_jobs(evidence, policy, judged),
    ]
    return SessionComparisons(with_costless(comparisons, policy), floors, invalid)


def _of_jobs(evidence: Evidence, policy: Policy, judged: Iterable[Comparison]) -> list[Comparison]:
    """The checks and counts of jobs, job by job."""
    order = {job.name: number for number, job in enumerate(evidence.head.records)}
    checks = [row for row in judged if not isinstance(row, Paired)]
    return sorted([*compare_jobs(evidence, policy), *checks], key=lambda row: order[row.workload])


def set_aside(comparison: Comparison, reason: Message) -> Comparison:
    """The comparison without its evidence."""
    return replace(comparison, outcome="not_comparable", gating=False, reason=reason)


def _without_invalid(judged: Iterable[Comparison], reasons: Mapping[ShapePlace, Message]) -> Iterator[Comparison]:
    """Yield the numbers, set aside if there is a reason why the times of their place are invalid."""
    for comparison in judged:
        if isinstance(comparison, Paired):
            reason = reasons.get(comparison.place)
            yield comparison if reason is None else set_aside(comparison, reason)

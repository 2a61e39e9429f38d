"""All comparisons of one session, in the order in which their evidence counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from perfgate.document.comparison import Bound, Checked, Comparison, Paired
from perfgate.document.decision import ComparedSides, Invalid, NoiseFloor, Policy
from perfgate.document.history import Acceptance
from perfgate.document.message import Message
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.alpha import OPERATORS, AlphaShares
from perfgate.judging.gate.compare.comparison import not_compared, with_accepted
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.compare.harmless_counts import with_costless
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.jobs import compare_job
from perfgate.judging.gate.compare.judge import judge_numbers
from perfgate.judging.gate.compare.noise import base_differs, noise_floor
from perfgate.judging.gate.compare.operators import judge_subroutines
from perfgate.judging.gate.compare.parts import with_parts
from perfgate.judging.gate.compare.recordings import (
    compare_kernel_times,
    recorded_times,
)
from perfgate.judging.gate.compare.settings import compare_settings
from perfgate.judging.gate.evidence.numbers import NumberTable
from perfgate.judging.gate.evidence.work_table import WorkTable


class SessionComparisons(NamedTuple):
    """The comparisons, the noise floors, and the places with invalid times."""

    comparisons: list[Comparison]
    floors: list[NoiseFloor]
    invalid: list[Invalid]

    @property
    def spoiled(self) -> set[ShapePlace]:
        return {entry.place for entry in self.invalid}


def compare_session(
    numbers: NumberTable,
    work: WorkTable,
    sides: ComparedSides,
    policy: Policy,
    accepted: Iterable[Acceptance],
) -> SessionComparisons:
    """The comparisons as they count: without numbers of different testbeds, and with accepted regressions."""
    shares = AlphaShares.of_subjects(policy, subjects=numbers.subjects)
    session = compare_sides(numbers, work, policy, shares)
    comparisons = session.comparisons
    if not sides.are_comparable:
        comparisons = _of_head_alone(comparisons)
    comparisons = [*comparisons, *not_compared(work.places, sides.harness_changes)]
    comparisons = with_accepted(comparisons, sides.head, accepted)
    if not sides.testbed_differences:
        comparisons += recorded_times(work)
    return session._replace(comparisons=comparisons)


def compare_sides(
    numbers: NumberTable, work: WorkTable, policy: Policy, shares: AlphaShares
) -> SessionComparisons:
    """Compare everything that one session measured on both sides; invalid times are set aside."""
    floors = list(map(noise_floor, numbers.twins))
    invalid = [*numbers.invalid_times, *base_differs(floors), *numbers.invalid_turns]
    reasons = {entry.place: entry.message for entry in invalid}
    judged = list(
        with_parts(
            judge_numbers(numbers.measured, shares, floors, numbers.waited), work
        )
    )
    comparisons: list[Comparison] = [
        *compare_rules(numbers.of_head, policy.kernels),
        *compare_counters(work.counted, policy),
        *compare_settings(work.counted, work.code.changes),
        *compare_kernel_times(work.recorded_kernels, policy),
        *_without_invalid(judged, reasons),
        *judge_subroutines(work, policy, shares.of(OPERATORS), spoiled=reasons),
        *_of_jobs(work, policy, judged),
    ]
    return SessionComparisons(with_costless(comparisons, policy), floors, invalid)


def _of_jobs(
    work: WorkTable, policy: Policy, judged: Iterable[Comparison]
) -> list[Comparison]:
    """The checks and counts of jobs, job by job."""
    comparisons: list[Comparison] = []
    for name, job in work.jobs.items():
        comparisons += compare_job(job, policy, of_stacks=work.of_stacks)
        comparisons += [
            row
            for row in judged
            if row.workload == name and not isinstance(row, Paired)
        ]
    return comparisons


def _of_head_alone(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons of different testbeds: only the head's own rules hold."""
    reason = Message("gate.testbeds-differ")
    remaining: list[Comparison] = []
    for comparison in comparisons:
        if isinstance(comparison, (Bound, Checked)):
            remaining.append(comparison)
        else:
            remaining.append(_set_aside(comparison, reason))
    return remaining


def _set_aside(comparison: Comparison, reason: Message) -> Comparison:
    """The comparison without its evidence."""
    return replace(comparison, outcome="not_comparable", gating=False, reason=reason)


def _without_invalid(
    judged: Iterable[Comparison], reasons: Mapping[ShapePlace, Message]
) -> Iterator[Comparison]:
    """Yield the numbers, set aside if there is a reason why the times of their place are invalid."""
    for comparison in judged:
        if isinstance(comparison, Paired):
            reason = reasons.get(comparison.place)
            yield comparison if reason is None else _set_aside(comparison, reason)

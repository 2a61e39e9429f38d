"""All comparisons of one session, in the order in which their evidence counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import ComparedSides, Invalid, NoiseFloor, Policy
from perfgate.document.history import Acceptance
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.counters import compare_counters, compare_settings
from perfgate.judging.gate.compare.effects import base_differs, noise_floor
from perfgate.judging.gate.compare.gating import (
    of_comparable_sides,
    with_accepted,
    with_costless,
    without_invalid,
)
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.jobs import compare_job
from perfgate.judging.gate.compare.judge import OPERATORS, AlphaShares, judge_numbers
from perfgate.judging.gate.compare.operators import judge_subroutines
from perfgate.judging.gate.compare.parts import with_parts
from perfgate.judging.gate.compare.recordings import (
    compare_kernel_times,
    recorded_times,
)
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
    """The comparisons as they count: without numbers of different testbeds, and with
    accepted regressions.
    """
    shares = AlphaShares.of_subjects(policy, subjects=numbers.subjects)
    session = compare_sides(numbers, work, policy, shares)
    comparisons = of_comparable_sides(session.comparisons, sides, work.places)
    comparisons = with_accepted(comparisons, sides.head, accepted)
    if not sides.testbed_differences:
        comparisons += recorded_times(work)
    return session._replace(comparisons=comparisons)


def compare_sides(
    numbers: NumberTable, work: WorkTable, policy: Policy, shares: AlphaShares
) -> SessionComparisons:
    """Compare everything that one session measured on both sides; invalid times are set
    aside.
    """
    floors = list(map(noise_floor, numbers.twins))
    invalid = [*numbers.invalid_times, *base_differs(floors), *numbers.invalid_turns]
    reasons = {entry.place: entry.message for entry in invalid}
    judged = judge_numbers(numbers.measured, shares, floors, numbers.waited)
    rows = list(with_parts(judged, work))
    paired = [row for row in rows if isinstance(row, Paired)]
    comparisons: list[Comparison] = [
        *compare_rules(numbers.of_head, policy.kernels),
        *compare_counters(work.counted, policy),
        *compare_settings(work.counted, work.code.changes),
        *compare_kernel_times(work.recorded_kernels, policy),
        *without_invalid(paired, reasons),
        *judge_subroutines(work, policy, shares.of(OPERATORS), spoiled=reasons),
    ]
    for name, job in work.jobs.items():
        comparisons += compare_job(job, policy, of_stacks=work.of_stacks)
        for row in rows:
            if row.workload == name and not isinstance(row, Paired):
                comparisons.append(row)
    return SessionComparisons(with_costless(comparisons, policy), floors, invalid)

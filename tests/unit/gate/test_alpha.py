"""The gate's alpha: everything that could give a false alarm has a part of it, and the parts add up to it."""

from __future__ import annotations

import pytest

from perfgate.catalogue.lookup import FAMILIES
from perfgate.document.decision import Policy
from perfgate.judging.gate.compare.judge import OPERATORS, AlphaShares
from perfgate.judging.gate.evidence.numbers import REPEATED

NAMING = Policy(alpha=0.02, tolerances={"op.aten::mm": 0.05, "throughput.median": 0.1})


def parts_of_a_workload(shares: AlphaShares) -> float:
    return sum(shares.of(name) for name, family in FAMILIES.items() if family.gating)


def test_shares__times_operators_and_numbers_of_two_workloads_and_a_job__are_alpha_together() -> None:
    shares = AlphaShares.of_subjects(NAMING, subjects=3)
    of_a_workload = parts_of_a_workload(shares) + shares.of(OPERATORS) + shares.of(REPEATED)
    assert 2 * of_a_workload + shares.subject == pytest.approx(0.02)


def test_shares__no_tolerance_names_anything__the_times_have_all_of_it() -> None:
    shares = AlphaShares.of_subjects(Policy(), subjects=5)
    assert 5 * parts_of_a_workload(shares) == pytest.approx(0.01)
    assert AlphaShares.of_subjects(Policy(), subjects=0).subject == pytest.approx(0.01)

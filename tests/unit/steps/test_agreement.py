"""How far two outputs are from each other."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from perfgate.measuring.checklist.experiment import agreement  # noqa: E402


def test_agreement__equal__everything_agrees() -> None:
    found = agreement(torch.tensor([1.0, -2.0]), torch.tensor([1.0, -2.0]))
    assert (found.absolute, found.relative, found.not_finite) == (0.0, 0.0, 0)
    assert found.within(0.0)


def test_agreement__difference__relative_to_the_largest_value_of_the_reference() -> None:
    found = agreement((torch.tensor([10.0, 0.0]),), (torch.tensor([10.0, 0.5]),))
    assert (found.absolute, found.relative) == (0.5, 0.05)
    assert found.within(0.05)
    assert not found.within(0.04)


def test_agreement__new_infinity__never_within() -> None:
    found = agreement(torch.tensor([1.0, math.inf]), torch.tensor([math.nan, math.inf]))
    assert found.not_finite == 1
    assert not found.within(math.inf)


@pytest.mark.parametrize("other", [None, torch.ones(3), (torch.ones(2), torch.ones(2))])
def test_agreement__another_structure__is_not_comparable(other: object) -> None:
    found = agreement(torch.ones(2), other)
    assert not found.comparable
    assert not found.within(math.inf)


def test_agreement__all_zero_reference__any_difference_is_infinite() -> None:
    assert agreement(torch.zeros(2), torch.ones(2)).relative == math.inf

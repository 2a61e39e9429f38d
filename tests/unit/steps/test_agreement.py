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


def test_agreement__token_ids_and_masks__share_of_others() -> None:
    found = agreement(torch.tensor([500, 50000, 7, 8]), torch.tensor([501, 50000, 7, 8]))
    assert (found.absolute, found.relative) == (1.0, 0.25)
    assert agreement(torch.tensor([0, 0]), torch.tensor([0, 1])).relative == 0.5
    assert agreement(torch.tensor([True, False]), torch.tensor([True, True])).relative == 0.5
    assert agreement(torch.tensor([7, 8]), torch.tensor([7, 8])).within(0.0)


def test_agreement__pixels__relative_to_the_largest() -> None:
    pixels = torch.tensor([200, 10], dtype=torch.uint8)
    assert agreement(pixels, pixels + 1).relative == 1 / 200


def test_agreement__complex__both_parts_are_compared() -> None:
    found = agreement(torch.tensor([1 + 2j, 4j]), torch.tensor([1 + 3j, 4j]))
    assert (found.absolute, found.relative) == (1.0, 0.25)
    assert agreement(torch.tensor([1 + 2j]), torch.tensor([complex(1, math.nan)])).not_finite == 1


def test_agreement__sparse__values_of_the_same_elements_are_compared() -> None:
    rows = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    found = agreement(rows.to_sparse(), (rows * 1.5).to_sparse())
    assert (found.absolute, found.relative) == (2.0, 0.5)
    assert not agreement(rows.to_sparse(), rows.flip(0).to_sparse()).comparable
    assert not agreement(rows.to_sparse(), rows).comparable


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_agreement__compressed_and_nested__values_are_compared() -> None:
    rows = torch.tensor([[0.0, 2.0], [4.0, 0.0]])
    assert agreement(rows.to_sparse_csr(), (rows * 1.5).to_sparse_csr()).relative == 0.5
    for layout in (torch.strided, torch.jagged):
        members = [torch.full((2, 3), 1.0), torch.full((1, 3), 4.0)]
        before = torch.nested.nested_tensor(members, layout=layout)
        after = torch.nested.nested_tensor([members[0], members[1] + 1], layout=layout)
        assert agreement(before, after).relative == 0.25
        turned = torch.nested.nested_tensor(members[::-1], layout=layout)
        assert not agreement(before, turned).comparable

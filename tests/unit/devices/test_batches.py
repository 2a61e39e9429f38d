from collections import OrderedDict, namedtuple
from dataclasses import dataclass

import pytest
import torch

from perfgate.measuring.devices.batches import bytes_of, each_tensor, tensors

Pair = namedtuple("Pair", ["left", "right"])


@dataclass(frozen=True)
class Output:
    scores: torch.Tensor
    hidden: tuple
    name: str


def _batch():
    one, two = torch.ones(2), torch.ones(3, dtype=torch.float64)
    output = Output(scores=one, hidden=(two, None), name="x")
    return {"pair": Pair(one, [two]), "output": output, "kept": OrderedDict(a=one)}


def test_tensors__nested__all_in_order() -> None:
    assert [tensor.numel() for tensor in tensors(_batch())] == [2, 3, 2, 3, 2]
    assert bytes_of(_batch()) == 3 * 8 + 2 * 24
    assert bytes_of({"mask": None, "length": 3}) == 0


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_bytes_of__sparse__values_and_indices_that_it_holds() -> None:
    rows = torch.zeros(1000, 1000)
    rows[3, 4] = rows[5, 6] = 1.0
    assert bytes_of(rows.to_sparse()) == 2 * 4 + 2 * 2 * 8
    assert bytes_of(rows.to_sparse_csr()) == 2 * 4 + (1001 + 2) * 8


def test_each_tensor__nested__changed_and_everything_else_as_it_was() -> None:
    doubled = each_tensor(_batch(), lambda tensor: tensor * 2)

    assert [float(tensor.sum()) for tensor in tensors(doubled)] == [4, 6, 4, 6, 4]
    assert type(doubled["pair"]) is Pair
    assert type(doubled["kept"]) is OrderedDict
    assert (doubled["output"].name, doubled["output"].hidden[1]) == ("x", None)

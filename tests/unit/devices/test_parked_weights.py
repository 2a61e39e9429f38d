"""The weights of a model that leave the device while the other side has it."""

from __future__ import annotations

import gc

import pytest
import torch

from perfgate.errors import MeasuringError
from perfgate.measuring.devices.backends._shared import weights_of


class Tied(torch.nn.Module):
    """Two layers with one weight, and a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(4, 4, bias=False)
        self.second = torch.nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(4))


def test_weights_of__tied_layers__each_tensor_once() -> None:
    model = Tied()

    weights = weights_of(model)

    assert [id(tensor) for tensor in weights] == [id(model.first.weight), id(model.scale)]


def test_weights_of__views_of_one_storage__refused() -> None:
    model = Tied()
    model.register_buffer("first_two", model.scale[:2])

    with pytest.raises(MeasuringError, match="share memory"):
        weights_of(model)


def test_weights_of__captured_graph__refused() -> None:
    class CUDAGraph:
        """As torch names it."""

    graph = CUDAGraph()

    with pytest.raises(MeasuringError, match="captured graph"):
        weights_of(Tied())

    # A worker freezes its objects when it is warm.
    gc.freeze()
    try:
        with pytest.raises(MeasuringError, match="captured graph"):
            weights_of(Tied())
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
    del graph

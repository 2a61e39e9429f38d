"""What is counted is what runs: the same operators as torch's own profiler sees without a dispatch mode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

from perfgate.measuring.counting.dispatch import CountingMode
from perfgate.measuring.counting.tally import CallTally

CONTIGUOUS = torch.randn(8, 16, 64)
TURNED = torch.randn(16, 8, 64).transpose(0, 1)
IMAGE = torch.randn(2, 3, 16, 16)


def attention(x):
    return nn.functional.scaled_dot_product_attention(x, x, x)


MODULES = {
    "linear": (nn.Linear(64, 32), CONTIGUOUS),
    "linear, turned": (nn.Linear(64, 32), TURNED),
    "linear without bias, turned": (nn.Linear(64, 32, bias=False), TURNED),
    "two linears, turned": (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), TURNED),
    "encoder layer": (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), CONTIGUOUS),
    "encoder layer, turned": (nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), TURNED),
    "gru, turned": (nn.GRU(64, 64, batch_first=True), TURNED),
    "lstm": (nn.LSTM(64, 64, batch_first=True), CONTIGUOUS),
    "layer norm, turned": (nn.LayerNorm(64), TURNED),
    "convolution": (nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2)), IMAGE),
    "convolution, channels last": (nn.Conv2d(3, 8, 3), IMAGE.to(memory_format=torch.channels_last)),
    "embedding": (nn.EmbeddingBag(50, 64), torch.arange(12).reshape(3, 4).t()),
    "matmul, turned": (lambda x: x @ WEIGHT, TURNED),
    "einsum, turned": (lambda x: torch.einsum("bsd,de->bse", x, WEIGHT), TURNED),
    "part of a weight, turned": (lambda x: x @ WIDE.chunk(3, dim=1)[1], TURNED),
    "narrowed weight, turned": (lambda x: x @ WIDE.narrow(1, 0, 64), TURNED),
    "attention": (attention, torch.randn(2, 4, 16, 16)),
}
WEIGHT = nn.Parameter(torch.randn(64, 64))
WIDE = nn.Parameter(torch.randn(64, 192))
# Next to a mode that might hold wrappers, ATen takes the form of an operator that does not write in place
# (areAnyTensorSubclassLike in linear, gru_cell and others); it is one operator either way.
IN_PLACE = {"aten::add": "aten::add_"}
MATRIX_PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::convolution")


@pytest.fixture(autouse=True)
def slow_path() -> Iterator[None]:
    """Take attention layers apart: their fused operator calls others inside, which no dispatch mode sees."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def counted(call):
    tally = CallTally()
    CountingMode(tally, root=Path("/nonexistent"), counts_host_memory=True).count(call)
    # With gradients on, what the backward pass keeps is detached for the mode only; a view is no work.
    return Counter({name: count for name, count in tally.ops.items() if name not in tally.views})


def profiled(call):
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        call()
    return Counter(event.name for event in profiler.events())


@pytest.mark.parametrize("gradients", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("name", sorted(MODULES))
def test_counting__every_operator_ran_as_often_as_the_profiler_says(
    name: str, gradients: Callable[[], AbstractContextManager[None]]
) -> None:
    module, inputs = MODULES[name]
    if isinstance(module, nn.Module):
        module.eval()

    def call():
        with gradients():
            return module(inputs)

    call()
    ours, truth = counted(call), profiled(call)
    for op, other in IN_PLACE.items():
        truth[op] += truth.pop(other, 0)
        ours[op] += ours.pop(other, 0)

    assert {op: count for op, count in ours.items() if truth[op] < count} == {}
    # An operator may call another inside, which only the profiler sees; these call none of their kind.
    for op in (*MATRIX_PRODUCTS, "aten::_softmax", "aten::native_layer_norm"):
        assert ours[op] == truth[op], op
    if name.startswith(("linear", "two linears", "matmul", "einsum", "part", "narrowed")):
        assert ours["aten::clone"] == truth["aten::clone"]

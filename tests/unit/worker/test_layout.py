"""Moving a workload: everything lies elsewhere, and nothing else is different."""

from __future__ import annotations

import platform
import resource
import sys
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

from perfgate.measuring.devices.backends.cpu import CpuDevice
from perfgate.measuring.workload import layout
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.layout import MODULE, Layout, scatter_memory
from perfgate.measuring.workload.workload import Workload


class Tied(nn.Module):
    """Its output layer shares the embedding's storage, transposed; its buffer is a view of half a storage."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Embedding(16, 8)
        self.leave = nn.Parameter(self.enter.weight.data.t())
        self.register_buffer("scale", torch.arange(16.0)[8:])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return (self.enter(tokens) * self.scale) @ self.leave


def bound(build: Callable[[], Any], inputs: Callable[[int, int], Any]) -> BoundWorkload:
    workload = Workload(build=lambda _: build(), inputs=inputs, call=lambda model, batch: batch, batch=4)
    made = BoundWorkload("small", workload, CpuDevice(), seed=0)
    made.pool("default")
    return made


def tokens(batch: int, seed: int) -> dict[str, torch.Tensor]:
    return {"tokens": torch.randint(0, 16, (batch,), generator=torch.Generator().manual_seed(seed))}


def addresses(workload: BoundWorkload) -> list[int]:
    inputs = [one["tokens"] for pool in workload.pools() for one in pool]
    return [one.data_ptr() for one in [*workload.model.parameters(), *workload.model.buffers(), *inputs]]


def test_move__tied_weights_views_and_inputs__elsewhere_with_the_same_values_and_still_tied() -> None:
    workload = bound(Tied, tokens)
    batch = workload.pool("default")[0]
    expected = workload.model(**batch)
    moved = Layout(workload)

    for seed in range(3):
        before = addresses(workload)
        moved.move(seed)
        assert moved.movable
        assert all(here != there for here, there in zip(before, addresses(workload)))
        assert torch.equal(workload.model(**batch), expected)

    with torch.no_grad():
        workload.model.enter.weight[0] = 7.0
    assert workload.model.leave[:, 0].tolist() == [7.0] * 8


def test_move__tensors_in_a_plain_object_and_its_lists__are_found() -> None:
    class Plain:
        def __init__(self) -> None:
            self.layers = [{"weight": torch.ones(4)}, nn.Linear(2, 2)]

    workload = bound(Plain, tokens)
    before = workload.model.layers[0]["weight"].data_ptr()
    moved = Layout(workload)
    moved.move(1)
    assert moved.movable
    assert workload.model.layers[0]["weight"].data_ptr() != before


class Caching(nn.Module):
    """Keeps tensors that are neither parameters nor buffers, one of which torch does not let anybody move."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.cache = torch.zeros(4, 8)
        self.rows = [self.cache[0], torch.arange(8)]
        self.last = self.weight * 2
        with torch.inference_mode():
            self.seen = torch.ones(4)

    def kept(self) -> list[torch.Tensor]:
        return [self.cache, *self.rows]


def test_move__what_a_module_keeps_beside_its_parameters__moves_as_far_as_it_can() -> None:
    workload = bound(lambda: nn.Sequential(Caching()), tokens)
    caching = workload.model[0]
    stay, before = [caching.last.data_ptr(), caching.seen.data_ptr()], [one.data_ptr() for one in caching.kept()]
    moved = Layout(workload)

    moved.move(3)

    assert moved.movable
    assert all(one.data_ptr() != address for one, address in zip(caching.kept(), before))
    assert caching.rows[0].data_ptr() == caching.cache.data_ptr()
    assert stay == [caching.last.data_ptr(), caching.seen.data_ptr()]
    assert torch.equal(caching.rows[1], torch.arange(8))


class Conjugated(nn.Module):
    """Keeps tensors whose memory holds the conjugate, or the negative, of their numbers."""

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.tensor([1 + 2j, 3 - 4j])
        self.turned = numbers.conj()
        self.register_buffer("imaginary", numbers.conj().imag)


def test_move__conjugated_and_negated_views__keep_their_values() -> None:
    workload = bound(Conjugated, lambda batch, seed: torch.tensor([[1j * seed, 5.0]]).mH)
    (inputs, *_), model = workload.pool("default"), workload.model
    before = [inputs.clone(), model.turned.clone(), model.imaginary.clone()]
    addresses = [inputs.data_ptr(), model.turned.data_ptr()]
    moved = Layout(workload)

    moved.move(1)

    assert moved.movable
    assert all(map(torch.equal, [inputs, model.turned, model.imaginary], before))
    assert addresses != [inputs.data_ptr(), model.turned.data_ptr()]


def test_move__weights_of_a_class_around_other_tensors__not_movable() -> None:
    def build() -> nn.Module:
        linear = nn.Linear(2, 2).requires_grad_(False)
        linear.weight = nn.Parameter(TwoTensor(torch.ones(2, 2), torch.zeros(2, 2)), requires_grad=False)
        return linear

    workload = bound(build, tokens)
    moved = Layout(workload)
    moved.move(1)
    assert not moved.movable
    assert workload.model.weight.a.tolist() == [[1.0, 1.0]] * 2


@pytest.mark.parametrize("seeds", [(5, 5), (5, 6)], ids=["same", "other"])
def test_move__pads__drawn_from_the_seed_alone(seeds: tuple[int, int]) -> None:
    sizes = []
    for seed in seeds:
        moved = Layout(bound(Tied, tokens))
        moved.move(seed)
        sizes.append([sys.getsizeof(one) for one in moved._held])
    assert (sizes[0] == sizes[1]) is (seeds[0] == seeds[1])


def _without_gradients() -> torch.Tensor:
    with torch.inference_mode():
        return torch.ones(4)


@pytest.mark.parametrize(
    "build",
    [lambda: lambda batch: batch, lambda: [_without_gradients()], lambda: [torch.ones(4).to_sparse()]],
    ids=["no tensor", "inference tensor", "sparse"],
)
def test_move__tensors_that_cannot_be_moved__says_so_and_moves_the_heap_alone(build: Callable[[], Any]) -> None:
    moved = Layout(bound(build, tokens))
    moved.move(1)
    assert not moved.movable
    assert moved._held


def test_move__module_without_a_tensor__its_inputs_move() -> None:
    workload = bound(nn.ReLU, tokens)
    moved = Layout(workload)
    before = addresses(workload)
    moved.move(1)
    assert moved.movable
    assert addresses(workload) != before


@pytest.mark.skipif("glibc" not in platform.libc_ver(), reason="only glibc gives memory back when it is asked to")
def test_move__memory_that_is_free__goes_back_to_the_kernel() -> None:
    moved = Layout(bound(Tied, tokens))
    # Small enough for the heap, and something behind it that is alive.
    pieces = [bytearray(b"x" * 60_000) for _ in range(1000)]
    alive = pieces.pop()
    full = resident_bytes()
    pieces.clear()
    moved.move(1)
    assert resident_bytes() < full - 40 * 2**20
    assert alive


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_move__model_larger_than_its_calls_are_worth__stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "MOST_BYTES", 100)
    assert not Layout(bound(Tied, tokens)).movable


def test_move__training_step__optimizer_goes_on_with_the_moved_weights() -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    moved = Layout(bound(lambda: model, lambda batch, seed: torch.ones(batch, 4)))
    before = model.weight.detach().clone()
    for seed in range(2):
        moved.move(seed)
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    assert torch.allclose(model.weight.detach(), before - 2.0)


@pytest.fixture
def scattered() -> Iterator[Callable[[int], list[Any]]]:
    """Scatters memory by a seed; returns what lies between the holes."""

    def scatter(seed: int) -> list[Any]:
        scatter_memory(seed)
        return sys.modules[MODULE].objects

    yield scatter
    sys.modules.pop(MODULE, None)


def test_scatter_memory__same_seed__same_functions_and_sizes_another_seed_others(
    scattered: Callable[[int], list[Any]],
) -> None:
    found = []
    for seed in (7, 7, 8):
        sizes = [sys.getsizeof(part) for part in scattered(seed)]
        codes = [one.__code__.co_code for name, one in vars(sys.modules[MODULE]).items() if name.startswith("unused_")]
        found.append((codes, sizes))
    assert found[0] == found[1]
    assert found[0] != found[2]


@pytest.mark.parametrize("size", [64, 300, 2000])
def test_scatter_memory__objects_made_next__out_of_order_in_memory(
    scattered: Callable[[int], list[Any]], size: int
) -> None:
    """Objects of a size that are made one after the other lie one after the other, unless they fill holes."""
    scattered(3)
    addresses = [id(part) for part in [bytes(size) for _ in range(50)]]
    steps = [later - earlier for earlier, later in pairwise(addresses)]
    assert sum(step < 0 for step in steps) > 10

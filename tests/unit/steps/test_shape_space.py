"""Proposed shapes: which they are, that a slow one among them is named, and what the workload refuses."""

from __future__ import annotations

from pathlib import Path

import torch

from perfgate.measuring.checklist.shape_space import measure_shape_space, propose
from perfgate.measuring.checklist.step import StepContext, StepOutcome
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import StepSettings
from tests.wording import finding_text


def test_propose__two_lengths__edges_and_extremes_of_the_whole_number_alone() -> None:
    shapes = {"short": {"length": 16, "causal": True}, "long": {"length": 64, "causal": True}}
    proposals = list(propose(shapes))
    assert [(name, kind) for name, kind, _ in proposals] == [
        ("length=1", "extreme"),
        ("length=15", "boundary"),
        ("length=65", "boundary"),
        ("length=129", "boundary"),
        ("length=128", "extreme"),
    ]
    assert {arguments["causal"] for *_, arguments in proposals} == {True}


def test_propose__sizes_in_a_tuple__one_at_a_time() -> None:
    proposals = {name: arguments["size"] for name, _, arguments in propose({"default": {"size": (8, 4)}})}
    assert len(proposals) == 11
    assert proposals["1 everywhere"] == (1, 1)
    assert proposals["size[0]=9"] == (9, 4)
    assert proposals["size[1]=1"] == (8, 1)
    assert list(propose({"default": {"names": ["a"]}, "more": {"names": []}})) == []


def test_propose__several_sizes__last_the_shape_with_all_of_them_one_unless_configured() -> None:
    image = {"size": [1, 3, 8, 8], "classes": 10, "flip": True, "name": "a"}
    *_, (name, kind, arguments) = propose({"image": image})
    assert (name, kind) == ("1 everywhere", "extreme")
    assert arguments == {"size": [1, 1, 1, 1], "classes": 1, "flip": True, "name": "a"}

    ones = {**image, "size": [1, 1, 1, 1], "classes": 1}
    assert "1 everywhere" not in [name for name, *_ in propose({"image": image, "ones": ones})]


def test_propose__no_whole_numbers__nothing() -> None:
    assert list(propose({"default": {}, "named": {"name": "a"}})) == []


def context_of(workload: Workload) -> StepContext:
    device = open_device("cpu")
    return StepContext(
        workload=BoundWorkload("shaped", workload, device, seed=1),
        limits={},
        seed=1,
        artifacts=Path(),
        progress=lambda text: None,
        settings=StepSettings(shape_space=True),
    )


def test_measure_shape_space__compiled_for_one_length__every_other_compiles_again(one_thread: None) -> None:
    workload = Workload(
        build=lambda _: torch.compile(torch.nn.ReLU(), backend="eager", dynamic=False),
        inputs=lambda batch, seed, length: torch.ones(batch, length),
        shapes={"typical": {"length": 16}},
    )
    outcome = StepOutcome(labels={"shape": "default"})
    measure_shape_space(context_of(workload), outcome)
    recompiles = {v.labels["proposed"]: v.value for v in outcome.values if v.metric == "shapes.recompiles"}
    assert set(recompiles) == {"length=1", "length=15", "length=17", "length=33", "length=32"}
    assert set(recompiles.values()) == {1.0}


def test_measure_shape_space__slow_path_of_odd_lengths_and_a_refusal__named_worst_first(one_thread: None) -> None:
    def model(x: torch.Tensor) -> torch.Tensor:
        if x.shape[1] == 1:
            raise ValueError("a sequence has two tokens at least")
        if x.shape[1] % 2:  # row by row and sorted, as a kernel falls back
            return torch.stack([row.sort().values for row in x])
        return x.relu()

    workload = Workload(
        build=lambda _: model,
        inputs=lambda batch, seed, length: torch.ones(batch, length),
        batch=64,
        shapes={"typical": {"length": 512}},
    )
    outcome = StepOutcome(labels={"shape": "default"})
    measure_shape_space(context_of(workload), outcome)

    costs = {v.labels["proposed"]: v.value for v in outcome.values if v.metric == "shapes.cost"}
    assert costs["length=1"] is None
    assert {finding.evidence["proposed"] for finding in outcome.findings} == {"length=511", "length=513", "length=1025"}
    measured = [cost for cost in costs.values() if cost is not None]
    assert measured == sorted(measured, reverse=True)
    assert finding_text(outcome.findings[0]).startswith(
        "compared with the configured shapes, the boundary shape length="
    )

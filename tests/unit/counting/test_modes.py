from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch

from perfgate.document.comparison import Comparison
from tests.unit.counting.planted import BODY, FIRST_LINE, count, judged

RECORDED, TRAINING = "counters.autograd_ops", "counters.training_modules"


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once another test has compiled anything, modes of modules are not counted."""
    monkeypatch.delitem(sys.modules, "torch._dynamo.utils", raising=False)


def _inside(region: str, body: Sequence[str]) -> list[str]:
    return [f"with {region}:", *(f"    {line}" for line in body)]


def _compared(tmp_path: Path, base: Sequence[str], head: Sequence[str], name: str) -> Comparison:
    found = judged(count(tmp_path / "base", base), count(tmp_path / "head", head))
    return next(comparison for comparison in found if comparison.metric == name)


TRAINED = "self.weight.requires_grad_()"


@pytest.mark.parametrize("region", ["torch.no_grad()", "torch.inference_mode()", "torch.set_grad_enabled(False)"])
def test_autograd__region_without_gradients_lost__regressed_where_the_graph_begins(tmp_path: Path, region: str) -> None:
    found = _compared(tmp_path, [TRAINED, *_inside(region, BODY)], [TRAINED, "pass", *BODY], RECORDED)
    assert (found.base, found.head, found.outcome, found.gating) == (0, 6, "regressed", True)
    assert [(part.name, part.aspect, part.line) for part in found.parts] == [
        ("aten::mm", "recorded", f"model.py:{FIRST_LINE + 2}")
    ]


def test_autograd__detach_lost__attached_and_no_region_is_blamed(tmp_path: Path) -> None:
    step = [TRAINED, *BODY, "total = x.sum()"]
    found = _compared(
        tmp_path, [*step, "total = total + h.detach().sum()"], [*step, "total = total + h.sum()"], RECORDED
    )
    assert (found.base, found.head, found.outcome) == (6, 8, "regressed")
    assert [(part.aspect, part.line) for part in found.parts] == [("attached", f"model.py:{FIRST_LINE + 8}")]


def test_autograd__frozen_weight_thawed__regressed(tmp_path: Path) -> None:
    found = _compared(tmp_path, BODY, [*BODY, TRAINED], RECORDED)
    assert (found.base, found.head, found.outcome) == (0, 6, "regressed")


@pytest.mark.parametrize(
    ("base", "head"),
    [
        # New operators are recorded like those before them.
        ([TRAINED, *BODY], [TRAINED, *BODY, "h = h * 2"]),
        # What does not depend on a weight, or is cut off from it, is not recorded.
        ([TRAINED, "y = x + 1", *BODY], [TRAINED, "y = (x + 1) * 2", *BODY, "h = h.detach() * 2"]),
        ([TRAINED, *_inside("torch.no_grad()", BODY)], [TRAINED, *_inside("torch.inference_mode()", BODY)]),
    ],
)
def test_autograd__new_operators_or_another_region__unchanged(
    tmp_path: Path, base: Sequence[str], head: Sequence[str]
) -> None:
    found = _compared(tmp_path, base, head, RECORDED)
    assert (found.outcome, found.parts) == ("unchanged", [])


def test_training_mode__eval_lost__regressed_with_the_class_and_the_line_that_calls(tmp_path: Path) -> None:
    make = "drop = torch.nn.Sequential(torch.nn.Dropout(0.5))"
    found = _compared(tmp_path, [f"{make}.eval()", "h = drop(x)", *BODY], [make, "h = drop(x)", *BODY], TRAINING)
    assert (found.base, found.head, found.outcome, found.gating) == (0, 2, "regressed", True)
    assert {(part.name, part.aspect, part.line) for part in found.parts} == {
        ("Dropout", "training", f"model.py:{FIRST_LINE + 1}"),
        ("Sequential", "training", f"model.py:{FIRST_LINE + 1}"),
    }

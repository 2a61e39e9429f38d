"""The examples of the Python API do what they show."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import perfgate
from tests.docs.api import NAMES, program, reference


def run(name: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(program(reference(name)), namespace)
    return namespace


def test_names__are_all_that_a_user_imports() -> None:
    assert {*NAMES, "__version__"} == set(perfgate.__all__)


def test_example_of_workload__builds_calls_and_checks() -> None:
    encoder = run("Workload")["encoder"]
    for shape in encoder.shapes.values():
        inputs = encoder.inputs(encoder.batch, 1, **shape)
        output = encoder.build(torch.device("cpu"))(inputs)
        assert output.shape == (8, shape["length"], 64)
        encoder.check(output, inputs)


def test_example_of_operator__agrees_with_its_reference() -> None:
    norm = run("operator")["norm"]
    for case in norm.shapes.values():
        inputs = norm.inputs(1, 1, **case)
        norm.check(norm.build(torch.device("cpu"))(*inputs), inputs)


@pytest.mark.parametrize("name", ["SLA", "Traffic"])
def test_example_of_a_record__makes_it(name: str) -> None:
    made = [value for value in run(name).values() if isinstance(value, getattr(perfgate, name))]
    assert made

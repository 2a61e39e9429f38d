"""Operator suites: what a case is, how outputs are compared, and what step 4 says of a candidate that is slower."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from perfgate.document.message import WorkloadError
from perfgate.measuring.checklist.operator_cases import measure_cases
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.correctness import check_outputs
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.operators import operator, random_inputs
from perfgate.measuring.workload.workload import Workload
from tests.wording import finding_text

CASES = {
    "rows": {"shapes": [(256, 256)]},
    "columns": {"shapes": [(256, 256)], "strides": [(1, 256)]},
}


def _bound(workload: Workload) -> BoundWorkload:
    return BoundWorkload("suite", workload, open_device("cpu"), seed=1)


def _context(workload: Workload) -> StepContext:
    return StepContext(
        workload=_bound(workload),
        limits={},
        seed=1,
        artifacts=Path(),
        progress=lambda text: None,
    )


def _slow_on_columns(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) if x.is_contiguous() else torch.stack([torch.relu(row) for row in x])


def test_measure_cases__candidate_slower_on_one_stride__that_case_is_named(one_thread: None) -> None:
    context = _context(operator(_slow_on_columns, reference=torch.relu, cases=CASES))
    measure_cases(context, outcome := context.outcome())

    speedups = {v.labels["shape"]: v.interval for v in outcome.values if v.metric == "operator.speedup"}
    assert set(speedups) == {"rows", "columns"}
    assert speedups["columns"][1] < 0.8
    assert speedups["rows"][1] > 0.9
    assert next(finding_text(f) for f in outcome.findings if f.evidence["shape"] == "columns").startswith(
        "case columns is slower than its reference"
    )
    rooflines = [v for v in outcome.values if v.metric == "operator.roofline"]
    assert len(rooflines) == 2
    assert all(v.value is None or v.value > 0 for v in rooflines)


def test_measure_cases__no_reference__measures_nothing() -> None:
    context = _context(operator(torch.relu, cases=CASES))
    measure_cases(context, outcome := context.outcome())
    assert outcome.values == []


@pytest.mark.parametrize(
    ("dtype", "error", "status"),
    [
        ("float32", 1e-6, "passed"),
        ("float32", 1e-4, "failed"),
        ("bfloat16", 1e-4, "passed"),
        ("float64", 1e-6, "failed"),
    ],
)
def test_operator__error_of_the_candidate__judged_by_its_type(dtype: str, error: float, status: str) -> None:
    cases = {"one": {"shapes": [(64, 64)], "dtype": dtype}}
    workload = operator(lambda x: x * (1 + error), reference=lambda x: x.clone(), cases=cases)
    (result,) = check_outputs(_bound(workload))
    assert result.status == status


def test_operator__other_type_than_the_reference__refused() -> None:
    workload = operator(lambda x: x.double(), reference=lambda x: x.clone(), cases={"one": {"shapes": [(4,)]}})
    (result,) = check_outputs(_bound(workload))
    assert (result.status, "torch.float64" in str(result.message)) == ("failed", True)


def test_operator__new_nan__refused() -> None:
    workload = operator(lambda x: x * float("nan"), reference=lambda x: x.clone(), cases={"one": {"shapes": [(4,)]}})
    (result,) = check_outputs(_bound(workload))
    assert result.status == "failed"


def test_random_inputs__strides_and_types__as_the_case_says() -> None:
    first, second = random_inputs(1, shapes=[(3, 4), (5,)], strides=[(1, 3), None], dtype="float16")
    assert (tuple(first.shape), first.stride(), second.stride(), first.dtype) == ((3, 4), (1, 3), (1,), torch.float16)
    (whole,) = random_inputs(1, shapes=[(100,)], dtype="int32")
    assert 0 <= int(whole.min()) <= int(whole.max()) < 100


@pytest.mark.parametrize(
    ("case", "words"),
    [
        ({"shapes": [(3,)], "dtype": "float31"}, "dtype 'float31', which torch does not know"),
        ({"shapes": [(3,)], "strides": [(1,), (1,)]}, "1 shapes and 2 strides"),
        ({"shapes": [(3, 4)], "strides": [(1,)]}, "shape (3, 4) with strides (1,)"),
    ],
)
def test_random_inputs__case_that_does_not_fit__says_so(case: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words.replace("(", r"\(").replace(")", r"\)")):
        random_inputs(1, **case)  # type: ignore[arg-type]

"""The stages of a preprocessing: names, order, and the line of each function."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from perfgate.measuring.workload.bound import BoundWorkload, line_of, stages_of
from perfgate.measuring.workload.workload import Workload
from tests.fakes.device import FakeDevice

HERE = Path(__file__).parent


def double(raw: int, times: int = 2) -> int:
    return raw * times


class Add:
    def __call__(self, raw: int) -> int:
        return raw + 1


def _names(preprocess: Any) -> list[str]:
    return [stage.name for stage in stages_of(Workload(build=print, inputs=print, preprocess=preprocess))]


def test_stages_of__function_lambda_object_mapping_nothing__named() -> None:
    assert _names(double) == ["double"]
    assert _names(lambda raw: raw) == ["preprocess"]
    assert _names(Add()) == ["preprocess"]
    assert _names({"decode": double, "shift": Add()}) == ["decode", "shift"]
    assert _names(None) == []


def test_line_of__function_partial_object__where_they_start() -> None:
    assert line_of(double, HERE) == "test_stages.py:16"
    assert line_of(functools.partial(double, times=3), HERE) == "test_stages.py:16"
    assert line_of(Add(), HERE.parent) == "worker/test_stages.py:21"


def test_line_of__builtin_or_other_folder__not_known(tmp_path: Path) -> None:
    assert line_of(len, HERE) is None
    assert line_of(double, tmp_path) is None


def test_bound_workload__mapping_of_stages__run_in_order() -> None:
    workload = Workload(
        build=lambda device: print, inputs=lambda batch, seed: seed, preprocess={"add": Add(), "double": double}
    )
    bound = BoundWorkload("stages", workload, FakeDevice(), seed=4)
    assert bound.raw_inputs("default", index=1) == 5
    assert bound.host_inputs("default", index=1) == 12

"""Which functions of a project a trial sees running."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from perfgate import Workload
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.worker.trial import Seeker, try_calls, unseen_functions
from perfgate.measuring.workload.bound import BoundWorkload

MODEL = """import threading

import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.thread = threading.Thread(target=beside)

    def forward(self, x):
        if x[0, 0] > 3:
            return rare(x)
        return x + 1


def beside():
    return 1


def rare(x):
    return x


def never(x):
    return x
"""
INIT, FORWARD, BESIDE, RARE, NEVER = "model.py:7", "model.py:11", "model.py:17", "model.py:21", "model.py:25"


@pytest.fixture
def namespace(tmp_path: Path) -> Iterator[dict[str, Any]]:
    file = tmp_path / "model.py"
    file.write_text(MODEL)
    names: dict[str, Any] = {}
    exec(compile(MODEL, str(file), "exec"), names)
    if dynamo := sys.modules.get("torch._dynamo.utils"):  # of tests before
        dynamo.counters.clear()
    yield names
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]


def _unseen(namespace: dict[str, Any], root: Path, **fields: Any) -> list[str]:
    seeker = Seeker([INIT, FORWARD, BESIDE, RARE, NEVER], root)

    def build(_: Any) -> Any:
        model = namespace["Model"]()
        model.thread.start()
        model.thread.join()
        return model

    # Of the inputs of the pool only the fifth takes the rare way.
    def inputs(batch: int, seed: int) -> torch.Tensor:
        return torch.full((batch, 1), float(seed))

    device = open_device("cpu")
    bound = BoundWorkload("small", Workload(build=build, inputs=inputs, batch=1, **fields), device, seed=0)
    assert try_calls(bound, device, root) is None
    return unseen_functions(bound, device, seeker)


def test_unseen_functions__one_by_a_thread_and_one_by_another_input__only_what_never_runs(
    namespace: dict[str, Any], tmp_path: Path
) -> None:
    assert _unseen(namespace, tmp_path) == [NEVER]


def test_unseen_functions__another_process_may_have_run_them__nothing_is_claimed(
    namespace: dict[str, Any], tmp_path: Path
) -> None:
    def check(output: Any, inputs: Any) -> None:
        subprocess.run([sys.executable, "-c", ""], check=True)

    assert _unseen(namespace, tmp_path, check=check) == []


def test_unseen_functions__a_step_runs_what_no_call_does__nothing_is_claimed(
    namespace: dict[str, Any], tmp_path: Path
) -> None:
    assert _unseen(namespace, tmp_path, preprocess_on_device=lambda raw: raw) == []

"""Whole gates on a card of software: real commands and processes, kernels of known length, models that load for seconds."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.environment import install, perfgate

CARD = Path(__file__).parent / "card"
SETTINGS = """
project = "card"
device = "card"
workload = "perf/model.py:model"

[measure]
pass_env = ["LOAD_SECONDS", "CARD_POWER_LIMIT"]
"""
WORKLOAD = """
import os
import time

import torch
from layers import LAYER_SECONDS
from perfgate_card.driver import card

from perfgate import Workload


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))
        self.memory = card().allocate(1 << 28)
        time.sleep(float(os.environ["LOAD_SECONDS"]))

    def forward(self, x):
        for number, seconds in enumerate(LAYER_SECONDS):
            card().launch(f"layer_{number}", seconds)
            x = x + self.weight
        return x


model = Workload(build=lambda device: Model().eval(), inputs=lambda batch, seed: torch.zeros(batch, 8), batch=8)
"""
BASE = "LAYER_SECONDS = [100e-6] * 20\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the card's package."""
    return install(CARD, tmp_path_factory.mktemp("environment"))


def commit(folder: Path, layers: str) -> None:
    (folder / "layers.py").write_text(layers)
    for arguments in (
        ["add", "--all"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "one"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def check(python: Path, folder: Path, head: str, *, load: str, code: int = 0, limited: bool = False) -> Any:
    """Gate a change of the layers; return the run document of the head and the decision."""
    (folder / "perf").mkdir()
    (folder / "perfgate.toml").write_text(SETTINGS)
    (folder / "perf" / "model.py").write_text(WORKLOAD)
    (folder / ".gitignore").write_text("out/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    commit(folder, BASE)
    commit(folder, head)
    arguments = ("check", "--base", "HEAD~1", "--always", "--out", "out")
    variables = {"LOAD_SECONDS": load, **({"CARD_POWER_LIMIT": "1"} if limited else {})}
    perfgate(python, *arguments, folder=folder, code=code, variables=variables)
    files = folder / "out" / "head" / "run.json", folder / "out" / "decision.json"
    return [json.loads(file.read_text()) for file in files]


@pytest.mark.slow
def test_check__equal_code_that_loads_for_three_seconds__passes_with_several_pairs_a_start(
    python: Path, tmp_path: Path
) -> None:
    run, decision = check(python, tmp_path, BASE + "# Equal.\n", load="3")

    assert decision["verdict"] == "PASS"
    starts = Counter(replicate["start"] for replicate in run["replicates"] if replicate["arm"] == "ab")
    assert sum(starts.values()) >= 8
    assert len(starts) >= 2
    assert max(starts.values()) > 1


def named(decision: Any, metric: str) -> str | None:
    """The cause of a metric that regressed."""
    (row,) = [row for row in decision["comparisons"] if row["metric"] == metric]
    cause = row.get("cause")
    return None if cause is None else decision["causes"][cause]["op"]


@pytest.mark.slow
def test_check__one_kernel_takes_longer__fails(python: Path, tmp_path: Path) -> None:
    _, decision = check(python, tmp_path, "LAYER_SECONDS = [100e-6] * 19 + [200e-6]\n", load="0.5", code=1)

    assert decision["verdict"] == "FAIL"
    assert named(decision, "device.busy") == "layer_19"
    (low,) = [row for row in decision["comparisons"] if row["metric"] == "latency.low"]
    assert low["outcome"] == "regressed"
    assert 0.03 < low["delta"] < 0.07


@pytest.mark.slow
def test_check__one_kernel_makes_all_of_them_a_percent_longer__fails_and_names_it(python: Path, tmp_path: Path) -> None:
    _, decision = check(python, tmp_path, "LAYER_SECONDS = [100e-6] * 19 + [120e-6]\n", load="0.5", code=1)

    assert decision["verdict"] == "FAIL"
    assert named(decision, "device.busy") == "layer_19"


@pytest.mark.slow
def test_check__equal_code_at_the_power_limit__passes(python: Path, tmp_path: Path) -> None:
    run, decision = check(python, tmp_path, BASE + "# Equal.\n", load="0.5", limited=True)

    assert decision["verdict"] == "PASS"
    capped: list[bool] = []
    for replicate in run["replicates"]:
        capped += replicate["shapes"]["default"]["power_capped"]
    assert sum(capped) > 0.9 * len(capped)
    assert min(decision["power_cap"].values()) > 0.9

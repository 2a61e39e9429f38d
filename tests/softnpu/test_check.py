"""The gate on the software NPU: what it says of a head that casts formats and slows one kernel down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.softnpu

WORKLOAD = """
import torch
from model import Model

from perfgate import Workload


def inputs(batch, seed):
    return torch.randn(batch, 256, generator=torch.Generator().manual_seed(seed))


ranker = Workload(build=lambda device: Model().eval().to(device), inputs=inputs, batch=64)
"""
MODEL = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.outward = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

    def forward(self, x):
        return self.outward(self.inward(x).relu())
"""
SLOWER = """
import os

import torch
import torch_npu

torch.npu.config.allow_internal_format = True
os.environ["SOFTNPU_DELAY_US"] = "aclnnRelu=500"


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inward, self.outward = torch.nn.Linear(256, 256), torch.nn.Linear(256, 256)

    def forward(self, x):
        y = torch_npu.npu_format_cast(torch_npu.npu_format_cast(self.inward(x).relu(), 29), 2)
        return self.outward(y)
"""
CONFIG = """
project = "ranking"
device = "npu"
workload = "workload.py:ranker"
[gate]
looks = [8]
aa_pairs = 5
"""


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run(["git", *identity, *words], check=True, cwd=folder, capture_output=True)


@pytest.fixture(scope="module")
def decision(npu_environment, tmp_path_factory):
    """Judge the head of a small repository against its main branch, once."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "-q", "-b", "main")
    for name, text in (("workload.py", WORKLOAD), ("model.py", MODEL), ("perfgate.toml", CONFIG)):
        (folder / name).write_text(text)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")
    git(folder, "checkout", "-qb", "head")
    (folder / "model.py").write_text(SLOWER)
    git(folder, "commit", "-qam", "head")
    out = folder.parent / "decided"
    command = [sys.executable, "-m", "perfgate", "check", "--steps", "4", "--base", "main", "--out", str(out)]
    lock = {"PERFGATE_LOCK": os.environ.get("PERFGATE_LOCK", str(folder / "lock"))}
    done = subprocess.run(
        command, check=False, cwd=folder, env={**npu_environment, **lock}, capture_output=True, text=True, timeout=400
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return json.loads((out / "decision.json").read_text())


def test_check__head_casts_formats__gate_fails_by_the_exact_count(decision):
    [comparison] = [one for one in decision["comparisons"] if one["metric"] == "counters.format_conversions"]

    assert decision["verdict"] == "FAIL"
    assert (comparison["base"], comparison["head"], comparison["outcome"]) == (0, 2, "regressed")


def test_check__head_casts_formats__the_kernel_is_named(decision):
    counts = {change["op"]: (change["base_count"], change["head_count"]) for change in decision["operator_changes"]}

    assert counts["TransData"] == (0, 2)


def test_check__one_kernel_is_slower__named_by_its_type_from_the_pairs(decision):
    [relu] = [one for one in decision["operator_tests"] if one["op"] == "Relu"]

    assert relu["outcome"] == "regressed"
    assert relu["head"] - relu["base"] == pytest.approx(5e-4, rel=0.5)

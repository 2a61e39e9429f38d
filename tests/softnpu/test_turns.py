"""Two ranks of base and two of head take turns on the software NPU, over the real torch_npu and the software HCCL.

The software device computes on the host, so that its times say nothing of an NPU: what is judged here are counts, losses and
that two groups of ranks live beside each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.softnpu.checkout import Project

SETTINGS = """
project = "ranks"
device = "npu"
[measure]
pass_env = ["SOFTNPU_DEVICES"]
[workloads.train]
torchrun = "train.py"
ranks = 2
steps = 2
warm_up = 2
budget = 30
"""
TRAIN = """
import json, os
import torch, torch_npu
import torch.distributed as dist
import perfgate
from extra import extra

torch.set_num_threads(1)
torch.npu.set_device(int(os.environ["RANK"]))
dist.init_process_group("hccl")
print(json.dumps({name: os.environ.get(name) for name in ("MASTER_PORT", "HCCL_IF_BASE_PORT")}), flush=True)
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).npu())
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(1 + dist.get_rank())
for _ in range(100_000):
    batch = torch.randn(8, 64).npu()
    loss = model(batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    extra(loss)
    perfgate.turn(loss=loss, samples=len(batch))
"""
TWICE = "import torch.distributed as dist\ndef extra(loss):\n    dist.all_reduce(loss.detach().clone())\n"


@pytest.fixture
def ranks(project: Project) -> Project:
    project.git("checkout", "-q", "main")
    texts = {"train.py": TRAIN, "extra.py": "def extra(loss):\n    pass\n", "perfgate.toml": SETTINGS}
    for name, text in texts.items():
        (project.root / name).write_text(text)
    project.commit("ranks")
    project.git("checkout", "-q", "-B", "feature")
    return project


def gated(project: Project, text: str) -> tuple[int, dict[str, Any], str]:
    (project.root / "extra.py").write_text(text)
    project.commit("a change")
    done = project.perfgate("check", "--base", "main", "--out", "out", SOFTNPU_DEVICES="2")
    assert (project.root / "out" / "decision.json").exists(), done.stdout + done.stderr
    return done.returncode, json.loads((project.root / "out" / "decision.json").read_text()), done.stdout + done.stderr


def row(decision: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(dict(one) for one in decision["comparisons"] if one["metric"] == metric)


def test_ranks__equal_code__same_losses_and_counts_on_ports_of_their_own(ranks: Project) -> None:
    code, decision, said = gated(ranks, "def extra(loss):\n    return None\n")
    assert code in (0, 3), said
    # Ranks poll their device and each other, so that their CPU time depends on the load of this machine.
    assert not row(decision, "ranks.cpu")["gating"]
    assert "job.output" not in {one["metric"] for one in decision["comparisons"]}
    assert row(decision, "ranks.collectives")["outcome"] == "unchanged"
    assert row(decision, "ranks.collectives")["base"] >= 2
    ports = [_ports(log) for log in sorted((ranks.root / "out").rglob("train-*.log"))]
    assert len(ports) == 2
    for name in ("MASTER_PORT", "HCCL_IF_BASE_PORT"):
        first, second = ({one[name] for one in side} for side in ports)
        assert not first & second


def test_ranks__a_collective_twice__fails_by_its_name(ranks: Project) -> None:
    code, decision, said = gated(ranks, TWICE)
    assert (code, decision["verdict"]) == (1, "FAIL"), said
    collectives = row(decision, "ranks.collectives")
    assert collectives["head"] == collectives["base"] + 2
    assert [(part["name"], part["ranks"]) for part in collectives["parts"]] == [("allreduce", "each")]


def _ports(log: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in log.read_text().splitlines() if line.startswith('{"MASTER_PORT"')]

"""Real ranks under torchrun and gloo: equal code passes, one rank with more to do is named, and nothing outlives the gate."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import left_in_the_end, wait_until

# How perfgate ends: undecided, and not measured to the end.
UNDECIDED, FAILED = 3, 4

ROOT = Path(__file__).parents[2]
SETTINGS = """
project = "ranks"
[workloads.train]
torchrun = "train.py"
ranks = {ranks}
budget = {budget}
"""
COMMON = """
import os
import torch
import torch.distributed as dist
from torch import nn
import perfgate
from extra import extra
torch.set_num_threads(1)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
"""
DATA_PARALLEL = (
    COMMON
    + """
layers = [nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True) for _ in range(3)]
model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
torch.manual_seed(rank)
for step in range(100_000):
    batch = torch.randn(8, 16, 64)
    loss = model(batch).square().mean()
    extra(rank, step, batch)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    perfgate.turn(loss=loss, samples=len(batch))
"""
)
# Every rank holds a slice of both layers; their outputs are added up over ranks.
TENSOR_PARALLEL = (
    COMMON
    + """
first = torch.randn(256, 1024 // world) / 16
second = torch.randn(1024 // world, 256) / 32
state = torch.randn(64, 256)
with torch.no_grad():
    for step in range(100_000):
        for layer in range(6):
            partial = (state @ first).relu() @ second
            extra(rank, step, partial)
            dist.all_reduce(partial)
            state = nn.functional.layer_norm(state + partial, (256,))
        perfgate.turn(loss=state.square().mean(), samples=len(state))
"""
)
NOTHING = "def extra(rank, step, tensor):\n    pass\n"
# Equal code in another form: what is compared is not skipped as unchanged.
NOTHING_ELSE = "def extra(rank, step, tensor):\n    return None\n"
# CPU time, not work of some size: how much it is must not hang on the machine. A step takes 10 to 40 ms.
ONE_RANK = """
import time
def extra(rank, step, tensor):
    until = time.process_time() + 0.01
    while rank == 1 and time.process_time() < until:
        pass
"""
# Of a step of about 32 ms one more.
EVERY_RANK = """
import time
def extra(rank, step, tensor):
    until = time.process_time() + {seconds}
    while time.process_time() < until:
        pass
"""
# Hardly any time: what fails is the count.
TWICE = """
import torch.distributed as dist
def extra(rank, step, tensor):
    dist.all_reduce(tensor[:1].detach().clone())
"""
# What a rank computes while its gradients are on their way, and what takes as long without that.
OVERLAPPING = (
    COMMON
    + """
state, gradient = torch.randn(512, 512) / 23, torch.randn(1 << 17)
with torch.no_grad():
    for step in range(100_000):
        sent = dist.all_reduce(gradient, async_op=True)
        extra(rank, step, sent)
        for _ in range(20):
            state = (state @ state).tanh()
        sent.wait()
        gradient /= world
        perfgate.turn(loss=state.mean(), samples=1)
"""
)
OVERLAPS = "def extra(rank, step, sent):\n    pass\n"
WAITS_AT_ONCE = "def extra(rank, step, sent):\n    sent.wait()\n"
KILLED = """
import os, signal
def extra(rank, step, tensor):
    if rank == 1 and step == 40:
        os.kill(os.getpid(), signal.SIGKILL)
"""
MISSING = """
import perfgate
def extra(rank, step, tensor):
    if rank == 1:
        perfgate.turn = lambda **_: None
"""
Check = Callable[..., dict[str, Any]]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """Gate a change of extra.py; return the decision."""

    def gate(
        script: str,
        head: str,
        *,
        ranks: int = 2,
        budget: int = 90,
        codes: tuple[int, ...] = (0,),
        more: str = "",
        expected: str = "",
        main: str = NOTHING,
        settings: str = SETTINGS,
    ) -> dict[str, Any]:
        project = plant(tmp_path, script, head, settings.format(ranks=ranks, budget=budget) + more, main)
        with start(project) as process:
            output = process.communicate(timeout=600)[0]
        assert process.returncode in codes, output
        assert left_in_the_end(lambda: running(tmp_path)) == []
        assert expected in output
        return dict(json.loads((project / "perfgate-out" / "decision.json").read_text()))

    return gate


def plant(folder: Path, script: str, head: str, settings: str, main: str = NOTHING) -> Path:
    project = folder / "project"
    project.mkdir()
    for name, text in (("train.py", script), ("extra.py", main), ("perfgate.toml", settings)):
        (project / name).write_text(text)
    run = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    subprocess.run([*run, "init", "-qb", "main"], cwd=project, check=True)
    subprocess.run([*run, "add", "--all"], cwd=project, check=True)
    subprocess.run([*run, "commit", "-qm", "base"], cwd=project, check=True)
    subprocess.run([*run, "checkout", "-qb", "change"], cwd=project, check=True)
    (project / "extra.py").write_text(head)
    subprocess.run([*run, "commit", "-qam", "head"], cwd=project, check=True)
    return project


def start(project: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "perfgate", "check", "--base", "main"],
        cwd=project,
        # What it leaves anywhere is found by the folder in which it may write.
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(project.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def running(folder: Path) -> list[str]:
    """Return the command lines of processes that have their temporary files in a folder."""
    found = []
    marker = b"TMPDIR=" + os.fsencode(folder)
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended, or is not ours
            variables = (process / "environ").read_bytes().split(b"\0")
            if any(variable.startswith(marker) for variable in variables):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
    return found


def row(decision: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(dict(entry) for entry in decision["comparisons"] if entry["metric"] == metric)


def shows_slowdown(comparison: dict[str, Any]) -> bool:
    """Whether a slowdown that was planted is found, or on a busy machine not excluded, with how many quads would decide."""
    if comparison["outcome"] == "inconclusive":
        return bool(comparison["delta"] > 0 and comparison["pairs_needed"] > comparison["pairs"])
    return bool(comparison["outcome"] == "regressed")


@pytest.mark.parametrize(
    ("script", "ranks"), [(DATA_PARALLEL, 2), (DATA_PARALLEL, 4), (TENSOR_PARALLEL, 2), (TENSOR_PARALLEL, 4)]
)
def test_check__equal_code__does_not_fail(check: Check, script: str, ranks: int) -> None:
    # A busy machine may leave it undecided, which is no FAIL.
    decision = check(script, NOTHING_ELSE, ranks=ranks, budget=40, codes=(0, UNDECIDED))
    assert decision["verdict"] in {"PASS", "INCONCLUSIVE"}
    assert "job.output" not in {entry["metric"] for entry in decision["comparisons"]}


@pytest.mark.parametrize(("script", "ranks"), [(DATA_PARALLEL, 2), (TENSOR_PARALLEL, 4)])
def test_check__one_rank_does_more__fails_and_names_it(check: Check, script: str, ranks: int) -> None:
    decision = check(script, ONE_RANK, ranks=ranks, codes=(1, UNDECIDED))
    assert shows_slowdown(row(decision, "ranks.cpu"))
    assert row(decision, "ranks.step")["parts"][0]["name"] == "rank 1"


@pytest.mark.parametrize(("script", "base", "head"), [(DATA_PARALLEL, 0.02, 0.021), (TENSOR_PARALLEL, 0.004, 0.00417)])
def test_check__every_rank_three_percent_slower__fails_and_blames_no_single_one(
    check: Check, script: str, base: float, head: float
) -> None:
    main, slower = (EVERY_RANK.format(seconds=seconds) for seconds in (base, head))
    # It ends when it has decided: on two idle cores after four minutes, on busy ones later or not at all.
    decision = check(script, slower, main=main, budget=420, codes=(1, UNDECIDED))
    cpu = row(decision, "ranks.cpu")
    assert shows_slowdown(cpu)
    # The spin is most of a step: how much more that makes of the whole depends on how fast the machine computes the rest.
    assert cpu["interval"][0] < head / base - 1
    assert cpu["interval"][1] > 0.01
    assert cpu["parts"] == []


def test_check__a_collective_twice__fails_by_its_name(check: Check) -> None:
    decision = check(TENSOR_PARALLEL, TWICE, budget=30, codes=(1,), expected="collectives of a step")
    collectives = row(decision, "ranks.collectives")
    assert (collectives["base"], collectives["head"], collectives["outcome"]) == (12, 24, "regressed")
    assert [(part["name"], part["ranks"]) for part in collectives["parts"]] == [("allreduce", "each")]


def test_check__collective_no_longer_beside_computing__its_time_is_exposed(check: Check) -> None:
    decision = check(OVERLAPPING, WAITS_AT_ONCE, budget=60, codes=(0, 1, UNDECIDED), main=OVERLAPS)
    exposed = row(decision, "ranks.exposed")
    assert exposed["head"] > 2 * exposed["base"]
    step = row(decision, "ranks.step")
    assert step["outcome"] != "regressed" or step["parts"][0]["name"] == "exposed communication"
    assert row(decision, "ranks.collectives")["outcome"] == "unchanged"


WORKLOAD = """
import torch
import torch.distributed as dist
from perfgate import Workload
from extra import extra
class Sharded(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.part = torch.nn.Linear(128, 128)
    def forward(self, x):
        total = self.part(x)
        dist.all_reduce(total)
        extra(dist.get_rank(), 0, total)
        return total
sharded = Workload(build=lambda device: Sharded().eval(), inputs=lambda batch, seed: torch.ones(batch, 128), batch=64)
"""


def test_check__a_workload_in_every_rank__its_collectives_are_compared(check: Check) -> None:
    settings = 'project = "ranks"\n[workloads.sharded]\nworkload = "train.py:sharded"\nranks = 2\nbudget = 30\n'
    decision = check(WORKLOAD, TWICE, codes=(1,), settings=settings)
    collectives = row(decision, "ranks.collectives")
    assert (collectives["base"], collectives["head"]) == (2, 4)


def test_check__other_losses__fails_as_other_output(check: Check) -> None:
    other = "def extra(rank, step, tensor):\n    tensor.add_(1e-3)\n"
    decision = check(TENSOR_PARALLEL, other, budget=30, codes=(1,))
    assert row(decision, "job.output")["outcome"] == "regressed"


def test_check__rank_is_killed__says_which(check: Check) -> None:
    check(DATA_PARALLEL, KILLED, codes=(FAILED,), expected="rank 1 was killed by SIGKILL after 36 steps")


def test_check__a_rank_too_few__says_how_many(check: Check) -> None:
    check(
        DATA_PARALLEL,
        MISSING,
        codes=(FAILED,),
        more="ready_timeout = 45\n",
        expected="1 of 2 ranks called perfgate.turn() within 45 s, rank 1 did not",
    )


def test_check__gate_is_killed__no_rank_stays(tmp_path: Path) -> None:
    project = plant(tmp_path, DATA_PARALLEL, NOTHING_ELSE, SETTINGS.format(ranks=2, budget=90))
    with start(project) as process:
        wait_until(lambda: sum("train.py" in line for line in running(tmp_path)) >= 4)
        process.send_signal(signal.SIGKILL)
    assert left_in_the_end(lambda: running(tmp_path)) == []

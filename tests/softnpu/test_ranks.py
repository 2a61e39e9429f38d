"""Two processes over the software HCCL, profiled by torch_npu: one run document with both ranks."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

STEPS = 3
TRAIN = f"""
import os, sys
import torch, torch_npu
import torch.distributed as dist
from torch_npu import profiler

rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
dist.init_process_group("hccl")
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64).npu())
data = torch.randn(8, 64).npu()
model(data).sum().backward()
torch.npu.synchronize()
with profiler.profile(
    activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
    schedule=profiler.schedule(wait=0, warmup=0, active={STEPS}, repeat=1),
    on_trace_ready=profiler.tensorboard_trace_handler(sys.argv[1], analyse_flag=False),
    experimental_config=profiler._ExperimentalConfig(profiler_level=profiler.ProfilerLevel.Level1),
) as recorder:
    for _ in range({STEPS}):
        model(data).sum().backward()
        torch.npu.synchronize()
        recorder.step()
dist.barrier()
dist.destroy_process_group()
"""
ANALYSE = "import sys\nfrom torch_npu.profiler.profiler import analyse\nanalyse(sys.argv[1])"


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def _train(folder: Path, environment: dict[str, str]) -> None:
    """Train with two ranks, each on a device of its own, and analyse what the profiler left in a fresh process."""
    shared = {
        **environment,
        "SOFTNPU_DEVICES": "2",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": _free_port(),
    }
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", TRAIN, str(folder)],
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    for rank in ranks:
        said, _ = rank.communicate(timeout=600)
        assert rank.returncode == 0, said
    done = subprocess.run(
        [sys.executable, "-c", ANALYSE, str(folder)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_run_from_profile__two_ranks_over_hccl__one_document_with_both(
    npu_environment: dict[str, str], tmp_path: Path
) -> None:
    profiles = tmp_path / "profiles"
    _train(profiles, npu_environment)
    # What runs from here on needs neither torch nor an NPU.
    plain = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    command = [sys.executable, "-m", "perfgate.cli.main"]
    done = subprocess.run(
        [*command, "run", "--from-profile", str(profiles), "--out", str(tmp_path / "out")],
        env=plain, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    shapes = run["workloads"][0]["shapes"]
    assert [shape.partition(",")[0] for shape in shapes] == ["rank 0", "rank 1"]
    counters = {counted["shape"]: counted for counted in run["checklist"]["counters"]}
    assert {shape: counters[shape]["repeats"] for shape in shapes} == dict.fromkeys(shapes, STEPS)
    assert all(counters[shape]["values"]["counters.collectives"] >= 1 for shape in shapes)
    steps = subprocess.run(
        [*command, "trace", "steps", "--json", str(profiles)], env=plain, capture_output=True, text=True, check=False
    )
    timelines = json.loads(steps.stdout)["timelines"]
    assert [timeline["rank"] for timeline in timelines] == [0, 1]
    assert all(len(timeline["steps"]) == STEPS for timeline in timelines)
    assert all(row["communication"] > 0 for timeline in timelines for row in timeline["steps"])

"""torch.distributed over the software NPU's libhccl: the values, the profile, and no hang when a rank dies."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

PROGRAM = Path(__file__).parent / "ranks.py"


class Outcome(NamedTuple):
    """How one rank ended."""

    status: int
    output: str
    process: int


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture
def job(npu_environment: dict[str, str], tmp_path: Path) -> Callable[..., list[Outcome]]:
    """Run parts of ranks.py as a job of so many processes."""

    def run(parts: list[str], size: int, timeout: float = 600) -> list[Outcome]:
        shared = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment = {**npu_environment, **shared, "SOFTNPU_DEVICES": str(size)}
        ranks = [
            subprocess.Popen(
                [sys.executable, str(PROGRAM), *parts],
                cwd=tmp_path,
                env={**environment, "RANK": str(rank)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for rank in range(size)
        ]
        try:
            outputs = [rank.communicate(timeout=timeout)[0] for rank in ranks]
        finally:
            for rank in ranks:
                rank.kill()
        return [Outcome(rank.returncode, output, rank.pid) for rank, output in zip(ranks, outputs)]

    return run


@pytest.mark.parametrize("size", [2, 3])
def test_hccl__collectives_parcels_and_messages__values_expected_and_no_files_left(
    size: int, job: Callable[..., list[Outcome]]
) -> None:
    outcomes = job(["collectives", "all_to_all", "messages"], size)
    for rank, outcome in enumerate(outcomes):
        assert outcome.status == 0, outcome.output
        assert f"rank {rank} is through" in outcome.output
    assert not list(Path("/dev/shm").glob(f"softhccl_{outcomes[0].process}_*"))


def test_hccl__rank_dies__others_are_told_in_seconds(job: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    begin = time.monotonic()
    outcomes = job(["dying"], 3)
    assert outcomes[2].status == 3, outcomes[2].output
    for rank in (0, 1):
        waited, _, message = (tmp_path / f"told_{rank}").read_text().partition(" ")
        assert float(waited) < 10, message
    assert time.monotonic() - begin < 90


def test_hccl__profile_of_data_parallel__communication_files(job: Callable[..., list[Outcome]], tmp_path: Path) -> None:
    for outcome in job(["data_parallel"], 2):
        assert outcome.status == 0, outcome.output
    for rank in (0, 1):
        (folder,) = (tmp_path / f"rank_{rank}").glob("*_ascend_pt/ASCEND_PROFILER_OUTPUT")
        times = json.loads((folder / "communication.json").read_text())
        steps = {name: step["collective"] for name, step in times.items()}
        assert list(steps) == ["step1", "step2"]
        for operations in steps.values():
            (reduced,) = (one for name, one in operations.items() if name.startswith("hcom_allReduce__"))
            info = reduced["Communication Time Info"]
            assert info["Elapse Time(ms)"] == pytest.approx(info["Transit Time(ms)"] + info["Wait Time(ms)"])
            # 64 x 64 weights and 64 biases of four bytes
            assert reduced["Communication Bandwidth Info"]["HCCS"]["Transit Size(MB)"] == 0.01664
            assert "Total Op Info" in operations
        matrix = json.loads((folder / "communication_matrix.json").read_text())
        links = next(one for name, one in matrix["step1"]["collective"].items() if name.startswith("allreduce-top1@"))
        assert links[f"{rank}-{rank}"]["Transport Type"] == "LOCAL"
        assert links[f"{rank}-{1 - rank}"]["Transport Type"] == "HCCS"

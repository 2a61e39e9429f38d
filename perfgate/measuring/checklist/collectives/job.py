"""Run a job of so many ranks on this machine with torch's own launcher, and leave nothing of it behind.

The launching process and the ranks exchange the plan and the reports as JSON files in one folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from perfgate.errors import MeasuringError

Operation = Literal["all_reduce", "all_gather", "reduce_scatter"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter")
PLAN_FILE = "plan.json"
_SMALLEST = 1 << 10
_SIZE_STEP = 4
_RANKS = "perfgate.measuring.checklist.collectives.ranks"
_TAIL = 2000
_END_SECONDS = 5.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One job. ``sizes`` are bytes, rising; each is timed ``repetitions`` times, or fewer where that takes ``seconds``.

    ``rounds`` is how often all ranks do the same work and then meet, to see who comes last.
    """

    kind: str
    backend: str
    sizes: list[int]
    repetitions: int
    seconds: float
    rounds: int
    timeout_seconds: float


class OperationSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one rank at one size: nanoseconds of each repetition, and whether the result was right."""

    operation: Operation
    size: int
    nanoseconds: list[int]
    right: bool


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """One round: when a rank finished its work, by the clock that a machine's processes share, and how long that took."""

    arrived_ns: int
    worked_ns: int


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank measured. ``refused`` says why the backend does not have an operation."""

    rank: int
    timed: list[OperationSamples]
    meetings: list[Meeting]
    refused: dict[str, str] = {}


def sizes_up_to(largest: int) -> list[int]:
    """1 KiB, 4 KiB, 16 KiB … up to ``largest`` bytes."""
    sizes = [_SMALLEST]
    while sizes[-1] * _SIZE_STEP <= largest:
        sizes.append(sizes[-1] * _SIZE_STEP)
    return sizes


def report_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.json"


def failure_file(folder: Path, rank: int) -> Path:
    return folder / f"rank-{rank}.failure"


def run_job(plan: Plan, *, ranks: int, folder: Path, limit_seconds: float) -> list[RankReport]:
    """The reports of all ranks, in order.

    Rendezvous is on the loopback at a port that the launcher takes from the system, so that two jobs never meet. Raises
    MeasuringError, with what the job printed last, where it fails or takes longer than ``limit_seconds``.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".collectives-") as name:
        work = Path(name)
        (work / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
        launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
        command = [*launcher, f"--nproc-per-node={ranks}", "-m", _RANKS, str(work)]
        ended = _run(command, environment(os.environ), limit_seconds, folder=work)
        if ended.code != 0:
            why = _failure(work, ranks) or ended.tail()
            raise MeasuringError(f"a job of {ranks} ranks over {plan.backend} {ended.words()}: {why}")
        return [msgspec.json.decode(report_file(work, rank).read_bytes(), type=RankReport) for rank in range(ranks)]


def _failure(folder: Path, ranks: int) -> str | None:
    """What the first rank that failed wrote; the others were then ended, or waited for it in vain."""
    files = [path for rank in range(ranks) if (path := failure_file(folder, rank)).exists()]
    return min(files, key=lambda path: path.stat().st_mtime_ns).read_text()[:_TAIL] if files else None


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the job: gloo looks up the host's name, which containers often cannot, unless told where.

    HCCL listens on port 16666 of every NPU, where another job on the card may be, unless the system chooses (hiascend.com,
    CANN 9.0, "HCCL_NPU_SOCKET_PORT_RANGE"). A rank gets one thread: there are as many ranks as there are devices, or as CPUs
    were asked for.
    """
    defaults = {"GLOO_SOCKET_IFNAME": "lo", "HCCL_NPU_SOCKET_PORT_RANGE": "auto"}
    return {**defaults, **inherited, "OMP_NUM_THREADS": "1"}


class _Ended(NamedTuple):
    """How the launcher ended, None where it had to be ended, and what the job printed."""

    code: int | None
    output: bytes

    def words(self) -> str:
        if self.code is None:
            return "did not end in time"
        if self.code < 0:
            return f"was killed by {signal.Signals(-self.code).name}"
        return f"ended with exit status {self.code}"

    def tail(self) -> str:
        return self.output.decode(errors="replace")[-_TAIL:].strip() or "it printed nothing"


def _run(command: list[str], environ: Mapping[str, str], limit_seconds: float, *, folder: Path) -> _Ended:
    """Run the launcher, and return when no process of the job is left.

    The launcher puts every rank into a session of its own, where no signal of ours reaches it. But ranks end when their
    standard input, which is a pipe of ours, is closed; and as they all print to another pipe, its end is theirs.
    """
    reads, life_line = os.pipe()
    process = subprocess.Popen(
        command,
        # -m puts the current folder before all others on the import path; here it holds nothing to import.
        cwd=folder,
        env=dict(environ),
        stdin=reads,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    os.close(reads)
    try:
        output, _ = process.communicate(timeout=limit_seconds)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        os.close(life_line)
        output, _ = process.communicate(timeout=_END_SECONDS)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return _Ended(None, output)
    os.close(life_line)
    return _Ended(process.returncode, output)

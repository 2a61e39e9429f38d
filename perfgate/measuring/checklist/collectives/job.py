"""Run a job of so many ranks on this machine with torch's own launcher, and leave nothing of it behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.collectives.plan import (
    PLAN_FILE,
    Plan,
    RankReport,
    failure_file,
    report_file,
)

_RANKS = "perfgate.measuring.checklist.collectives.ranks"
_TAIL = 2000
_END_SECONDS = 5.0


def run_job(plan: Plan, *, ranks: int, folder: Path, limit_seconds: float) -> list[RankReport]:
    """Return the reports of all ranks, in order.

    Rendezvous is on the loopback at a port that the launcher takes from the system, so that two jobs never meet. Raises
    MeasuringError, with what the job printed last, where it fails or takes longer than ``limit_seconds``.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".collectives-") as name:
        work = Path(name)
        (work / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
        done = _run(_command(ranks, work), environment(os.environ), limit_seconds)
        if done.code != 0:
            why = _failure(work, ranks) or done.tail()
            raise MeasuringError(f"a job of {ranks} ranks over {plan.backend} {done.words()}: {why}")
        return [msgspec.json.decode(report_file(work, rank).read_bytes(), type=RankReport) for rank in range(ranks)]


def _failure(folder: Path, ranks: int) -> str | None:
    """Return what the first rank that failed says of it; the others were then ended, or waited for it in vain."""
    told = [path for rank in range(ranks) if (path := failure_file(folder, rank)).exists()]
    return min(told, key=lambda path: path.stat().st_mtime_ns).read_text()[:_TAIL] if told else None


def _command(ranks: int, folder: Path) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [*launcher, f"--nproc-per-node={ranks}", "-m", _RANKS, str(folder)]


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the job: gloo looks up the host's name, which containers often cannot, unless told where.

    HCCL listens on port 16666 of every NPU, where another job on the card may be, unless the system chooses (hiascend.com,
    CANN 9.0, "HCCL_NPU_SOCKET_PORT_RANGE"). A rank gets one thread: there are as many ranks as there are devices, or as CPUs
    were asked for.
    """
    chosen = {"GLOO_SOCKET_IFNAME": "lo", "HCCL_NPU_SOCKET_PORT_RANGE": "auto"}
    return {**chosen, **inherited, "OMP_NUM_THREADS": "1"}


class _Done(NamedTuple):
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


def _run(command: list[str], environ: Mapping[str, str], limit_seconds: float) -> _Done:
    """Run the launcher, and return when no process of the job is left.

    The launcher puts every rank into a session of its own, where no signal of ours reaches it. But ranks end when their
    standard input, which is a pipe of ours, is closed; and as they all print to another pipe, its end is theirs.
    """
    reads, life_line = os.pipe()
    process = subprocess.Popen(
        command,
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
        return _Done(None, output)
    os.close(life_line)
    return _Done(process.returncode, output)

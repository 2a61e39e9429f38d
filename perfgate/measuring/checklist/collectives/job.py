"""Run a job of several ranks on this machine with torch's own launcher, and leave no
process behind.

The launching process and the ranks exchange the plan and the reports as JSON files in
one folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import msgspec

from perfgate.errors import MeasuringError
from perfgate.system.processes import signal_name

Operation = Literal["all_reduce", "all_gather", "reduce_scatter"]
OPERATIONS: tuple[Operation, ...] = ("all_reduce", "all_gather", "reduce_scatter")
PLAN_FILE = "plan.json"
_SMALLEST = 1 << 10
_SIZE_STEP = 4
_RANKS = "perfgate.measuring.checklist.collectives.ranks"
_TAIL = 2000
# A rank notices the end of its job once it is imported, which takes a busy machine many
# seconds.
_END_SECONDS = 60.0


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """One job.

    ``sizes`` are bytes, rising; each is timed ``repetitions`` times, or fewer if that
    takes ``seconds``.

    In each of ``rounds`` rounds all ranks do the same work and then meet, which reveals
    stragglers.
    """

    kind: str
    backend: str
    # The package that adds the kind of device to torch; empty if torch has it.
    extension: str = ""
    sizes: list[int]
    repetitions: int
    seconds: float
    rounds: int
    timeout_seconds: float


class OperationSamples(msgspec.Struct, frozen=True, kw_only=True):
    """One operation of one rank at one size: nanoseconds of each repetition, and
    whether the result was right.
    """

    operation: Operation
    size: int
    nanoseconds: list[int]
    right: bool


class RankReport(msgspec.Struct, frozen=True, kw_only=True):
    """The measurements of one rank.

    ``refused`` maps an operation that the backend lacks to the reason.

    ``arrived_ns`` is when it finished its work in each round, by the clock that a
    machine's processes share, ``worked_ns`` how long that took.
    """

    rank: int
    timed: list[OperationSamples]
    arrived_ns: list[int]
    worked_ns: list[int]
    refused: dict[str, str] = {}

    def timed_of(self, operation: Operation) -> list[OperationSamples]:
        return [sample for sample in self.timed if sample.operation == operation]


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


def run_job(
    plan: Plan, *, ranks: int, folder: Path, limit_seconds: float
) -> list[RankReport]:
    """The reports of all ranks, in order.

    Rendezvous is on the loopback at a port that the launcher takes from the system, so
    that two jobs never meet. Raises MeasuringError with the job's last output if the
    job fails or exceeds ``limit_seconds``.
    """
    with tempfile.TemporaryDirectory(dir=folder, prefix=".collectives-") as name:
        work = Path(name)
        (work / PLAN_FILE).write_bytes(msgspec.json.encode(plan))
        launcher = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--local-addr",
            "127.0.0.1",
        ]
        command = [*launcher, f"--nproc-per-node={ranks}", "-m", _RANKS, str(work)]
        code, output = _run(
            command, environment(os.environ), limit_seconds, folder=work
        )
        if code != 0:
            printed = output.decode(errors="replace")[-_TAIL:].strip()
            # The first rank that failed: the others were killed or waited for it in
            # vain.
            failures = [
                file
                for rank in range(ranks)
                if (file := failure_file(work, rank)).exists()
            ]
            first = min(
                failures, key=lambda file: file.stat().st_mtime_ns, default=None
            )
            why = (
                first.read_text()[:_TAIL] if first else printed
            ) or "it printed nothing"
            raise MeasuringError(
                f"a job of {ranks} ranks over {plan.backend} {_end_of(code)}: {why}"
            )
        return [
            msgspec.json.decode(report_file(work, rank).read_bytes(), type=RankReport)
            for rank in range(ranks)
        ]


def environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of the job: unless told an address, gloo looks up the host's
    name, which containers often cannot.

    HCCL listens on port 16666 of every NPU, which another job on the card may use,
    unless the system chooses a port (hiascend.com, CANN 9.0,
    "HCCL_NPU_SOCKET_PORT_RANGE"). A rank gets one thread: there are as many ranks as
    there are devices, or as CPUs were asked for.
    """
    defaults = {"GLOO_SOCKET_IFNAME": "lo", "HCCL_NPU_SOCKET_PORT_RANGE": "auto"}
    return {**defaults, **inherited, "OMP_NUM_THREADS": "1"}


def _end_of(code: int | None) -> str:
    if code is None:
        return "did not end in time"
    if code < 0:
        return f"was killed by {signal_name(-code)}"
    return f"ended with exit status {code}"


def _run(
    command: list[str],
    environ: Mapping[str, str],
    limit_seconds: float,
    *,
    folder: Path,
) -> tuple[int | None, bytes]:
    """Run the launcher until no process of the job is left: its exit code, None if it
    had to be killed, and the output.

    The launcher puts every rank into a separate session, out of reach of our signals.
    But ranks end when their standard input, which is a pipe of ours, is closed; and as
    they all print to another pipe, its end is theirs.
    """
    reads, life_line = os.pipe()
    process = subprocess.Popen(
        command,
        # -m puts the current folder before all others on the import path; here it has
        # no modules.
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
        output = _rest(process)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        return None, output
    os.close(life_line)
    return process.returncode, output


def _rest(process: subprocess.Popen[bytes]) -> bytes:
    """The output of a killed launcher and its ranks, up to their end."""
    try:
        return process.communicate(timeout=_END_SECONDS)[0]
    except subprocess.TimeoutExpired as late:
        with process:  # closes the pipe and takes the launcher's exit status
            return late.output or b""

"""A program of the project, started for one side of a job; it and all below it end when
we do.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

import msgspec

from perfgate.conductor.failure import TurnError
from perfgate.conductor.machine.cpus import granted_cpus
from perfgate.conductor.workers.interpreters import our_process
from perfgate.document.job import CpuTime
from perfgate.document.message import Message, MessageValue
from perfgate.document.run import ErrorDetail, ErrorKind
from perfgate.system.interrupts import safe_point
from perfgate.system.logs import KEPT_BYTES, cut_log, log_tail, only_a_file
from perfgate.system.processes import (
    cpu_ns_below,
    run_delay_ns_below,
    running_below,
    signal_name,
    threads_of,
)
from perfgate.system.walls import Room

_TICK_SECONDS = 0.2
_START_SECONDS = 30.0
_END_SECONDS = 10.0
# A shell ends with this and the number of the signal that ended its program (POSIX,
# Shell Command Language, 2.8.2).
_SHELL_SIGNAL = 128


class SideError(TurnError):
    """A side of a job cannot be started, or failed in its turn."""


class ProgramEnd(msgspec.Struct, frozen=True):
    """How a program ended: its exit code, or minus the signal that killed it; seconds
    of wall and CPU; bytes of its largest.

    CPU time includes all processes below it. ``left`` names the processes that were
    still running some time after.
    """

    code: int
    seconds: float
    cpu: float
    memory: float
    left: list[str] = []

    @property
    def signal(self) -> str:
        """The name of the signal that killed the program, or the program that its shell
        started; empty if it exited.
        """
        if self.code < 0:
            return signal_name(-self.code)
        number = self.code - _SHELL_SIGNAL
        return signal_name(number) if number in set(signal.Signals) else ""


def free_port() -> int:
    """A free port of this machine; if another process takes it first, the program that
    gets it fails.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class CpuMeter:
    """The CPU time of everything below a process, from when the meter is made until it
    is read.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._waited = run_delay_ns_below(pid)
        self._used = cpu_ns_below(pid)
        self._began = time.monotonic()

    def read(self) -> CpuTime:
        seconds = time.monotonic() - self._began
        used = cpu_ns_below(self._pid) - self._used
        waited_ns = run_delay_ns_below(self._pid)
        waited: float | None = None
        if waited_ns is not None and self._waited is not None:
            # A thread that ended takes its waiting time with it.
            waited = round(max(0, waited_ns - self._waited) / 1e9, 6)
        return CpuTime(
            used=round(used / 1e9, 6), waited=waited, seconds=round(seconds, 6)
        )


class SideProgram:
    """A running program, in a shell. ``stop`` ends it and every process below it.

    ``cpus`` are those it is bound to, empty for all; ``room`` is the room of its side.
    """

    def __init__(
        self,
        line: str,
        *,
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
        cpus: Sequence[int],
        room: Room | None,
    ) -> None:
        self._log = log
        self._line = line
        self._buffer = b""
        self._end: ProgramEnd | None = None
        self._turn_ended: tuple[float, int] | None = None
        cut_log(log)
        with self._open_log("ab") as output:
            # The program shares the file.
            os.set_blocking(output.fileno(), True)
            self.log_begins = output.tell()
            ours, theirs = socket.socketpair()
            self._connection = ours
            on = ",".join(map(str, cpus or granted_cpus()))
            walls = json.dumps(room) if room else ""
            keeper = our_process(
                "perfgate.system.keeper", str(theirs.fileno()), on, str(folder), walls
            )
            self._keeper = subprocess.Popen(
                [*keeper, "/bin/sh", "-c", line],
                cwd="/",
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        began = msgspec.json.decode(
            self._next_line(_START_SECONDS), type=dict[str, int]
        )
        self.pid = began["pid"]

    def bind(self, cpus: Sequence[int]) -> None:
        """Bind every thread of it and of all processes below it, and thereby their
        later children, to CPUs.
        """
        for process in self.processes():
            for thread in threads_of(process):
                with suppress(OSError):  # it has ended
                    os.sched_setaffinity(thread, cpus)

    def wait(self, timeout: float) -> ProgramEnd:
        """Wait for the end. Raises SideError after ``timeout`` seconds."""
        return msgspec.json.decode(self._next_line(timeout), type=ProgramEnd)

    def ended(self, within: float = 0.0) -> ProgramEnd | None:
        """How it ended, or ends within some seconds; None if it is still running."""
        if self._end is None and select.select([self._connection], [], [], within)[0]:
            self._end = self.wait(_TICK_SECONDS)
        return self._end

    def output(self) -> str:
        """Its output since it was started, the last MiB of it."""
        with self._open_log("rb") as log:
            log.seek(max(self.log_begins, log.seek(0, os.SEEK_END) - KEPT_BYTES))
            return log.read(KEPT_BYTES).decode(errors="replace")

    def _open_log(self, mode: str) -> IO[bytes]:
        """Raises SideError if an earlier or running program put something else in its
        place.
        """
        try:
            return open(self._log, mode, opener=only_a_file)
        except OSError as error:
            raise self.failed(
                "protocol",
                "job.no-log",
                line=self._line,
                log=self._log.name,
                why=error.strerror or str(error),
            ) from error

    def cpu_ns(self) -> int:
        """The CPU time of it and all below it, daemons and processes that have ended
        included.
        """
        return cpu_ns_below(self._keeper.pid)

    def processes(self) -> list[int]:
        """It and all below it that run."""
        return running_below(self._keeper.pid)

    def cpu_meter(self) -> CpuMeter:
        """Begin to measure the CPU time of work that it does now."""
        return CpuMeter(self._keeper.pid)

    def stop(self) -> None:
        self._connection.close()
        try:
            self._keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()

    def begin_turn(self) -> float | None:
        """How many CPUs it and all below it used on average since the end of its last
        turn; None before the first.
        """
        if self._turn_ended is None:
            return None
        ended, used = self._turn_ended
        return round(
            (self.cpu_ns() - used) / 1e9 / max(1e-9, time.monotonic() - ended), 4
        )

    def end_turn(self) -> None:
        self._turn_ended = time.monotonic(), self.cpu_ns()

    def failed(
        self, kind: ErrorKind, code: str, /, **values: MessageValue
    ) -> SideError:
        """The error with the message of this code, and the end of the log."""
        message = Message(code, values)
        return SideError(
            ErrorDetail(kind=kind, message=message, log_tail=log_tail(self._log))
        )

    def _next_line(self, seconds: float) -> bytes:
        deadline = time.monotonic() + seconds
        while b"\n" not in self._buffer:
            safe_point()
            if time.monotonic() > deadline:
                raise self.failed(
                    "timeout", "job.timed-out", line=self._line, seconds=seconds
                )
            self._connection.settimeout(_TICK_SECONDS)
            try:
                data = self._connection.recv(4096)
            except TimeoutError:
                continue
            if not data:
                raise self.failed("exit", "job.keeper-gone", line=self._line)
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

"""The command line as a process of its own, forked from one that has imported it already.

To start Python, import what a command needs and compile the templates takes a second of CPU; a fork takes some hundredths. What
depends on how Python itself is started (PATH, PYTHONPATH, a library to preload) starts a new one.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from perfgate.conductor.workers.environment import find_secrets
from tests.exit_code import ExitCode

COMMAND = (sys.executable, "-m", "perfgate.cli.main")
SERVER = Path(__file__).with_name("command_server.py")
# These start themselves anew without tokens, by their own command line, which is not that of a fork.
_MEASURING = frozenset({"bisect", "check", "doctor", "local", "run", "trend", "upgrade"})
_STARTING = threading.Lock()
_OF_PYTHON = ("PYTHON", "LD_", "TZ", "PATH", "GIT_PYTHON_")


def run_perfgate(
    *arguments: str, cwd: Path | None = None, environment: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run `perfgate` to its end, as ``subprocess.run`` would with ``capture_output`` and ``text``; its code is an ExitCode."""
    started, folder = time.time(), cwd or Path.cwd()
    done = _run(arguments, folder, dict(os.environ if environment is None else environment), timeout)
    done.returncode = ExitCode.of(done, folder, started)
    return done


def _run(
    arguments: Sequence[str], cwd: Path, environment: dict[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    drops_tokens = _MEASURING & set(arguments[:1]) and find_secrets(environment).names
    if drops_tokens or _starts_python_otherwise(environment):
        return subprocess.run(
            [*COMMAND, *arguments],
            cwd=cwd,
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )
    with TemporaryFile() as stdout, TemporaryFile() as stderr:
        with _ordered(arguments, cwd, environment, stdout, stderr) as command:
            code = command.wait(timeout)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode().replace("\r\n", "\n"))
    return subprocess.CompletedProcess([*COMMAND, *arguments], code, *texts)


@contextmanager
def started_perfgate(*arguments: str, **environment: str) -> Iterator[tuple[ForkedCommand, IO[str]]]:
    """Start `perfgate` with further variables, and yield it with what it prints; whoever starts it waits for its end."""
    reading, writing = os.pipe()
    with (
        os.fdopen(reading) as printed,
        os.fdopen(writing, "wb") as stdout,
        Path(os.devnull).open("wb") as stderr,
        _ordered(arguments, Path.cwd(), {**os.environ, **environment}, stdout, stderr) as command,
    ):
        stdout.close()
        yield command, printed


@dataclass(frozen=True)
class ForkedCommand:
    """A command that was ordered: its process, and where its exit code arrives."""

    pid: int
    _reply: socket.socket
    _answers: IO[str]

    def wait(self, timeout: float) -> int:
        """Return its exit code; a command that does not end in time is killed."""
        self._reply.settimeout(timeout)
        try:
            return int(self._answers.readline())
        except TimeoutError:
            self.kill()
            raise

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


@contextmanager
def _ordered(
    arguments: Sequence[str], cwd: Path, environment: Mapping[str, str], stdout: IO[bytes], stderr: IO[bytes]
) -> Iterator[ForkedCommand]:
    order = json.dumps({"arguments": arguments, "cwd": str(cwd), "environment": dict(environment)})
    reply, theirs = socket.socketpair()
    with reply, theirs, Path(os.devnull).open("rb") as stdin:
        descriptors = [theirs.fileno(), stdin.fileno(), stdout.fileno(), stderr.fileno()]
        with _STARTING:
            server = _server()
        socket.send_fds(server, [order.encode()], descriptors)
        theirs.close()
        with reply.makefile("r") as answers:
            yield ForkedCommand(int(answers.readline()), reply, answers)


def _starts_python_otherwise(environment: Mapping[str, str]) -> bool:
    """Whether a variable is not as it is here. One that is only lacking, such as PYTHONUNBUFFERED, changes no command."""
    return environment.get("PATH") != os.environ.get("PATH") or any(
        os.environ.get(name) != value for name, value in environment.items() if name.startswith(_OF_PYTHON)
    )


@cache
def _server() -> socket.socket:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, str(SERVER), str(theirs.fileno())]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours

"""The conductor's handles on the fork server and its workers: start, ask, limit, kill."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

import msgspec

from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError
from perfgate.protocol import (
    ConnectionClosed,
    Exited,
    Failed,
    Forked,
    ForkRequest,
    Progress,
    ServerFailed,
    ServerReady,
    receive,
    reply_decoder,
    send,
    send_with_descriptor,
    server_decoder,
)

TICK_SECONDS = 0.2
EXIT_SECONDS = 5.0
LOG_TAIL_BYTES = 4_000

ReplyType = TypeVar("ReplyType", bound=msgspec.Struct)
Say = Callable[[str], None]


class WorkerError(MeasuringError):
    """A worker died or its workload raised; ``detail`` says how. ``alive`` is whether it can still be asked."""

    def __init__(self, detail: ErrorDetail, *, alive: bool) -> None:
        super().__init__(detail.message)
        self.detail = detail
        self.alive = alive


class ForkServer:
    """The running fork server. Use it as a context manager: leaving it kills every worker."""

    def __init__(self, *, environment: dict[str, str], preload: list[str], scratch: Path, say: Say) -> None:
        self._say = say
        self._scratch = scratch
        self._workers: dict[int, Worker] = {}
        self._next_id = 0
        self._log = scratch / "server.log"
        ours, theirs = socket.socketpair()
        self._connection = ours
        with self._log.open("wb") as log:
            # A session of its own, so that ctrl-C in the terminal reaches the conductor alone, which then cleans up.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "perfgate.measuring.worker", str(theirs.fileno()), *preload],
                env=environment,
                cwd=scratch,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self.start_up = 0.0

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for worker in list(self._workers.values()):
            worker.close()
        self._connection.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()

    def wait_ready(self, *, timeout: float) -> None:
        """Wait until the preloaded modules are imported. Raises MeasuringError with the traceback when one fails."""
        message = self._wait(ServerReady, ServerFailed, timeout=timeout, doing="importing the preloaded modules")
        if isinstance(message, ServerFailed):
            raise MeasuringError(
                f"the worker's interpreter {sys.executable} cannot import what [measure] preload asks for: "
                f"{message.error.message}\n{message.error.traceback}"
            )
        self.start_up = message.start_up

    def fork(self, *, cpus: list[int], layout_seed: int, log: Path, memory_limit: Optional[int]) -> Worker:
        """Fork a worker pinned to ``cpus``; what its user code prints goes to ``log``."""
        self._next_id += 1
        ours, theirs = socket.socketpair()
        request = ForkRequest(
            worker_id=self._next_id,
            layout_seed=layout_seed,
            cpus=cpus,
            log_path=str(log),
            cwd=str(self._scratch),
            memory_limit=memory_limit,
        )
        try:
            send_with_descriptor(self._connection, request, theirs.fileno())
        except ConnectionClosed:
            raise self._died() from None
        finally:
            theirs.close()
        worker = Worker(self, ours, worker_id=self._next_id, log=log, say=self._say)
        self._workers[self._next_id] = worker
        worker.pid = self._wait(Forked, Forked, timeout=30, doing="forking a worker").pid
        return worker

    def exit_of(self, worker: Worker, *, timeout: float) -> Optional[Exited]:
        """Return how a worker ended, None when it has not within ``timeout``."""
        deadline = time.monotonic() + timeout
        while worker.exited is None and time.monotonic() < deadline:
            if not self._readable(TICK_SECONDS):
                continue
            try:
                self._note(server_decoder.decode(receive(self._connection)))
            except ConnectionClosed:
                return None
        return worker.exited

    def forget(self, worker: Worker) -> None:
        """Drop a worker that is gone."""
        self._workers.pop(worker.worker_id, None)

    def _wait(self, *kinds: type, timeout: float, doing: str) -> Any:
        started = time.monotonic()
        while True:
            if self._readable(TICK_SECONDS):
                try:
                    message = server_decoder.decode(receive(self._connection))
                except ConnectionClosed:
                    raise self._died() from None
                if isinstance(message, kinds):
                    return message
                self._note(message)
            waited = time.monotonic() - started
            if waited > timeout:
                raise MeasuringError(f"{doing} took longer than {timeout:.0f} s; raise [measure] load_timeout")
            if waited > 2:
                self._say(f"{doing} ({waited:.0f} s)")

    def _note(self, message: object) -> None:
        if isinstance(message, Exited) and message.worker_id in self._workers:
            self._workers[message.worker_id].exited = message

    def _readable(self, seconds: float) -> bool:
        return bool(select.select([self._connection], [], [], seconds)[0])

    def _died(self) -> MeasuringError:
        self._kill()
        return MeasuringError(f"the fork server ended unexpectedly; its log says:\n{log_tail(self._log) or '(nothing)'}")

    def _kill(self) -> None:
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self._process.wait()


class Worker:
    """One worker process. Ask it with ``ask``; ``close`` ends it and everything it started."""

    def __init__(self, server: ForkServer, connection: socket.socket, *, worker_id: int, log: Path, say: Say) -> None:
        self.worker_id = worker_id
        self.log = log
        self.pid = 0
        self.exited: Optional[Exited] = None
        self._server = server
        self._connection = connection
        self._say = say

    def ask(self, request: msgspec.Struct, reply: type[ReplyType], *, timeout: float, doing: str) -> ReplyType:
        """Send a request and return its reply.

        While it waits it says what it is waiting for. Raises WorkerError when the workload raises, the worker dies, or
        ``timeout`` seconds pass (the worker is then killed).
        """
        try:
            send(self._connection, request)
            answer = self._await_reply(timeout, doing)
        except ConnectionClosed:
            raise WorkerError(self._how_it_ended(), alive=False) from None
        if isinstance(answer, Failed):
            raise WorkerError(msgspec.structs.replace(answer.error, log_tail=log_tail(self.log)), alive=True)
        if not isinstance(answer, reply):
            self.close()
            detail = ErrorDetail(kind="protocol", message=f"the worker answered {type(answer).__name__} to {doing}")
            raise WorkerError(detail, alive=False)
        return answer

    def close(self) -> None:
        """End the worker and its process group."""
        self._connection.close()
        if self.pid and self._server.exit_of(self, timeout=0.5) is None:
            self._kill()
            self._server.exit_of(self, timeout=EXIT_SECONDS)
        self._server.forget(self)

    def _await_reply(self, timeout: float, doing: str) -> msgspec.Struct:
        started = time.monotonic()
        what = doing
        while True:
            if select.select([self._connection], [], [], TICK_SECONDS)[0]:
                try:
                    message = reply_decoder.decode(receive(self._connection))
                except msgspec.DecodeError as error:
                    raise self._speaks_nonsense(error) from error
                if not isinstance(message, Progress):
                    return message
                what = f"{doing}: {message.text}"
                self._say(what)
            waited = time.monotonic() - started
            if waited > timeout:
                raise self._timed_out(what, timeout)
            if waited > 1:
                self._say(f"{what} ({waited:.0f} s)")

    def _timed_out(self, what: str, timeout: float) -> WorkerError:
        stack = _kernel_state(self.pid)
        self._kill()
        detail = ErrorDetail(
            kind="timeout",
            message=f"{what} took longer than {timeout:.0f} s and was killed{stack}; "
            "raise [measure] load_timeout or step_timeout if it needs longer",
            log_tail=log_tail(self.log),
        )
        return WorkerError(detail, alive=False)

    def _speaks_nonsense(self, error: Exception) -> WorkerError:
        self._kill()
        return WorkerError(ErrorDetail(kind="protocol", message=f"the worker sent no message of ours: {error}"), alive=False)

    def _how_it_ended(self) -> ErrorDetail:
        exited = self._server.exit_of(self, timeout=EXIT_SECONDS)
        if exited is None:
            self._kill()
            return ErrorDetail(kind="protocol", message="the worker closed its connection", log_tail=log_tail(self.log))
        if exited.exit_code < 0:
            name = signal.Signals(-exited.exit_code).name
            hint = "; the kernel's out-of-memory killer ends processes this way" if name == "SIGKILL" else ""
            return ErrorDetail(
                kind="signal", message=f"the worker was killed by {name}{hint}", signal=name, log_tail=log_tail(self.log)
            )
        return ErrorDetail(
            kind="exit", message=f"the worker exited with code {exited.exit_code}", log_tail=log_tail(self.log)
        )

    def _kill(self) -> None:
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def log_tail(path: Path) -> Optional[str]:
    """Return the end of a worker's log, None when it printed nothing."""
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
            return log.read().decode(errors="replace").strip() or None
    except OSError:
        return None


def _kernel_state(pid: int) -> str:
    """Return what the kernel says a stuck process is doing, e.g. `` (state S, sleeping)``."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("State:"):
                return f" (state {' '.join(line.split()[1:])})"
    except OSError:
        pass
    return ""

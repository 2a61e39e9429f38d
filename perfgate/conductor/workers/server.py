"""The conductor's handle on the fork server: start it, take workers from it, learn how they ended."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any

from perfgate.conductor.workers.logs import log_tail
from perfgate.conductor.workers.worker import Say, Worker, WorkerError, signal_name
from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError
from perfgate.protocol import (
    ConnectionClosed,
    Exited,
    ForkFailed,
    ForkRequest,
    Inbox,
    ServerFailed,
    send_with_descriptor,
    server_decoder,
)
from perfgate.system.interrupts import safe_point

TICK_SECONDS = 0.2
EXIT_SECONDS = 5.0
FORK_SECONDS = 30.0


class ForkServer:
    """A running fork server and its workers. ``close`` ends all of them.

    ``python`` is the interpreter it runs in, ``folder`` a fresh one that the server alone works in.
    """

    def __init__(
        self, python: Path, *, environment: dict[str, str], preload: list[str], folder: Path, say: Say
    ) -> None:
        self._python = python
        self._say = say
        self._folder = folder
        self._workers: dict[int, Worker] = {}
        self._next_id = 0
        self._log = folder / "server.log"
        ours, theirs = socket.socketpair()
        self._connection = ours
        self._inbox = Inbox(ours)
        with self._log.open("wb") as log:
            # A session of its own, so that ctrl-C in the terminal reaches the conductor alone, which then cleans up.
            self._process = subprocess.Popen(
                [str(python), "-m", "perfgate.measuring.worker", str(theirs.fileno()), *preload],
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        self._ready = False

    @property
    def running(self) -> bool:
        """Whether workers can be forked from it."""
        return self._process.poll() is None

    def close(self) -> None:
        """End every worker, then the server itself."""
        for worker in list(self._workers.values()):
            worker.close()
        self._connection.close()
        try:
            self._process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()

    def wait_ready(self, *, timeout: float) -> None:
        """Wait until the preloaded modules are imported. Raises MeasuringError with the traceback when one fails."""
        self._note_start(self._wait(timeout=timeout, doing="importing the preloaded modules", worker_id=None))

    def is_ready(self) -> bool:
        """Return whether the preloaded modules are imported, without waiting. Raises MeasuringError when one fails."""
        if not self._ready:
            try:
                received = self._inbox.poll(0)
            except ConnectionClosed:
                raise WorkerError(self.how_it_ended(), alive=False) from None
            if received is not None:
                self._note_start(server_decoder.decode(received))
        return self._ready

    def _note_start(self, message: Any) -> None:
        if isinstance(message, ServerFailed):
            raise MeasuringError(
                f"the worker's interpreter {self._python} cannot import what [measure] preload asks for: "
                f"{message.error.message}\n{message.error.traceback}"
            )
        self._ready = True

    def fork(self, *, cpus: list[int], layout_seed: int, home: Path, log: Path, memory_limit: int | None) -> Worker:
        """Fork a worker pinned to ``cpus``, with its home and current folder in ``home``; what it prints goes to ``log``.

        Raises WorkerError when the kernel refuses, or the server is gone.
        """
        self._next_id += 1
        ours, theirs = socket.socketpair()
        stack = self._folder / f"stack-{self._next_id}"
        request = ForkRequest(
            worker_id=self._next_id,
            layout_seed=layout_seed,
            cpus=cpus,
            log_path=str(log),
            stack_path=str(stack),
            home=str(home),
            memory_limit=memory_limit,
        )
        try:
            send_with_descriptor(self._connection, request, theirs.fileno())
        except ConnectionClosed:
            ours.close()
            raise WorkerError(self.how_it_ended(), alive=False) from None
        finally:
            theirs.close()
        worker = Worker(self, ours, worker_id=self._next_id, log=log, stack=stack, say=self._say)
        self._workers[self._next_id] = worker
        message = self._wait(timeout=FORK_SECONDS, doing="forking a worker", worker_id=self._next_id)
        if isinstance(message, ForkFailed):
            worker.close()
            raise WorkerError(message.error, alive=False)
        worker.pid = message.pid
        return worker

    def exit_of(self, worker: Worker, *, timeout: float) -> Exited | None:
        """Return how a worker ended, None when it has not within ``timeout`` or nobody can tell any more."""
        deadline = time.monotonic() + timeout
        while worker.exited is None and (remaining := deadline - time.monotonic()) > 0:
            try:
                message = self._inbox.poll(min(remaining, TICK_SECONDS))
            except ConnectionClosed:
                return None
            if message is not None:
                self._note(server_decoder.decode(message))
        return worker.exited

    def forget(self, worker: Worker) -> None:
        """Drop a worker that is gone."""
        self._workers.pop(worker.worker_id, None)

    def how_it_ended(self) -> ErrorDetail:
        """Return what is known of a server that is gone, and make sure that it is."""
        self._kill()
        code = self._process.returncode
        how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
        return ErrorDetail(
            kind="signal" if code < 0 else "exit",
            message=f"the fork server {how}, and its workers with it",
            signal=signal_name(-code) if code < 0 else None,
            log_tail=log_tail(self._log),
        )

    def _wait(self, *, timeout: float, doing: str, worker_id: int | None) -> Any:
        """Return the answer the server owes us: that it is ready, or what became of a fork."""
        started = time.monotonic()
        while True:
            try:
                received = self._inbox.poll(TICK_SECONDS)
            except ConnectionClosed:
                raise WorkerError(self.how_it_ended(), alive=False) from None
            safe_point()
            if received is not None:
                message = server_decoder.decode(received)
                if not isinstance(message, Exited) and getattr(message, "worker_id", None) == worker_id:
                    return message
                self._note(message)
            waited = time.monotonic() - started
            if waited > timeout:
                raise MeasuringError(f"{doing} took longer than {timeout:.0f} s; raise [measure] load_timeout")
            if waited > 1:
                self._say(f"{doing} ({waited:.0f} s)")

    def _note(self, message: object) -> None:
        if isinstance(message, Exited) and message.worker_id in self._workers:
            self._workers[message.worker_id].exited = message

    def _kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

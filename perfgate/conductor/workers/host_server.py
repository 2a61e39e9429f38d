"""A fork server that another one forked, in which a workload was built on the host: its workers only copy the model."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from perfgate.conductor.workers.worker import (
    EXIT_SECONDS,
    Say,
    Worker,
    WorkerError,
    WorkerSource,
)
from perfgate.document.run import ErrorDetail
from perfgate.protocol import ServerFailed, server_decoder
from perfgate.system.interrupts import safe_point


class HostServer(WorkerSource):
    """The server in the process of ``worker``, which builds its workload in the background.

    ``error`` is why it has no model, once that is known. It is closed with the worker.
    """

    def __init__(self, worker: Worker, *, folder: Path, say: Say) -> None:
        super().__init__(
            _ForkedProcess(worker),
            worker.connection,
            worker.inbox,
            folder=folder,
            log=worker.log,
            say=say,
        )
        self._host = worker
        self._ready = False
        self.error: ErrorDetail | None = None

    def close(self) -> None:
        if not self._ready:
            # User code builds, and would not notice that the connection ends.
            self._kill()
        super().close()
        self._host.close()

    def is_built(self) -> bool:
        """Whether the model is there, without waiting."""
        return self._note(0.0)

    def wait_built(self, *, timeout: float) -> bool:
        """Wait until the model is there; False if it cannot be built, or takes too long."""
        deadline = time.monotonic() + timeout
        while (
            self.error is None and not self._note(0.1) and time.monotonic() < deadline
        ):
            safe_point()
        return self._ready

    def _note(self, seconds: float) -> bool:
        if self._ready or self.error is not None:
            return self._ready
        try:
            received = self._poll(seconds)
        except WorkerError as error:
            self.error = error.detail
            return False
        if received is None:
            return False
        message = server_decoder.decode(received)
        if isinstance(message, ServerFailed):
            self.error = message.error
        self._ready = self.error is None
        return self._ready


class _ForkedProcess:
    """The part of ``subprocess.Popen`` that a server needs, of a process that another server forked."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    @property
    def pid(self) -> int:
        return self._worker.pid

    @property
    def returncode(self) -> int:
        exited = self._worker.exited
        return 1 if exited is None else exited.exit_code

    def poll(self) -> int | None:
        return None if self._worker.is_running else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        seconds = EXIT_SECONDS if timeout is None else timeout
        if not self._worker.has_ended(timeout=seconds):
            raise subprocess.TimeoutExpired("fork server", seconds)
        return self.returncode

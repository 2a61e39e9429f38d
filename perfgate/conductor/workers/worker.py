"""The conductor's handle on one worker: ask it, limit it, end it, and say how it ended."""

from __future__ import annotations

import os
import re
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from perfgate.conductor.workers.logs import bound_log, log_tail, one_line, read_log
from perfgate.document.run import ErrorDetail
from perfgate.errors import MeasuringError
from perfgate.protocol import (
    STACK_SIGNAL,
    ConnectionClosed,
    Exited,
    Failed,
    Inbox,
    Progress,
    ProtocolError,
    reply_decoder,
    send,
)
from perfgate.system.interrupts import safe_point

TICK_SECONDS = 0.2
LEAVE_SECONDS = 0.5
EXIT_SECONDS = 5.0
STACK_SECONDS = 1.0
MAX_STACK = 20_000

ReplyType = TypeVar("ReplyType", bound=msgspec.Struct)
Say = Callable[[str], None]


class WorkerError(MeasuringError):
    """A worker died or its workload raised; ``detail`` says how. ``alive`` is whether it can still be asked."""

    def __init__(self, detail: ErrorDetail, *, alive: bool) -> None:
        super().__init__(detail.message)
        self.detail = detail
        self.alive = alive


class Keeper(Protocol):
    """Who forked the worker and hears how it ends."""

    @property
    def running(self) -> bool:
        """Whether it is still there."""

    def exit_of(self, worker: Worker, *, timeout: float) -> Exited | None:
        """Return how a worker ended, None when it has not within ``timeout``."""

    def forget(self, worker: Worker) -> None:
        """Drop a worker that is gone."""

    def how_it_ended(self) -> ErrorDetail:
        """Return how the keeper itself ended."""


class Worker:
    """One worker process. Ask it with ``ask``; ``close`` ends it and everything it started."""

    def __init__(
        self, keeper: Keeper, connection: socket.socket, *, worker_id: int, log: Path, stack: Path, say: Say
    ) -> None:
        self.worker_id = worker_id
        self.log = log
        self.pid = 0
        self.exited: Exited | None = None
        self._keeper = keeper
        self._connection = connection
        self._inbox = Inbox(connection)
        self._stack = stack
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
        except (ProtocolError, msgspec.DecodeError) as error:
            raise self._speaks_nonsense(str(error)) from error
        if isinstance(answer, Failed):
            raise WorkerError(msgspec.structs.replace(answer.error, log_tail=log_tail(self.log)), alive=True)
        if not isinstance(answer, reply):
            raise self._speaks_nonsense(f"a {type(answer).__name__} is no answer to {doing}")
        return answer

    def close(self) -> None:
        """End the worker and everything it started."""
        self._connection.close()
        if self.pid and self._keeper.exit_of(self, timeout=LEAVE_SECONDS) is None:
            self._kill()
            self._keeper.exit_of(self, timeout=EXIT_SECONDS)
        bound_log(self.log)
        self._keeper.forget(self)

    def _await_reply(self, timeout: float, doing: str) -> msgspec.Struct:
        started = time.monotonic()
        what = doing
        while True:
            received = self._inbox.poll(TICK_SECONDS)
            safe_point()
            if received is not None:
                message: msgspec.Struct = reply_decoder.decode(received)
                if not isinstance(message, Progress):
                    return message
                what = f"{doing}: {one_line(message.text)}"
                self._say(what)
            waited = time.monotonic() - started
            if waited > timeout:
                raise self._timed_out(what, timeout)
            if waited > 1:
                self._say(f"{what} ({waited:.0f} s)")
                bound_log(self.log)

    def _timed_out(self, what: str, timeout: float) -> WorkerError:
        self._ask_for_stack()
        state = _kernel_state(self.pid)
        self._kill()
        detail = ErrorDetail(
            kind="timeout",
            message=f"{what} took longer than {timeout:g} s and was killed{state}; "
            "raise [measure] load_timeout or step_timeout if it needs longer",
            traceback=self._python_stack(),
            log_tail=log_tail(self.log),
        )
        return WorkerError(detail, alive=False)

    def _speaks_nonsense(self, what: str) -> WorkerError:
        self._kill()
        message = f"the workload wrote into the worker's own socket, or the two speak different versions: {what}"
        return WorkerError(
            ErrorDetail(kind="protocol", message=message[:500], log_tail=log_tail(self.log)), alive=False
        )

    def _how_it_ended(self) -> ErrorDetail:
        exited = self._keeper.exit_of(self, timeout=EXIT_SECONDS)
        if exited is None and not self._keeper.running:
            return self._keeper.how_it_ended()
        tail = log_tail(self.log)
        if exited is None:
            self._kill()
            message = "the workload closed the worker's own socket and went on; it was killed"
            return ErrorDetail(kind="protocol", message=message, log_tail=tail)
        if exited.exit_code < 0:
            return self._killed_by(signal_name(-exited.exit_code), tail)
        hint = (
            "; does the workload call os._exit, or close files it did not open?" if exited.exit_code in (0, 1) else ""
        )
        return ErrorDetail(
            kind="exit",
            message=f"the worker exited with code {exited.exit_code} without an answer{hint}",
            traceback=self._python_stack(),
            log_tail=tail,
        )

    def _killed_by(self, name: str, tail: str | None) -> ErrorDetail:
        hint = "; the kernel's out-of-memory killer ends processes this way" if name == "SIGKILL" else ""
        return ErrorDetail(
            kind="signal",
            message=f"the worker was killed by {name}{hint}",
            signal=name,
            traceback=self._python_stack(),
            log_tail=tail,
        )

    def _ask_for_stack(self) -> None:
        """Have a stuck worker write its Python stack; faulthandler does so even while C code runs."""
        try:
            os.kill(self.pid, STACK_SIGNAL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + STACK_SECONDS
        while self._python_stack() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def _python_stack(self) -> str | None:
        stack = read_log(self._stack).decode(errors="replace")
        # faulthandler ends with a long list of every extension module that is loaded.
        return innermost_last(stack.partition("\nExtension modules:")[0][:MAX_STACK]) or None

    def _kill(self) -> None:
        if not self.pid:  # to killpg, 0 is our own group
            return
        for kill in (os.killpg, os.kill):
            try:
                kill(self.pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                continue


def innermost_last(stack: str) -> str:
    """Return what faulthandler wrote in the order of a traceback, so that who shows its end shows where the code was.

    faulthandler writes the innermost call first, and the current thread last or in the middle (docs.python.org, faulthandler).
    """
    reason, *threads = re.split(r"^(?=(?:Current thread|Thread) 0x)", stack, flags=re.MULTILINE)
    threads.sort(key=lambda thread: thread.startswith("Current"))
    return "\n\n".join(text for text in (reason.strip(), *map(_turned, threads)) if text)


def _turned(thread: str) -> str:
    title, *calls = thread.strip().splitlines()
    return "\n".join([title.replace("most recent call first", "most recent call last"), *reversed(calls)])


def signal_name(number: int) -> str:
    """Return e.g. ``SIGKILL``; real-time signals have no name of their own."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _kernel_state(pid: int) -> str:
    """Return what the kernel says a stuck process is doing, e.g. `` (state S, sleeping)``."""
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("State:"):
                return f" (state {' '.join(line.split()[1:])})"
    except OSError:
        pass
    return ""

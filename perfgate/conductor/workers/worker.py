"""The conductor's handles on the fork server and its workers: start, ask, limit and end
them, and report how they ended.
"""

from __future__ import annotations

import json
import math
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import msgspec

from perfgate.conductor.failure import TurnError
from perfgate.conductor.workers.interpreters import our_process, process_in
from perfgate.conductor.workers.parking import Parking
from perfgate.document.message import Message, as_message, english
from perfgate.document.run import TIMED_OUT, ErrorDetail, ErrorKind
from perfgate.errors import MeasuringError
from perfgate.locale import Activity, shown
from perfgate.protocol import (
    STACK_SIGNAL,
    AdoptRequest,
    ConnectionClosed,
    Exited,
    Experimenting,
    Failed,
    Forked,
    ForkFailed,
    ForkRequest,
    Inbox,
    LoadRequest,
    ProgressReply,
    ProtocolError,
    Resumed,
    ServerFailed,
    Spawned,
    SpawnRequest,
    reply_decoder,
    send,
    server_decoder,
)
from perfgate.system.interrupts import safe_point
from perfgate.system.logs import bound_log, cut_log, log_tail, one_line, read_log
from perfgate.system.processes import is_stopped, signal_name
from perfgate.system.walls import Room

TICK_SECONDS = 0.2
FORK_SECONDS = 30.0
LEAVE_SECONDS = 0.5
EXIT_SECONDS = 5.0
STACK_SECONDS = 1.0
# A process that is stopped for longer, while it should answer, is not waited for.
STOPPED_SECONDS = 10.0
MAX_STACK = 20_000

ReplyType = TypeVar("ReplyType", bound=msgspec.Struct)
Say = Callable[[str], None]


class WorkerError(TurnError):
    """A worker died or its workload raised.

    ``alive`` is whether it can still be asked.
    """

    def __init__(self, detail: ErrorDetail, *, alive: bool) -> None:
        super().__init__(detail)
        self.alive = alive


@dataclass(eq=False)
class WorkerSource:
    """A process that forks workers, at the other end of ``connection``; ``folder`` is
    its own. ``close`` ends all of them.
    """

    process: subprocess.Popen[bytes] | ForkedProcess
    connection: socket.socket
    inbox: Inbox
    folder: Path
    log: Path
    say: Say
    _workers: dict[int, Worker] = field(default_factory=dict)
    _next_id: int = 0

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    @property
    def lost(self) -> ErrorDetail | None:
        """How it ended, if we did not end it: asked before it is closed."""
        return None if self.running else self.end_detail()

    def close(self) -> None:
        """End every worker, then the server itself."""
        # A warm one is the child of the worker that it gave, which is the younger by
        # its number.
        for worker in reversed(self._workers.copy().values()):
            worker.close()
        self.connection.close()
        try:
            self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self._kill()

    def fork(
        self,
        *,
        cpus: list[int],
        layout_seed: int,
        home: Path,
        log: Path,
        memory_limit: int | None,
        room: Room | None = None,
        variables: Mapping[str, str] = MappingProxyType({}),
        looks_at_itself: bool = True,
        root: Path | None = None,
        builds: LoadRequest | None = None,
    ) -> Worker:
        """Fork a worker pinned to ``cpus``, with its home in ``home``, its output in
        ``log`` and walls around its ``room``.

        Raises WorkerError when the kernel refuses, or the server is gone.
        """
        worker, theirs = self._new_worker(log, home)
        request = ForkRequest(
            worker_id=worker.worker_id,
            layout_seed=layout_seed,
            cpus=cpus,
            log_path=str(log),
            stack_path=str(worker.stack),
            home=str(home),
            root=None if root is None else str(root),
            memory_limit=memory_limit,
            room=room,
            variables=dict(variables),
            looks_at_itself=looks_at_itself,
            builds=builds,
        )
        with theirs:
            self._await_worker(worker, request, theirs.fileno())
        return worker

    def spawn(self, warm: Worker, *, layout_seed: int) -> Worker:
        """Fork a worker from one of ours that is ``forkable``: as loaded and as warm,
        with the same home, CPUs and log.

        The new worker is the existing process, and the warm one a child of it: so the
        parent of the measuring process is the server, which never runs code of a
        checkout, and its report of a worker's end is independent of both sides. A warm
        worker gives one at a time. Raises WorkerError when the kernel refuses, or
        either is gone.
        """
        worker, theirs = self._new_worker(warm.log, warm.home)
        request = SpawnRequest(layout_seed=layout_seed, stack_path=str(worker.stack))
        try:
            with theirs:
                spawned = warm.ask(
                    request,
                    Spawned,
                    timeout=FORK_SECONDS,
                    doing=Activity("forking a worker"),
                    descriptor=theirs.fileno(),
                )
        except WorkerError:
            worker.close()
            raise
        self._await_worker(
            worker,
            AdoptRequest(
                worker_id=worker.worker_id, warm_id=warm.worker_id, pid=spawned.pid
            ),
        )
        warm.pid = spawned.pid
        return worker

    def _new_worker(self, log: Path, home: Path) -> tuple[Worker, socket.socket]:
        """The handle on a worker that is yet to come, and the socket that it will have."""
        self._next_id += 1
        ours, theirs = socket.socketpair()
        # Next to the home, in the room of the worker, which writes it from within its
        # walls.
        stack = home.parent / f"stack-{self.folder.name}-{self._next_id}"
        worker = Worker(self, ours, self._next_id, log, home, stack, self.say)
        self._workers[self._next_id] = worker
        return worker, theirs

    def _await_worker(
        self, worker: Worker, request: msgspec.Struct, descriptor: int | None = None
    ) -> None:
        """Ask the server for a worker and wait until it has a process."""
        try:
            send(self.connection, request, descriptor)
        except ConnectionClosed:
            worker.close()
            raise WorkerError(self.end_detail(), alive=False) from None
        started = time.monotonic()
        while True:
            received = self._poll(TICK_SECONDS)
            safe_point()
            if received is not None:
                message = server_decoder.decode(received)
                if isinstance(message, ForkFailed):
                    worker.close()
                    raise WorkerError(message.error, alive=False)
                if isinstance(message, Forked):
                    worker.pid = message.pid
                    return
                self._note_exit(message)
            waited = time.monotonic() - started
            if waited > FORK_SECONDS:
                raise self._silent()
            if waited > 1:
                doing = Activity("forking a worker").shown
                self.say(f"{doing} ({waited:.0f} s)")

    def _silent(self) -> WorkerError:
        """Kill a server that does not answer: the next worker gets a new one."""
        state = _kernel_state(self.process.pid)
        self._kill()
        message = Message(
            "worker.server-silent", {"seconds": FORK_SECONDS, "state": state}
        )
        detail = ErrorDetail(
            kind="timeout", message=message, log_tail=log_tail(self.log)
        )
        return WorkerError(detail, alive=False)

    def exit_of(self, worker: Worker, *, timeout: float) -> Exited | None:
        """How a worker ended, None if it has not within ``timeout`` or that is unknown."""
        deadline = time.monotonic() + timeout
        while worker.exited is None and (remaining := deadline - time.monotonic()) > 0:
            try:
                message = self.inbox.poll(min(remaining, TICK_SECONDS))
            except ConnectionClosed:
                return None
            if message is not None:
                self._note_exit(server_decoder.decode(message))
        return worker.exited

    def note_messages(self) -> None:
        """Take note of the server's messages about its workers until now."""
        with suppress(ConnectionClosed):
            while (message := self.inbox.poll(0)) is not None:
                self._note_exit(server_decoder.decode(message))

    def forget(self, worker: Worker) -> None:
        self._workers.pop(worker.worker_id, None)

    def end_detail(self) -> ErrorDetail:
        """How a server ended that is gone; makes sure that it is."""
        self._kill()
        code, tail = self.process.returncode, log_tail(self.log)
        if code < 0:
            name = signal_name(-code)
            message = Message("worker.server-killed", {"signal": name})
            return ErrorDetail(
                kind="signal", message=message, signal=name, log_tail=tail
            )
        return ErrorDetail(
            kind="exit",
            message=Message("worker.server-exited", {"code": code}),
            log_tail=tail,
        )

    def _poll(self, seconds: float) -> bytes | None:
        try:
            return self.inbox.poll(seconds)
        except ConnectionClosed:
            raise WorkerError(self.end_detail(), alive=False) from None

    def _note_exit(self, message: object) -> None:
        if isinstance(message, Resumed) and message.worker_id in self._workers:
            self._workers[message.worker_id].resumed += 1
        if isinstance(message, Exited) and message.worker_id in self._workers:
            self._workers[message.worker_id].exited = message

    def _kill(self) -> None:
        if self.process.poll() is None:
            # A process that another server forked may have ended without word of it
            # yet.
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


class ForkServer(WorkerSource):
    """A running fork server and its workers. ``close`` ends all of them.

    ``python`` is the interpreter it runs in, ``folder`` a fresh one that the server
    alone works in. It fails if a module of ``preload`` cannot be imported, and does
    without the ``parts`` that cannot. It lives in a ``room`` if its interpreter has
    packages of a side, which may run code at its start. With ``by_line`` the
    interpreter is a file that may first run a line of the user's own, such as the
    entry of a container, which walls would refuse.
    """

    def __init__(
        self,
        python: Path,
        *,
        environment: dict[str, str],
        preload: list[str],
        folder: Path,
        say: Say,
        parts: Sequence[str] = (),
        room: Room | None = None,
        by_line: bool = False,
    ) -> None:
        self._python = python
        ours, theirs = socket.socketpair()
        command = process_in(
            python,
            "perfgate.measuring.worker",
            str(theirs.fileno()),
            *preload,
            "--",
            *parts,
        )
        if room is not None:
            walls = ("perfgate.system.walls", json.dumps(room))
            if by_line:
                command = process_in(python, *walls, "", *command[1:])
            else:
                command = our_process(*walls, *command)
        log_file = folder / "server.log"
        with log_file.open("wb") as log:
            # A new session, so that ctrl-C in the terminal reaches the conductor alone,
            # which then cleans up.
            process = subprocess.Popen(
                command,
                env=environment,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        theirs.close()
        super().__init__(process, ours, Inbox(ours), folder, log_file, say)
        self._ready = False
        # The servers that were forked from it, each with a workload that it built on
        # the host, and its name.
        self.hosts: dict[object, WorkerSource] = {}

    def close(self) -> None:
        self.close_hosts()
        super().close()

    def close_hosts(self) -> None:
        while self.hosts:
            _, host = self.hosts.popitem()
            host.close()

    def wait_ready(self, *, timeout: float) -> None:
        """Wait until the preloaded modules are imported.

        Raises MeasuringError with the traceback when one fails.
        """
        started = time.monotonic()
        while not self.is_ready(TICK_SECONDS):
            safe_point()
            waited = time.monotonic() - started
            doing = Activity("importing the preloaded modules")
            if waited > timeout:
                raise MeasuringError(
                    "{doing} took longer than {timeout:.0f} s; raise [measure] load_timeout",
                    doing=doing,
                    timeout=timeout,
                )
            if waited > 1:
                self.say(f"{doing.shown} ({waited:.0f} s)")

    def is_ready(self, seconds: float = 0.0) -> bool:
        """Whether the preloaded modules are imported, or will be within some seconds.

        Raises MeasuringError when one fails.
        """
        if self._ready or (received := self._poll(seconds)) is None:
            return self._ready
        message = server_decoder.decode(received)
        if isinstance(message, ServerFailed):
            remedy: str = Activity("; install it there, or leave it out")
            if message.error.traceback:
                remedy = f"\n{message.error.traceback}"
            raise MeasuringError(
                "the worker's interpreter {python} cannot import a module of [measure] preload: {error}{remedy}",
                python=self._python,
                error=english(as_message(message.error.message)),
                remedy=remedy,
            )
        self._ready = True
        return True


@dataclass(eq=False)
class Worker:
    """One worker process.

    Ask it with ``ask``; ``close`` ends it and everything it started.

    ``experimented`` is whether a step tried anything in it besides the workload's own
    calls, and ``left_behind`` are the processes of the workload that its end found
    running.
    """

    server: WorkerSource
    connection: socket.socket
    worker_id: int
    log: Path
    home: Path
    stack: Path
    say: Say
    pid: int = 0
    exited: Exited | None = None
    experimented: bool = False
    # Seconds that a request may take, if it has no limit of its own.
    timeout: float = math.inf
    # Set if it shares a device that holds one worker only.
    parking: Parking | None = None
    # How often it went on after a signal had stopped it.
    resumed: int = 0

    def __post_init__(self) -> None:
        self.inbox = Inbox(self.connection)

    def ask(
        self,
        request: msgspec.Struct,
        reply: type[ReplyType],
        *,
        doing: str,
        timeout: float | None = None,
        sent: Callable[[], None] = lambda: None,
        descriptor: int | None = None,
    ) -> ReplyType:
        """Send a request, with a file descriptor if there is one, call ``sent``, and
        return the reply.

        While it waits it reports the reason. Raises WorkerError when the workload
        raises, the worker dies, or ``timeout`` seconds pass (the worker is then
        killed).
        """
        self.begin(request, descriptor=descriptor)
        sent()
        return self.finish(reply, timeout=timeout, doing=doing)

    def begin(self, request: msgspec.Struct, *, descriptor: int | None = None) -> None:
        """Send a request and return at once, so that several workers can be busy at the
        same time; ``finish`` has the reply.
        """
        if self.parking is not None:
            self.parking.admit(self, request)
        try:
            send(self.connection, request, descriptor)
        except ConnectionClosed:
            raise self._ended() from None

    def finish(
        self, reply: type[ReplyType], *, doing: str, timeout: float | None = None
    ) -> ReplyType:
        """Wait for the reply to the request that was begun; raises as ``ask`` does."""
        try:
            answer = self._await_reply(
                self.timeout if timeout is None else timeout, doing
            )
        except ConnectionClosed:
            raise self._ended() from None
        except (ProtocolError, msgspec.DecodeError) as error:
            raise self._breach(str(error)) from error
        if isinstance(answer, Failed):
            raise WorkerError(
                msgspec.structs.replace(answer.error, log_tail=log_tail(self.log)),
                alive=True,
            )
        if not isinstance(answer, reply):
            raise self._breach(f"a {type(answer).__name__} is no answer to {doing}")
        return answer

    def times_stopped(self) -> int:
        """How often a signal has stopped it until now."""
        self.server.note_messages()
        return self.resumed

    @property
    def is_running(self) -> bool:
        self.server.note_messages()
        return self.exited is None and self.server.running

    def has_ended(self, *, timeout: float) -> bool:
        """Wait for its end."""
        return self.server.exit_of(self, timeout=timeout) is not None

    def close(self) -> None:
        self.connection.close()
        if self.pid and self.server.exit_of(self, timeout=LEAVE_SECONDS) is None:
            self._kill()
            self.server.exit_of(self, timeout=EXIT_SECONDS)
        if self.parking is not None:
            self.parking.leave(self)
        cut_log(self.log)
        self.server.forget(self)

    @property
    def left_behind(self) -> list[str]:
        """What an experiment of perfgate started, a compiler for instance, may outlive
        it, and is not user code's.
        """
        if self.exited is None or self.experimented:
            return []
        return self.exited.left_behind

    @property
    def of_unknown(self) -> list[str]:
        """The processes that its end found running and that any worker may have
        started.
        """
        if self.exited is None:
            return []
        return self.exited.of_unknown

    def _await_reply(self, timeout: float, doing: str) -> msgspec.Struct:
        started = last_running = time.monotonic()
        status, status_shown = f"{doing}", shown(doing)
        while True:
            received = self.inbox.poll(TICK_SECONDS)
            safe_point()
            if received is not None:
                message: msgspec.Struct = reply_decoder.decode(received)
                if isinstance(message, Experimenting):
                    self.experimented = True
                    continue
                if not isinstance(message, ProgressReply):
                    return message
                activity = _activity_of(message)
                status = f"{doing}: {one_line(activity)}"
                status_shown = f"{shown(doing)}: {one_line(shown(activity))}"
                self.say(status_shown)
            waited = time.monotonic() - started
            if waited > timeout:
                raise self._timed_out(status, timeout)
            if waited > 1:
                self.say(f"{status_shown} ({waited:.0f} s)")
                bound_log(self.log)
            if not is_stopped(self.pid):
                last_running = time.monotonic()
            elif time.monotonic() - last_running > STOPPED_SECONDS:
                self._kill()
                stopped = Message(
                    "worker.stopped", {"doing": status, "seconds": STOPPED_SECONDS}
                )
                raise self._error("timeout", stopped)

    def _timed_out(self, status: str, timeout: float) -> WorkerError:
        self._write_stack()
        state = _kernel_state(self.pid)
        self._kill()
        message = Message(
            TIMED_OUT, {"doing": status, "seconds": timeout, "state": state}
        )
        return self._error("timeout", message, stack=True)

    def _breach(self, reason: str) -> WorkerError:
        """Kill a worker that breaks the protocol."""
        self._kill()
        return self._error("protocol", Message("worker.breach", {"why": reason[:400]}))

    def _ended(self) -> WorkerError:
        exited = self.server.exit_of(self, timeout=EXIT_SECONDS)
        if exited is None and not self.server.running:
            return WorkerError(self.server.end_detail(), alive=False)
        if exited is None:
            self._kill()
            return self._error("protocol", Message("worker.closed-socket"))
        if exited.exit_code < 0:
            name = signal_name(-exited.exit_code)
            code = "worker.out-of-memory" if name == "SIGKILL" else "worker.killed"
            return self._error(
                "signal", Message(code, {"signal": name}), stack=True, signal=name
            )
        code = "worker.exited-itself" if exited.exit_code in (0, 1) else "worker.exited"
        return self._error(
            "exit", Message(code, {"code": exited.exit_code}), stack=True
        )

    def _error(
        self,
        kind: ErrorKind,
        message: Message,
        *,
        stack: bool = False,
        signal: str | None = None,
    ) -> WorkerError:
        """The error of a worker that is no more, with the end of its log."""
        traceback = self._python_stack() if stack else None
        detail = ErrorDetail(
            kind=kind,
            message=message,
            traceback=traceback,
            signal=signal,
            log_tail=log_tail(self.log),
        )
        return WorkerError(detail, alive=False)

    def _write_stack(self) -> None:
        """Have a stuck worker write its Python stack; faulthandler does so even while C
        code runs.
        """
        try:
            os.kill(self.pid, STACK_SIGNAL)
        except ProcessLookupError:
            return
        deadline = time.monotonic() + STACK_SECONDS
        while self._python_stack() is None and time.monotonic() < deadline:
            time.sleep(0.05)

    def _python_stack(self) -> str | None:
        stack = read_log(self.stack).decode(errors="replace")
        # faulthandler ends with a long list of every extension module that is loaded.
        return (
            innermost_last(stack.partition("\nExtension modules:")[0][:MAX_STACK])
            or None
        )

    def _kill(self) -> None:
        if not self.pid:  # to killpg, 0 is our own group
            return
        for kill in (os.killpg, os.kill):
            with suppress(ProcessLookupError, PermissionError):
                kill(self.pid, signal.SIGKILL)


class ForkedProcess:
    """The part of ``subprocess.Popen`` that a server needs, of a process that another
    server forked.
    """

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


def innermost_last(stack: str) -> str:
    """faulthandler's output in the order of a traceback, so that its end is the current
    line.

    faulthandler writes the innermost call first, and the current thread last or in the
    middle (docs.python.org, faulthandler).
    """
    reason, *threads = re.split(
        r"^(?=(?:Current thread|Thread) 0x)", stack, flags=re.MULTILINE
    )
    threads.sort(key=lambda thread: thread.startswith("Current"))
    texts = [reason.strip()]
    for thread in threads:
        title, *calls = thread.strip().splitlines()
        title = title.replace("most recent call first", "most recent call last")
        texts.append("\n".join([title, *reversed(calls)]))
    return "\n\n".join(filter(None, texts))


def _activity_of(progress: ProgressReply) -> str:
    """What a worker does; other text, as code of a project may send, stays as it is."""
    try:
        return Activity(progress.text, **progress.values)
    except (LookupError, ValueError, AttributeError, TypeError):
        return progress.text


def _kernel_state(pid: int) -> str:
    """The kernel's state of a stuck process, e.g. `` (state S (sleeping))``."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("State:"):
                return f" (state {' '.join(line.split()[1:])})"
    return ""

"""The fork server: imports torch once, touches no device, and forks a worker for every request.

A forked worker starts in milliseconds instead of seconds, and base and head get the same memory layout (the same libraries
at the same addresses), which takes a third off the spread between processes.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import resource
import selectors
import signal
import socket
import sys
import time
import traceback
from pathlib import Path
from typing import NoReturn

from perfgate.document.run import ErrorDetail
from perfgate.measuring.worker.worker import Worker
from perfgate.protocol import (
    ConnectionClosed,
    Exited,
    Forked,
    ForkRequest,
    ServerFailed,
    ServerReady,
    fork_decoder,
    receive_with_descriptor,
    send,
)

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PR_SET_CHILD_SUBREAPER = 36


def serve(connection: socket.socket, *, preload: list[str]) -> NoReturn:
    """Serve fork requests until the conductor goes away; never returns."""
    _die_with_parent()
    # Orphans of a worker come to us, so that nothing it started can outlive it unseen.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    started = time.perf_counter()
    try:
        for module in preload:
            importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001 - a broken package may raise anything; the conductor reports it
        detail = ErrorDetail(
            kind="exception", message=f"{type(error).__name__}: {error}", traceback=traceback.format_exc()
        )
        send(connection, ServerFailed(error=detail))
        os._exit(1)
    send(connection, ServerReady(start_up=time.perf_counter() - started))
    _Server(connection).loop()
    os._exit(0)


class _Server:
    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.workers: dict[int, int] = {}
        self.wake_up, wake_write = os.pipe()
        for descriptor in (self.wake_up, wake_write):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)

    def loop(self) -> None:
        selector = selectors.DefaultSelector()
        selector.register(self.connection, selectors.EVENT_READ)
        selector.register(self.wake_up, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self.connection:
                        self._fork(*receive_with_descriptor(self.connection))
                    else:
                        os.read(self.wake_up, 4096)
                        self._reap()
        except ConnectionClosed:
            for pid in self.workers:
                _kill_group(pid)

    def _fork(self, payload: bytes, descriptor: int) -> None:
        request = fork_decoder.decode(payload)
        pid = os.fork()
        if pid == 0:
            self.connection.close()
            _become_worker(request, socket.socket(fileno=descriptor))
        os.close(descriptor)
        self.workers[pid] = request.worker_id
        send(self.connection, Forked(worker_id=request.worker_id, pid=pid))

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            worker_id = self.workers.pop(pid, None)
            if worker_id is not None:
                left_behind = self._kill_orphans(pid)
                code = os.waitstatus_to_exitcode(status)
                send(self.connection, Exited(worker_id=worker_id, exit_code=code, left_behind=left_behind))

    def _kill_orphans(self, dead_worker: int) -> int:
        """Kill what a worker left running: its process group, and what escaped from it and was handed to us."""
        orphans = [pid for pid in _children() if pid not in self.workers]
        _kill_group(dead_worker)
        for pid in orphans:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return len(orphans)


def _become_worker(request: ForkRequest, connection: socket.socket) -> NoReturn:
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    _die_with_parent()
    code = 1
    try:
        _redirect_output(request.log_path)
        os.chdir(request.cwd)
        os.sched_setaffinity(0, request.cpus)
        if request.memory_limit:
            resource.setrlimit(resource.RLIMIT_DATA, (request.memory_limit, request.memory_limit))
        # The pad moves every later allocation: the same on both sides of a pair, another from pair to pair, so that luck
        # with addresses averages out instead of favouring one side.
        pad = bytearray(16 * (request.layout_seed % 65536) + 16)
        Worker(connection, cpus=request.cpus).loop()
        del pad
        code = 0
    except ConnectionClosed:
        code = 0
    except BaseException:  # noqa: BLE001 - nothing may unwind into the server's stack after a fork
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect_output(log_path: str) -> None:
    log = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)


def _children() -> list[int]:
    try:
        return [int(pid) for pid in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()]
    except OSError:
        return []


def _kill_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def _die_with_parent() -> None:
    """Ask the kernel to kill this process when its parent dies, so that no crash leaves workers behind."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)

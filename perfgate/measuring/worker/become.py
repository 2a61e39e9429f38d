"""What a forked process does to become a worker: a session, limits and output of its own, then answer requests."""

from __future__ import annotations

import faulthandler
import os
import resource
import socket
import sys
import tempfile
import traceback
from typing import NoReturn

from perfgate.measuring.timing.hardware import HardwareCounters
from perfgate.measuring.worker.worker import Worker, describe_error
from perfgate.protocol import STACK_SIGNAL, ConnectionClosed, Failed, ForkRequest, send
from perfgate.system.processes import adopt_orphans, be_open, die_with_parent


def become_worker(request: ForkRequest, connection: socket.socket, *, parent: int) -> NoReturn:
    """Turn this forked process into a worker; it ends here and never unwinds into the server's stack."""
    code = 1
    try:
        code = _work(request, connection, parent)
        _flush()
    finally:
        os._exit(code)


def _work(request: ForkRequest, connection: socket.socket, parent: int) -> int:
    try:
        _set_up(request, parent)
    except BaseException as error:  # noqa: BLE001 - the conductor must learn why there is no worker
        send(connection, Failed(error=describe_error(error)))
        return 1
    # The pad moves every later allocation: the same on both sides of a pair, another from pair to pair, so that luck
    # with addresses averages out instead of favouring one side.
    pad = bytearray(16 * (request.layout_seed % 65536) + 16)
    try:
        Worker(connection, cpus=request.cpus, counters=HardwareCounters()).loop()
    except ConnectionClosed:
        return 0
    except BaseException:  # noqa: BLE001 - a request we cannot read: into the log
        traceback.print_exc()
    finally:
        del pad
    return 1


def _set_up(request: ForkRequest, parent: int) -> None:
    os.setsid()
    die_with_parent(parent)
    # The server is closed to others; the libraries of a device look at their own process in /proc.
    be_open()
    # Its orphans stay with it, so that after its end the server knows whose they were.
    adopt_orphans()
    log = os.open(request.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.close(null)
    # Every Python stack goes into a file of its own on a crash, and when the conductor asks for it.
    stack = os.open(request.stack_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    faulthandler.enable(file=stack)
    faulthandler.register(STACK_SIGNAL, file=stack)
    # A home of this side: what one side compiles must not lie ready for the other.
    os.chdir(request.home)
    os.environ.update(HOME=request.home, TMPDIR=request.home)
    tempfile.tempdir = None  # what an import has looked up is the server's
    os.sched_setaffinity(0, request.cpus)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash must not cost gigabytes of core file
    if request.memory_limit:
        # Private writable memory. Address space (RLIMIT_AS) would also count what CUDA and the like only reserve.
        resource.setrlimit(resource.RLIMIT_DATA, (request.memory_limit, request.memory_limit))


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):  # user code closed or replaced it
            continue

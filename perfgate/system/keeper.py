"""``python -m perfgate.system.keeper DESCRIPTOR CPUS PROGRAM…``: run a program that ends with whoever holds the other end.

It is the parent of the program and of every process below it whose own parent ends. When the program ends it writes one line
of JSON to the descriptor; when the other end is closed, also because its holder was killed, it kills all of them.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from contextlib import suppress

from perfgate.system.processes import adopt_orphans, kill_children

_NOT_STARTED = 127


def main(arguments: list[str]) -> None:
    with socket.socket(fileno=int(arguments[0])) as connection:
        connection.set_inheritable(False)
        adopt_orphans()
        # A child that ends wakes the wait below.
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        began = time.monotonic()
        program = _start({int(cpu) for cpu in arguments[1].split(",")}, arguments[2:])
        connection.sendall(json.dumps({"pid": program}).encode() + b"\n")
        _keep(connection, wake, program, began)
        kill_children(spare=())


def _start(cpus: set[int], command: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    os.sched_setaffinity(0, cpus)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        os.execvp(command[0], command)  # noqa: S606 - the project's own command
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_STARTED)


def _keep(connection: socket.socket, wake: int, program: int, began: float) -> None:
    """Wait until the program has ended or the other end is closed."""
    while True:
        ready, _, _ = select.select([connection.fileno(), wake], [], [])
        if connection.fileno() in ready:
            return
        os.read(wake, 4096)
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == program:
                    end = {
                        "code": os.waitstatus_to_exitcode(status),
                        "seconds": time.monotonic() - began,
                        "cpu": usage.ru_utime + usage.ru_stime,
                        "memory": usage.ru_maxrss * 1024,
                    }
                    with suppress(OSError):
                        connection.sendall(json.dumps(end).encode() + b"\n")
                    return


if __name__ == "__main__":
    main(sys.argv[1:])

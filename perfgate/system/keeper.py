"""``perfgate.system.keeper DESCRIPTOR CPUS FOLDER ROOM PROGRAM…``: run a program that
ends with the holder of the other end.

It is the parent of the program and of every process below it that loses its own parent,
so that the CPU time of daemons counts. When the program has ended it writes one line of
JSON to the descriptor; when the other end is closed, also because its holder was
killed, it kills all of them. The program runs within the walls of its room, which is
JSON. The keeper judges what the program takes, and imports none of its code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from perfgate.system.logs import bound_log, cut_log
from perfgate.system.processes import (
    adopt_orphans,
    be_closed,
    cpu_ns_below,
    kill_children,
    name_of,
    running_below,
    waited_for_ns,
    wants_cpu,
)
from perfgate.system.walls import Room, enter_room

_NOT_STARTED = 127
# How often the size of the log is looked at.
_TICK_SECONDS = 0.2
# The time that orphans may work on, and the consecutive polls without any CPU use that
# make them idle, which gives the helpers of a program (multiprocessing's resource
# tracker) half a second to see that it has ended.
_MOST_SECONDS = 10.0
_ROUND_SECONDS = 0.02
_IDLE_ROUNDS = 25


def main(arguments: list[str]) -> None:
    with socket.socket(fileno=int(arguments[0])) as connection:
        connection.set_inheritable(False)
        be_closed()
        adopt_orphans()
        # A child that ends wakes the wait below.
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        began = time.monotonic()
        log, log_begins = Path("/proc/self/fd/1").readlink(), os.fstat(1).st_size
        program = _start(
            {int(cpu) for cpu in arguments[1].split(",")},
            arguments[2],
            arguments[3],
            arguments[4:],
        )
        connection.sendall(json.dumps({"pid": program}).encode() + b"\n")
        if end := _end_of(
            connection, wake, program, began, lambda: bound_log(log, begins=log_begins)
        ):
            with suppress(OSError):
                connection.sendall(end)
        kill_children(spare=())
        if end is None:
            # The holder is gone, so it will not be cut later.
            cut_log(log, begins=log_begins)


def _start(cpus: set[int], folder: str, room: str, command: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    os.sched_setaffinity(0, cpus)
    os.chdir(folder)
    os.setpgid(0, 0)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        if room:
            enter_room(Room(*json.loads(room)))
        os.execvp(command[0], command)  # noqa: S606 - the project's own command
    except OSError as error:
        sys.stderr.write(f"{command[0]} cannot be started: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_STARTED)


def _end_of(
    connection: socket.socket,
    wake: int,
    program: int,
    began: float,
    bound: Callable[[], None],
) -> bytes | None:
    """Wait until the program has ended, with its log kept within bounds, and return the
    line that describes its end.

    None if the other end is closed before.
    """
    reaped = _Reaped(program)
    while reaped.code is None:
        ready, _, _ = select.select([connection.fileno(), wake], [], [], _TICK_SECONDS)
        bound()
        if connection.fileno() in ready:
            return None
        if wake in ready:
            os.read(wake, 4096)
        reaped.reap()
    seconds = time.monotonic() - began
    orphans = _wait_for_orphans(reaped)
    # CPU time of running processes and the children that they reaped; our own reaped
    # children are counted elsewhere.
    running = cpu_ns_below(os.getpid()) - waited_for_ns(os.getpid())
    end = {
        "code": reaped.code,
        "seconds": seconds,
        "cpu": reaped.cpu + running / 1e9,
        "memory": reaped.memory,
        "left": [name_of(pid) for pid in orphans],
    }
    return json.dumps(end).encode() + b"\n"


class _Reaped:
    """The CPU time of processes that ended, each with the children that it reaped: the
    program, and orphans that came to us.
    """

    def __init__(self, program: int) -> None:
        self._program = program
        self.code: int | None = None
        self.cpu = 0.0
        self.memory = 0

    def reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                self.cpu += usage.ru_utime + usage.ru_stime
                self.memory = max(self.memory, usage.ru_maxrss * 1024)
                if pid == self._program:
                    self.code = os.waitstatus_to_exitcode(status)


def _wait_for_orphans(reaped: _Reaped) -> list[int]:
    """Wait while processes that outlive the program end or work; return those left,
    idle or at work.

    A daemon's work for a run is part of it.
    """
    ends = time.monotonic() + _MOST_SECONDS
    idle = 0
    while True:
        reaped.reap()
        orphans = running_below(os.getpid())
        idle += 1
        if any(map(wants_cpu, orphans)):
            idle = 0
        if not orphans or idle > _IDLE_ROUNDS or time.monotonic() > ends:
            return orphans
        time.sleep(_ROUND_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1:])

"""The meeting point of the ranks of one side: a Unix socket on which
``perfgate.turn()`` asks for turns and reports them.
"""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from perfgate.system.folders import make_socket_folder
from perfgate.system.processes import stat_of
from perfgate.system.turns import MAX_LINE

_EXIT_SECONDS = 0.5
# A parent may reap it at any moment, and older kernels then forget its exit code.
_POLL_SECONDS = 0.0001
# Of Linux 6.5: a pidfd of the process at the other end of a socket.
_SO_PEERPIDFD = 77
# Of Linux 6.15: PIDFD_GET_INFO, PIDFD_INFO_EXIT, and struct pidfd_info as far as its
# exit code (include/uapi/linux/pidfd.h).
_GET_INFO = 0xC040FF0B
_EXIT_INFO = 1 << 3
_INFO = struct.Struct("=Q52xi")


class Peer:
    """The connection of one process.

    ``rank`` and ``pid`` are its own claims, known after its first line.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.rank = -1
        self.pid = 0
        self._connection = connection
        self._process: int | None = None
        with suppress(OSError):
            self._process = connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
        self._buffer = b""

    def fileno(self) -> int:
        return self._connection.fileno()

    def grant(self, steps: int, trace: Path | None) -> None:
        """Grant a number of steps, profiled into a file if one is named.

        An ended rank shows when it is read from.
        """
        with suppress(OSError):
            granted = {"steps": steps, "trace": None if trace is None else str(trace)}
            self._connection.sendall(msgspec.json.encode(granted) + b"\n")

    def read(self) -> bytes | None:
        """The complete line available now, empty if none is; None if the peer has
        ended, or its line has no end.
        """
        try:
            data = self._connection.recv(MAX_LINE)
        except OSError:
            return None
        self._buffer += data
        line, newline, rest = self._buffer.partition(b"\n")
        if newline:
            # It waits for an answer after every line, so there is never a second.
            self._buffer = rest
            return line
        return None if not data or len(self._buffer) > MAX_LINE else b""

    def hang_up(self) -> None:
        """End the connection; how the process ends can still be asked for."""
        self._connection.close()

    def close(self) -> None:
        self.hang_up()
        if self._process is not None:
            os.close(self._process)
            self._process = None

    def exit_code(self) -> int | None:
        """The exit code of a process that is ending, minus the signal that killed it;
        None if unknown.

        Its parent reaps it a moment later. Until then the code is the last field of
        /proc/PID/stat (proc_pid_stat(5)), and from then on the kernel tells it of a
        pidfd, since Linux 6.15.
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        while time.monotonic() < deadline:
            fields = stat_of(self.pid)
            if not fields:
                return self._exit_code_when_reaped()
            if fields[0] in ("Z", "X"):
                return os.waitstatus_to_exitcode(int(fields[-1]))
            time.sleep(_POLL_SECONDS)
        return None

    def _exit_code_when_reaped(self) -> int | None:
        if self._process is None:
            return None
        info = bytearray(_INFO.pack(_EXIT_INFO, 0))
        try:
            fcntl.ioctl(self._process, _GET_INFO, info)
        except OSError:
            return None
        known, status = _INFO.unpack(info)
        return os.waitstatus_to_exitcode(status) if known & _EXIT_INFO else None


class Rendezvous:
    """The socket of one side, in a separate folder below ``folder``; every process that
    connects is a peer.
    """

    def __init__(self, folder: str) -> None:
        self.folder = make_socket_folder("perfgate-ranks-", "turn", inside=folder)
        self.address = str(self.folder / "turn")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(socket.SOMAXCONN)
        self._peers: list[Peer] = []
        self._gone: list[Peer] = []

    def lines(self, seconds: float) -> Iterator[tuple[Peer, bytes | None]]:
        """Wait at most ``seconds``, and yield the lines that have come, each with its
        peer; None for a peer that has ended.
        """
        ready, _, _ = select.select(
            [self._listener.fileno(), *(peer.fileno() for peer in self._peers)],
            [],
            [],
            seconds,
        )
        for peer in [peer for peer in self._peers if peer.fileno() in ready]:
            line = peer.read()
            if line is None:
                self._peers.remove(peer)
                self._gone.append(peer)
                peer.hang_up()
            if line != b"":
                yield peer, line
        if self._listener.fileno() in ready:
            self._peers.append(Peer(self._listener.accept()[0]))

    def close(self) -> None:
        """End every connection: the processes behind them end themselves."""
        for peer in [*self._peers, *self._gone]:
            peer.close()
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

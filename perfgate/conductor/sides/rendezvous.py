"""The meeting point of the ranks of one side: a Unix socket on which ``perfgate.turn()`` asks for turns and reports them."""

from __future__ import annotations

import os
import select
import shutil
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from perfgate.system.socket_folder import make_socket_folder
from perfgate.system.turns import MAX_LINE

_EXIT_SECONDS = 0.5
# A parent may reap it at any moment, and its exit code is then lost.
_POLL_SECONDS = 0.0001


class Peer:
    """The connection of one process. ``rank`` and ``pid`` are its own claims, known after its first line."""

    def __init__(self, connection: socket.socket) -> None:
        self.rank = -1
        self.pid = 0
        self._connection = connection
        self._buffer = b""

    def fileno(self) -> int:
        return self._connection.fileno()

    def grant(self, steps: int, trace: Path | None = None) -> None:
        """Grant so many steps, profiled into a file if one is named. One that has ended is seen when it is read from."""
        with suppress(OSError):
            granted = {"steps": steps, "trace": None if trace is None else str(trace)}
            self._connection.sendall(msgspec.json.encode(granted) + b"\n")

    def read(self) -> bytes | None:
        """The complete line available now, empty if none is; None if the peer has ended, or its line has no end."""
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

    def close(self) -> None:
        self._connection.close()

    def exit_code(self) -> int | None:
        """The exit code of a process that is ending, minus the signal that killed it; None if unknown.

        Its parent reaps it a moment later; until then it is the last field of /proc/PID/stat (proc_pid_stat(5)).
        """
        deadline = time.monotonic() + _EXIT_SECONDS
        while time.monotonic() < deadline:
            try:
                fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return None
            if fields[0] in ("Z", "X"):
                return os.waitstatus_to_exitcode(int(fields[-1]))
            time.sleep(_POLL_SECONDS)
        return None


class Rendezvous:
    """The socket of one side, in a folder of its own below ``folder``; every process that connects is a peer."""

    def __init__(self, folder: str) -> None:
        self.folder = make_socket_folder("perfgate-ranks-", "turn", inside=folder)
        self.address = str(self.folder / "turn")
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(self.address)
        self._listener.listen(socket.SOMAXCONN)
        self._peers: list[Peer] = []

    def lines(self, seconds: float) -> Iterator[tuple[Peer, bytes | None]]:
        """Wait at most so long, and yield the lines that have come, each with its peer; None for a peer that has ended."""
        ready, _, _ = select.select(
            [self._listener.fileno(), *(peer.fileno() for peer in self._peers)], [], [], seconds
        )
        for peer in [peer for peer in self._peers if peer.fileno() in ready]:
            line = peer.read()
            if line is None:
                self._peers.remove(peer)
                peer.close()
            if line != b"":
                yield peer, line
        if self._listener.fileno() in ready:
            self._peers.append(Peer(self._listener.accept()[0]))

    def close(self) -> None:
        """End every connection: the processes behind them end themselves."""
        for peer in self._peers:
            peer.close()
        self._listener.close()
        shutil.rmtree(self.folder, ignore_errors=True)

"""Collect the executed lines that a trial reports, while it runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from perfgate.protocol import EXECUTED_LINE

# Empty, and so no report of a line.
_END = b""


@contextmanager
def collected_lines() -> Iterator[tuple[socket.socket, set[tuple[int, int]]]]:
    """Yield a socket for a worker, and the set of files and lines that it has reported
    once the context ends.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    lines = set()

    def collect() -> None:
        while report := ours.recv(EXECUTED_LINE.size):
            if len(report) == EXECUTED_LINE.size:
                lines.add(EXECUTED_LINE.unpack(report))

    collecting = threading.Thread(target=collect, name="executed lines", daemon=True)
    collecting.start()
    try:
        yield theirs, lines
    finally:
        theirs.send(_END)
        collecting.join()
        theirs.close()
        ours.close()

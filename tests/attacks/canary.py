"""A server that nobody should ever speak to: it counts who does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class Canary:
    """Listens on this machine; ``heard`` is the first bytes of every connection."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.heard: list[bytes] = []
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(2)
                self.heard.append(connection.recv(4096))

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


@contextmanager
def canary() -> Iterator[Canary]:
    """Run one until the end of the block."""
    bird = Canary()
    thread = threading.Thread(target=bird.serve)
    thread.start()
    try:
        yield bird
    finally:
        bird.close()
        thread.join()

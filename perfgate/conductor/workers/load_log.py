"""The files that processes of both sides load as modules, as the processes report them
before the code runs.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import NamedTuple

from perfgate.system.loads import LOADS_VARIABLE, loaded_modules
from perfgate.system.stamps import Stamp

_MOST_BYTES = 1 << 16
# Of one check; torch and everything that it imports are some 3,000. More are a flood.
_MOST_FILES = 200_000
_FLUSH_SECONDS = 10.0


class Loads(NamedTuple):
    """The full names of loaded modules, and their files, by the path that was reported,
    in the states when they were loaded.
    """

    modules: frozenset[str]
    states: Mapping[str, frozenset[Stamp]]


class LoadLog:
    """A socket for reports of ``perfgate.system.loads``, and a thread that reads them,
    until the end of the context.

    The modules of the process itself are among them: it judges what the sides measured.
    """

    def __init__(self) -> None:
        self.name = f"perfgate-{secrets.token_hex(8)}"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self._address)
        self._states: dict[str, set[Stamp]] = {}
        self._modules: set[str] = set()
        self._lock = threading.Lock()
        self._marks: dict[bytes, threading.Event] = {}
        self._end = secrets.token_bytes(16)
        self._thread = threading.Thread(target=self._read, name="load-log", daemon=True)
        for module, *files in loaded_modules():
            self._modules.add(module)
            for file in files:
                if isinstance(file, str):
                    # Before sealing, the state is meaningless: missing bytecode of ours
                    # is still to be written.
                    self._states[file] = set()
        self._thread.start()

    @property
    def _address(self) -> bytes:
        return b"\0" + self.name.encode()

    def __enter__(self) -> LoadLog:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._send(self._end)
        self._thread.join(_FLUSH_SECONDS)
        self._socket.close()

    def read(self) -> Loads | None:
        """Everything that was reported before the call; None if there are too many
        reports to read.
        """
        mark = secrets.token_bytes(16)
        is_read = self._marks[mark] = threading.Event()
        self._send(mark)
        if not is_read.wait(_FLUSH_SECONDS):
            return None
        with self._lock:
            if len(self._states) > _MOST_FILES:
                return None
            states = {path: frozenset(stamps) for path, stamps in self._states.items()}
            return Loads(frozenset(self._modules), states)

    def _send(self, message: bytes) -> None:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender,
            suppress(OSError),
        ):
            sender.sendto(message, self._address)

    def _read(self) -> None:
        while (message := self._socket.recv(_MOST_BYTES)) != self._end:
            if mark := self._marks.pop(message, None):
                mark.set()
                continue
            module, *fields = os.fsdecode(message).split("\0")
            with self._lock:
                self._modules.add(module)
                for path, state in zip(fields[::2], fields[1::2]):
                    # Any process may send here: anything but a report is dropped.
                    with suppress(ValueError):
                        stamp = tuple(map(int, state.split()))
                        if stamp and len(self._states) <= _MOST_FILES:
                            self._states.setdefault(path, set()).add(stamp)


def with_reports(environment: Mapping[str, str], log: LoadLog | None) -> dict[str, str]:
    """An environment in which processes report to a log, if there is one."""
    if log is None:
        return dict(environment)
    return {**environment, LOADS_VARIABLE: log.name}

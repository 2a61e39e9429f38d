"""The process that runs a project's own function that sends a request, next to the server of its side."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from shlex import quote

from perfgate.conductor.load.function import FunctionTarget
from perfgate.conductor.sides.side import SidePlace
from perfgate.system.folders import make_socket_folder
from perfgate.system.interrupts import safe_point

_POLL_SECONDS = 0.02
_SOCKET = "requests"


class RequestClient:
    """Runs ``FILE:NAME`` of the checkout on the CPUs of the load generator."""

    def __init__(self, reference: str, place: SidePlace) -> None:
        self._reference = reference
        self._folder = make_socket_folder("perfgate-client-", f"{_SOCKET}.new")
        self._program = place.run(
            f"exec python -m perfgate.measuring.request_client {quote(reference)} {quote(str(self._address))}",
            {},
            cpus=sorted(os.sched_getaffinity(0)),
            log=place.log.with_suffix(".client.log"),
        )

    @property
    def _address(self) -> Path:
        return self._folder / _SOCKET

    def target(
        self, url: str, *, ready_timeout: float, timeout: float
    ) -> FunctionTarget:
        """The target for requests to ``url``. Raises SideError if the function cannot be loaded in time."""
        deadline = time.monotonic() + ready_timeout
        while not self._address.exists():
            safe_point()
            if end := self._program.ended():
                raise self._program.failed(
                    "exit", "job.client-ended", client=self._reference, code=end.code
                )
            if time.monotonic() > deadline:
                raise self._program.failed(
                    "timeout",
                    "job.client-not-ready",
                    client=self._reference,
                    seconds=ready_timeout,
                )
            time.sleep(_POLL_SECONDS)
        return FunctionTarget(str(self._address), url, timeout)

    def stop(self) -> None:
        self._program.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

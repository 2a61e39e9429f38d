"""The plan of a worker that loads a workload: where it comes from, what it runs on, and what it does meanwhile."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.host_server import HostServer
from perfgate.config import WorkloadReference
from perfgate.protocol import Watched


class LineWatch(NamedTuple):
    """Makes a trial watch files for up to ``seconds`` of calls, and send the executed lines to ``reports``."""

    files: Watched
    reports: socket.socket
    seconds: float


@dataclass(frozen=True)
class WorkerPlan:
    """A worker that loads a workload.

    If it ``scatters``, the workload is loaded into memory with holes at random places, by the ``layout_seed``. ``room``
    replaces the room that the checkout's workers share. If it comes ``on_next``, it is forked from the server that replaces
    the present one at the next renewal, if there is one; ``host`` has the model already.
    """

    checkout: Checkout
    reference: WorkloadReference
    cpus: list[int]
    log_name: str
    layout_seed: int = 0
    scatters: bool = False
    on_next: bool = False
    load_timeout: float | None = None
    room: Path | None = None
    watch: LineWatch | None = None
    host: HostServer | None = None

    @property
    def takes_any(self) -> bool:
        """Whether a worker serves that was loaded ahead for this workload."""
        return not self.scatters and self.is_usual

    @property
    def is_usual(self) -> bool:
        return self.room is None and self.watch is None and self.host is None

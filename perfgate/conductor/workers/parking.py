"""Sides that do not fit on a device together: one has it, the other's weights wait in
the host's memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perfgate.conductor.failure import TurnError
from perfgate.locale import Activity
from perfgate.protocol import (
    CollectRequest,
    MoveRequest,
    Parked,
    ParkRequest,
    ProfileTimesRequest,
)

if TYPE_CHECKING:
    from perfgate.conductor.workers.worker import Worker

# What a worker does with its weights away.
_WITHOUT_DEVICE = (ParkRequest, CollectRequest, MoveRequest, ProfileTimesRequest)
_SWAP_SECONDS = 120.0


class Parking:
    """Gives the device to one worker at a time; every request of a worker goes through
    ``admit`` first.
    """

    def __init__(self) -> None:
        self._holder: Worker | None = None
        self._parked: set[int] = set()

    def admit(self, worker: Worker, request: msgspec.Struct) -> None:
        """Let a worker have the device if this request needs it.

        Raises WorkerError if its weights cannot be moved.
        """
        if worker is self._holder or isinstance(request, _WITHOUT_DEVICE):
            return
        if self._holder is not None:
            move_weights(self._holder, away=True)
            self._parked.add(self._holder.worker_id)
        self._holder = worker
        if worker.worker_id in self._parked:
            move_weights(worker, away=False)
            self._parked.discard(worker.worker_id)

    def leave(self, worker: Worker) -> None:
        """A worker has ended, and its memory is free."""
        self._parked.discard(worker.worker_id)
        if worker is self._holder:
            self._holder = None


def move_weights(worker: Worker, *, away: bool) -> None:
    """Let a worker move its weights off the device, or back.

    Raises WorkerError if they cannot be moved.
    """
    doing = Activity("moving the weights back")
    if away:
        doing = Activity("moving the weights of a side off the device")
    worker.ask(ParkRequest(away=away), Parked, timeout=_SWAP_SECONDS, doing=doing)


def can_move_weights(worker: Worker) -> bool:
    """Whether a worker can move its weights off the device and back; tried out."""
    try:
        move_weights(worker, away=True)
        move_weights(worker, away=False)
    except TurnError:
        return False
    return True

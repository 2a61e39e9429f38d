"""What an experiment changes inside the fork server and its workers; preloaded there,
so that the product has no such options.

``LAB_MOVE``: weights, inputs and pools move before every quad, as in the product;
without it they stay where they are. ``LAB_PAD``: ``shared`` or ``own`` also fills
Python's small-object pools by lot when a worker starts, by the layout seed of the pair
or by one of each worker. ``LAB_REBUILD``: every so many quads a worker builds its model
and inputs anew behind another pad. ``LAB_FREEZE``: the server freezes what it imported.
``LAB_SEED``: ``own`` gives every worker a layout seed, and so a pad, of its own.
``LAB_SETTLING``: the seconds after which noise alone may keep the medians of the
warm-up apart.
"""

from __future__ import annotations

import gc
import os
import random
from typing import Any

import msgspec

from perfgate.measuring.timing import warm_up
from perfgate.measuring.timing.recorder import BlockRecorder
from perfgate.measuring.worker import server
from perfgate.measuring.worker.answers.blocks import BlockAnswers
from perfgate.measuring.worker.host_build import prepare_libraries
from perfgate.measuring.workload.layout import Layout, fill_pools
from perfgate.protocol import BlockRequest, ForkRequest

_become = server.become_worker
_block = BlockAnswers._block
_pad = os.environ.get("LAB_PAD", "")
_rebuild_every = int(os.environ.get("LAB_REBUILD", "0"))
_held: list[Any] = []
_seed = 0


def _become_padded(request: ForkRequest, connection: Any, *, parent: int) -> None:
    global _seed  # noqa: PLW0603 - the worker calls the hook, and nothing else survives between calls
    _seed = request.layout_seed
    if _pad:
        _held.append(
            fill_pools(
                random.Random(
                    _seed if _pad == "shared" else f"{_seed}/{request.worker_id}"
                )
            )
        )
    if os.environ.get("LAB_SEED") == "own":
        request = msgspec.structs.replace(
            request,
            layout_seed=random.Random(f"{_seed}/{request.worker_id}").randrange(65536),
        )
    _become(request, connection, parent=parent)


def _block_elsewhere(self: Any, request: BlockRequest) -> Any:
    """Before the first block of such a quad: build the model and its inputs anew, then
    a few calls.
    """
    if (
        request.quad
        and request.quad % _rebuild_every == 0
        and getattr(self, "rebuilt_at", 0) != request.quad
    ):
        self.rebuilt_at = request.quad
        _rebuild(self, random.Random(f"{_seed}/{request.quad}"))
        for call in self.recorder._callers.values():
            for _ in range(3):
                call()
    return _block(self, request)


def _rebuild(self: Any, lot: random.Random) -> None:
    workload, recorder = self._workload, self.recorder
    workload.model = None
    workload._pools.clear()
    recorder._callers.clear()
    _held[:] = [bytearray(16 * lot.randrange(65536) + 16), fill_pools(lot)]
    prepare_libraries(threads=len(os.sched_getaffinity(0)), seed=workload.seed)
    workload.model = workload.workload.build(self._device.handle())
    recorder._callers.update(BlockRecorder(workload, counters=None)._callers)


def _stay(self: Any, seed: int) -> None:
    """Move nothing."""


setattr(server, "become_worker", _become_padded)  # noqa: B010 - the name that the server calls, and exports to nobody
warm_up.SETTLING_SECONDS = float(
    os.environ.get("LAB_SETTLING", warm_up.SETTLING_SECONDS)
)
if os.environ.get("LAB_FREEZE"):
    # What the server imported is then out of the collector's sight in every worker.
    gc.collect()
    gc.freeze()
if not os.environ.get("LAB_MOVE"):
    Layout.move = _stay  # type: ignore[method-assign]
if _rebuild_every:
    BlockAnswers._block = _block_elsewhere  # type: ignore[method-assign]

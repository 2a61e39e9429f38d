"""What an experiment changes inside the fork server and its workers; preloaded there, so that the product has no such options.

``LAB_PAD``: ``shared`` or ``own`` also fills Python's small-object pools by lot, by the layout seed of the pair or by one of
each worker. ``LAB_REBUILD``: every so many quads a worker builds its model and inputs anew behind another pad; ``LAB_MOVE``:
before every quad it copies weights and inputs to other addresses. ``LAB_FREEZE``: the server freezes what it imported.
``LAB_SEED``: ``own`` gives every worker a layout seed, and so a pad, of its own.
``LAB_SETTLING``: the seconds after which noise alone may keep the medians of the warm-up apart.
"""

from __future__ import annotations

import gc
import os
import random
from typing import Any

import msgspec

from perfgate.measuring.timing import blocks
from perfgate.measuring.timing.blocks import BlockRecorder
from perfgate.measuring.worker import become, server, worker
from perfgate.protocol import BlockRequest, ForkRequest

_become = become.become_worker
_block = worker.Worker._block
_pad = os.environ.get("LAB_PAD", "")
_rebuild_every = int(os.environ.get("LAB_REBUILD", "0"))
_move = bool(os.environ.get("LAB_MOVE"))
_held: list[Any] = []
_seed = 0


def _become_padded(request: ForkRequest, connection: Any, *, parent: int) -> None:
    global _seed
    _seed = request.layout_seed
    if _pad:
        _held.append(fill_pools(random.Random(_seed if _pad == "shared" else f"{_seed}/{request.worker_id}")))
    if os.environ.get("LAB_SEED") == "own":
        request = msgspec.structs.replace(
            request, layout_seed=random.Random(f"{_seed}/{request.worker_id}").randrange(65536)
        )
    _become(request, connection, parent=parent)


def fill_pools(lot: random.Random) -> list[object]:
    """Keep a random number of objects of every size class of Python's allocator (16 to 512 bytes), up to eight pages each."""
    sizes = [size for size in range(16, 513, 16) for _ in range(lot.randrange(8 * 4096 // size))]
    lot.shuffle(sizes)
    # An object of 16 bytes, a float of 24, and byte strings, whose header takes 33: none of them is a container to collect.
    return [
        bytes(size - 33) if size > 33 else float(number) if size > 16 else object() for number, size in enumerate(sizes)
    ]


def _block_elsewhere(self: Any, request: BlockRequest) -> Any:
    """Before the first block of a quad: put the model and its inputs to other addresses, then a few calls."""
    if request.quad and getattr(self, "moved_at", 0) != request.quad:
        self.moved_at = request.quad
        lot = random.Random(f"{_seed}/{request.quad}")
        if _rebuild_every and request.quad % _rebuild_every == 0:
            _rebuild(self, lot)
        if _move:
            _move_tensors(self.workload, lot)
        for call in self.recorder._callers.values():
            for _ in range(3):
                call()
    return _block(self, request)


def _rebuild(self: Any, lot: random.Random) -> None:
    workload, recorder = self.workload, self.recorder
    workload.model = None
    workload._pools.clear()
    recorder._callers.clear()
    _held[:] = [bytearray(16 * lot.randrange(65536) + 16), fill_pools(lot)]
    worker._prepare_libraries(threads=len(self.cpus), seed=workload.seed)
    workload.model = workload.workload.build(self.device.handle())
    recorder._callers.update(BlockRecorder(workload, self.device)._callers)


def _move_tensors(workload: Any, lot: random.Random) -> None:
    """Copy weights and inputs to new addresses, behind a pad; small blocks of all sizes move what the calls allocate."""
    import torch

    pads = [
        bytearray(16 * lot.randrange(65536) + 16),
        [bytearray(lot.randrange(520, 4096)) for _ in range(lot.randrange(200))],
    ]
    pads += [fill_pools(lot)] if _pad else []
    if isinstance(workload.model, torch.nn.Module):
        for tensor in [*workload.model.parameters(), *workload.model.buffers()]:
            tensor.data = tensor.data.clone()
    for pool in workload._pools.values():
        pool[:] = [one.clone() for one in pool]
    _held[:] = pads


setattr(server, "become_worker", _become_padded)  # noqa: B010 - the name that the server calls, and exports to nobody
blocks.SETTLING_SECONDS = float(os.environ.get("LAB_SETTLING", blocks.SETTLING_SECONDS))
if os.environ.get("LAB_FREEZE"):
    # What the server imported is then out of the collector's sight in every worker.
    gc.collect()
    gc.freeze()
if _rebuild_every or _move:
    worker.Worker._block = _block_elsewhere  # type: ignore[method-assign]

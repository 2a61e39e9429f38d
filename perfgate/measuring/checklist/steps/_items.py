"""Whether an item of a batch is answered as if it came alone: only then may a server choose the batch."""

from __future__ import annotations

from typing import Any

from perfgate.measuring.checklist.agreement import agreement
from perfgate.measuring.checklist.limits import limit
from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.devices.batches import each_tensor, tensors


def items_agree(context: StepContext, shape: str, batch: int) -> bool | None:
    """Return whether the first and the last item of a batch get the outputs they get alone.

    None where that cannot be told: inputs or outputs without tensors, or whose tensors have no row an item, and models
    that refuse a single item.
    """
    host = context.workload.host_inputs(shape, batch=batch)
    if batch == 1 or not _has_rows(host, batch):
        return None
    together = _answer(context, host)
    if not _has_rows(together, batch):
        return None
    bound = limit("batching.agreement", context.limits)
    for item in (0, batch - 1):
        try:
            alone = _answer(context, _row(host, item, batch))
        except (RuntimeError, ValueError, TypeError, IndexError):
            return None
        found = agreement(_row(together, item, batch), alone)
        if not found.comparable:
            return None
        if not found.within(bound):
            return False
    return True


def _answer(context: StepContext, host: Any) -> Any:
    device = context.device
    output = device.to_host(context.workload.invoke(device.to_device(host)))
    device.synchronize()
    return output


def _has_rows(batch: Any, items: int) -> bool:
    found = list(tensors(batch))
    return bool(found) and all(tensor.dim() > 0 and tensor.shape[0] == items for tensor in found)


def _row(batch: Any, item: int, items: int) -> Any:
    return each_tensor(batch, lambda tensor: tensor[item : item + 1] if tensor.shape[0] == items else tensor)

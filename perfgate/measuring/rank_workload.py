"""``python -m perfgate.measuring.rank_workload FILE:NAME``: a workload in every rank
that torchrun started; a call is a step.

Every rank has other inputs. The workload distributes the model: ``build`` finds the
process group.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from perfgate.errors import PerfgateError
from perfgate.measuring.devices.batches import tensors
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.devices.torch_backends import TORCH_BACKENDS
from perfgate.measuring.rank import turn
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.load import load_workload

DEVICE_VARIABLE = "PERFGATE_DEVICE"


def main(reference: str) -> None:
    """Call the workload until the gate ends the process.

    Raises PerfgateError for a workload that cannot be loaded.
    """
    kind = os.environ.get(DEVICE_VARIABLE, "cpu").partition(":")[0]
    device = open_device(
        kind if kind == "cpu" else f"{kind}:{os.environ['LOCAL_RANK']}"
    )
    if kind == "cpu":
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group(TORCH_BACKENDS[kind].collectives)
    file, _, name = reference.rpartition(":")
    workload = load_workload(Path(file), name, root=Path.cwd(), python_path=[])
    # The same weights on all ranks, other inputs on each.
    torch.manual_seed(0)
    bound = BoundWorkload(name, workload, device, seed=1 + 1000 * dist.get_rank())
    calls = [bound.caller(shape) for shape in bound.shapes]
    while True:
        outputs = [call() for call in calls]
        # The mean of all float tensors must be equal on base and head.
        means = [
            tensor.detach().float().mean()
            for tensor in tensors(outputs)
            if tensor.is_floating_point()
        ]
        turn(
            loss=torch.stack(means).mean() if means else None,
            samples=bound.batch * len(calls),
        )


if __name__ == "__main__":
    try:
        main(sys.argv[1])
    except PerfgateError as error:
        sys.exit(str(error))

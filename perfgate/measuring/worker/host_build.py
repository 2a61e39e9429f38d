"""A workload that is built on the host once, before any driver is touched; forked
processes have its model.

A signature tells whether that model equals one that was built on the device.
"""

from __future__ import annotations

import hashlib
import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.counting.again import count_again
from perfgate.measuring.worker.spawn import Holdings
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.load import load_workload
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import LoadRequest, Signature
from perfgate.system.processes import children, threads_of
from perfgate.trace.model.communication import add_communication

if TYPE_CHECKING:
    import torch


class HostBuild(NamedTuple):
    """The workload of a request, and its model in the host's memory."""

    request: LoadRequest
    workload: Workload
    model: Any

    def serves(self, request: LoadRequest) -> bool:
        """Whether a request asks for this workload."""
        ours = self.request
        return (ours.file, ours.attribute, ours.root) == (
            request.file,
            request.attribute,
            request.root,
        )


def build_on_host(request: LoadRequest) -> HostBuild:
    """Load a workload and build its model on the CPU.

    Raises WorkloadError if processes forked from this one could not use the model: if
    it is not a module, or if the build has started threads or opened a file that is not
    a regular one, as the driver of a device does.
    """
    import torch

    began = Holdings.of_this_process()
    add_communication(request.communication)
    # A thread does not survive a fork, so none may be started for the build.
    prepare_libraries(threads=1, seed=request.seed)
    root = Path(request.root)
    os.chdir(root)
    workload = load_workload(
        Path(request.file),
        request.attribute,
        root=root,
        python_path=request.python_path,
    )
    if not workload.host_build:
        raise WorkloadError(Message("workload.no-host-build"))
    model = workload.build(torch.device("cpu"))
    if not isinstance(model, torch.nn.Module):
        raise WorkloadError(
            Message("workload.no-module", {"kind": type(model).__name__})
        )
    running = len(threads_of(os.getpid())) - 1 + len(children())
    if running:
        raise WorkloadError(Message("workload.threads-of-build", {"count": running}))
    if opened := Holdings.of_this_process().unlike_files(began):
        raise WorkloadError(Message("workload.shares-of-build", {"names": opened}))
    return HostBuild(request, workload, model)


def prepare_libraries(*, threads: int, seed: int) -> None:
    """Apply the granted number of threads and seed every generator, so that both sides
    build the same weights.
    """
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)


# Elements of a tensor that are compared, spread over it.
_SAMPLED = 4096


def signature_of(workload: BoundWorkload) -> Signature:
    """Describe the model's parameters and buffers, and count the operators of every
    shape.
    """
    kind = type(workload.model)
    operators: dict[str, dict[str, int]] = {}
    for counters in count_again(workload, parts=()):
        operators[counters.shape] = {entry.op: entry.count for entry in counters.ops}
    return Signature(
        model=f"{kind.__module__}.{kind.__qualname__}",
        tensors=_tensors_of(workload.model),
        operators=operators,
    )


def _tensors_of(model: object) -> dict[str, str]:
    import torch

    if not isinstance(model, torch.nn.Module):
        return {}
    tensors = [*model.named_parameters(), *model.named_buffers()]
    return {name: _description(tensor) for name, tensor in tensors}


def _description(tensor: torch.Tensor) -> str:
    """Type, shape, strides, and a digest of a sample of the values."""
    import torch

    layout = (
        f"{tensor.dtype} {tuple(tensor.shape)} {tensor.stride()} {tensor.requires_grad}"
    )
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // _SAMPLED)
    sample = flat[::step].contiguous().cpu()
    return f"{layout} {hashlib.sha256(sample.view(torch.uint8).numpy().tobytes()).hexdigest()[:16]}"

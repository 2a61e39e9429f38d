"""A workload that is built on the host once, before any driver is touched; forked processes have its model."""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import Any, NamedTuple

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.worker.spawn import Holdings
from perfgate.measuring.workload.load import load_workload
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import LoadRequest
from perfgate.system.processes import children, threads_of
from perfgate.trace.model.communication import add_communication


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

    Raises WorkloadError if processes forked from this one could not use the model: if it is not a module, or if the build has
    started threads or opened a file that is not a regular one, as the driver of a device does.
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
    """Apply the granted number of threads and seed every generator, so that both sides build the same weights."""
    random.seed(seed)
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(seed % 2**32)
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(threads)
        torch.manual_seed(seed)

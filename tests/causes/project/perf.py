"""The workloads of the lab."""

from __future__ import annotations

import tempfile

import torch
from model import WIDTH, Encoder, Images, Mixed, Shared
from prepare import normalized

from perfgate import Workload

BATCH = 64  # plant: batch


def rows(batch: int, seed: int) -> torch.Tensor:
    """Return rows of a seed, shape (batch, WIDTH)."""
    return torch.randn(batch, WIDTH, generator=torch.Generator().manual_seed(seed))


def images(batch: int, seed: int) -> torch.Tensor:
    """Return images of a seed, shape (batch, 16, 24, 24)."""
    return torch.randn(batch, 16, 24, 24, generator=torch.Generator().manual_seed(seed))


def tokens(batch: int, seed: int) -> torch.Tensor:
    """Return whole numbers of a seed, shape (batch, WIDTH)."""
    return torch.randint(0, 255, (batch, WIDTH), generator=torch.Generator().manual_seed(seed))


def built(model: type[torch.nn.Module]) -> object:
    """Return a build function of a model with the same weights each time."""

    def build(device: torch.device) -> torch.nn.Module:
        torch.manual_seed(0)
        return model().eval().to(device)

    return build


def build_compiled(device: torch.device) -> torch.nn.Module:
    """Return the encoder as one graph."""
    torch.manual_seed(0)
    return torch.compile(Encoder().eval().to(device), backend="eager")


def build_shared(device: torch.device) -> torch.nn.Module:
    """Return the encoder in a group of one rank."""
    if not torch.distributed.is_initialized():
        meeting = f"file://{tempfile.mkdtemp()}/meeting"
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=0, world_size=1)
    torch.manual_seed(0)
    return Shared().eval().to(device)


encoder = Workload(build=built(Encoder), inputs=rows, batch=BATCH)
mixed = Workload(build=built(Mixed), inputs=rows, batch=BATCH)
compiled = Workload(build=build_compiled, inputs=rows, batch=BATCH)
convolutions = Workload(build=built(Images), inputs=images, batch=4)
shared = Workload(build=build_shared, inputs=rows, batch=BATCH)
prepared = Workload(build=built(Encoder), inputs=tokens, preprocess=normalized, batch=BATCH)

"""The parts of torch that serve each kind of device; nothing here imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class TorchBackend(NamedTuple):
    """The backends of torch.distributed and torch.compile, and the package that adds
    the kind of device to torch.
    """

    collectives: str
    compiler: str
    extension: str = ""


TORCH_BACKENDS: Mapping[str, TorchBackend] = {
    "cpu": TorchBackend("gloo", "inductor"),
    "cuda": TorchBackend("nccl", "inductor"),
    "npu": TorchBackend("hccl", "npu", extension="torch_npu"),
}

"""An NVIDIA GPU through torch.cuda. Not run on hardware yet: none was available to its authors.

tests/contract runs over it wherever a CUDA device is present.
"""

from __future__ import annotations

import os
from typing import Any

from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.backends._shared import GIB, AcceleratorDevice, require_packages
from perfgate.measuring.devices.device import Capability
from perfgate.measuring.devices.monitors.cuda import read_gpu

KIND = "cuda"


def open_device(index: int = 0) -> CudaDevice:
    """The GPU that torch calls ``cuda:index``. Raises MeasuringError, with the remedy, if it cannot be used."""
    require_packages("torch", install="it there, e.g. pip install torch")
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise MeasuringError(f"torch cannot be imported: {error}; install it anew") from error
    if torch.version.cuda is None:
        raise MeasuringError(
            f"torch {torch.__version__} is built without CUDA; install a build with it, see pytorch.org"
        )
    count = torch.cuda.device_count()
    if count == 0:
        raise MeasuringError(
            "torch sees no GPU; look at nvidia-smi, at CUDA_VISIBLE_DEVICES, and whether the container got the GPU"
        )
    if index >= count:
        raise MeasuringError(f"cuda:{index} does not exist, torch sees {count}; write cuda:0 to cuda:{count - 1}")
    try:
        return CudaDevice(torch.cuda, index)
    except RuntimeError as error:
        raise MeasuringError(f"cuda:{index} cannot be taken: {error}; look at nvidia-smi") from error


class CudaDevice(AcceleratorDevice):
    """One NVIDIA GPU; fulfils ``Device``."""

    kind = KIND
    capabilities: frozenset[Capability] = frozenset(
        {"own_memory", "queue", "kernel_timeline", "allocation_count", "spoiled_by_errors"}
    )

    def __init__(self, module: Any, index: int) -> None:
        super().__init__(module, index)
        self._properties = module.get_device_properties(index)
        self.name = str(self._properties.name)

    def identity(self) -> str:
        """The UUID as nvidia-smi writes it; torch has it since 2.4."""
        uuid = getattr(self._properties, "uuid", None)
        return f"GPU-{uuid}" if uuid else ""

    def properties(self) -> dict[str, str]:
        import torch

        properties = {
            "model": self.name,
            "compute capability": f"{self._properties.major}.{self._properties.minor}",
            "multiprocessors": self._properties.multi_processor_count,
            "memory": f"{round(self._properties.total_memory / GIB)} GiB",
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
            "cudnn benchmark": torch.backends.cudnn.benchmark,
            "matmul tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn tf32": torch.backends.cudnn.allow_tf32,
        }
        return {name: str(value) for name, value in properties.items() if value is not None}

    def cache_bytes(self) -> int | None:
        # Not in torch before 2.2.
        size = getattr(self._properties, "L2_cache_size", None)
        return int(size) if size else None

    def profiler(self) -> Any:
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        return profile(activities=activities, record_shapes=True, with_stack=True)

    def telemetry(self) -> DeviceState | None:
        try:
            return read_gpu(self.index, own=frozenset({os.getpid()}), identity=self.identity())
        except MeasuringError:
            return None

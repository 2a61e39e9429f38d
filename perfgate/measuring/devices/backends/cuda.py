"""An NVIDIA GPU through torch.cuda; tests/contract runs over it wherever a CUDA device is present."""

from __future__ import annotations

import os
from typing import Any

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.backends._shared import GIB, AcceleratorDevice, no_such_device, require_packages
from perfgate.measuring.devices.device import Capability
from perfgate.measuring.devices.monitors.cuda import read_gpu

KIND = "cuda"


def open_device(index: int = 0) -> CudaDevice:
    """The GPU that torch calls ``cuda:index``. Raises MeasuringError, with the remedy, if it cannot be used."""
    require_packages("torch", install=Message("device.install-torch"))
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise UnmeasuredError(Message("device.no-torch", {"error": str(error)})) from error
    if torch.version.cuda is None:
        raise UnmeasuredError(Message("device.no-cuda-build", {"version": str(torch.__version__)}))
    count = torch.cuda.device_count()
    if count == 0:
        raise UnmeasuredError(Message("device.no-gpu"))
    if index >= count:
        raise no_such_device(KIND, "torch", index, count)
    try:
        return CudaDevice(torch.cuda, index)
    except RuntimeError as error:
        raise UnmeasuredError(Message("device.cuda-taken", {"index": index, "error": str(error)})) from error


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
        # The inner profiler, as on the CPU: torch.profiler.profile imports inductor, and its first start took 5.3 s in each
        # worker (H100, torch 2.11). Without Kineto there would be no kernels in the trace.
        from torch.autograd.profiler import profile

        return profile(use_cpu=True, use_device=KIND, use_kineto=True, record_shapes=True, with_stack=True)

    def telemetry(self) -> DeviceState | None:
        try:
            return read_gpu(self.index, own=frozenset({os.getpid()}), identity=self.identity())
        except MeasuringError:
            return None

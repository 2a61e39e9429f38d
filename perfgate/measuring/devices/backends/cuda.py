"""An NVIDIA GPU through torch.cuda; tests/contract runs over it wherever a CUDA device
is present.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.backends._shared import (
    GIB,
    AcceleratorDevice,
    open_accelerator,
    require_packages,
)
from perfgate.measuring.devices.device import Call, Capability, KernelRun
from perfgate.measuring.devices.monitors.cuda import read_gpu

KIND = "cuda"


def open_device(index: int = 0) -> CudaDevice:
    """The GPU that torch calls ``cuda:index``.

    Raises MeasuringError, with the remedy, if it cannot be used.
    """
    require_packages("torch", install=Message("device.install-torch"))
    try:
        import torch
    except (ImportError, OSError, RuntimeError) as error:
        raise UnmeasuredError(
            Message("device.no-torch", {"error": str(error)})
        ) from error
    if torch.version.cuda is None:
        raise UnmeasuredError(
            Message("device.no-cuda-build", {"version": str(torch.__version__)})
        )
    return open_accelerator(
        CudaDevice,
        torch.cuda,
        index,
        package="torch",
        absent="device.no-gpu",
        taken="device.cuda-taken",
    )


class CudaDevice(AcceleratorDevice):
    """One NVIDIA GPU; fulfils ``Device``."""

    kind = KIND
    capabilities: frozenset[Capability] = frozenset(
        {
            "own_memory",
            "queue",
            "kernel_timeline",
            "kernel_times",
            "allocation_count",
            "spoiled_by_errors",
        }
    )

    def __init__(self, module: Any, index: int) -> None:
        super().__init__(module, index)
        self._properties = module.get_device_properties(index)
        self.name = str(self._properties.name)

    def identity(self) -> str:
        """The UUID as nvidia-smi writes it."""
        return f"GPU-{self._properties.uuid}"

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
        return {
            name: str(value) for name, value in properties.items() if value is not None
        }

    def profiler(self) -> Any:
        # The inner profiler, as on the CPU: torch.profiler.profile imports inductor,
        # and its first start took 5.3 s in each worker (H100, torch 2.11). Without
        # Kineto there would be no kernels in the trace.
        from torch.autograd.profiler import profile

        return profile(
            use_cpu=True,
            use_device=KIND,
            use_kineto=True,
            record_shapes=True,
            with_stack=True,
        )

    def record_kernels(self, call: Call, *, calls: int) -> list[KernelRun]:
        # Without events of the host, which would make it slower, and without a file.
        from torch.autograd.profiler import profile

        with profile(use_cpu=False, use_device=KIND, use_kineto=True) as profiler:
            for _ in range(calls):
                call()
                self.synchronize()
        if profiler.kineto_results is None:
            raise UnmeasuredError(Message("operators.no-events"))
        return kernels_of(profiler.kineto_results.events())

    def read_tool(self) -> DeviceState:
        return read_gpu(
            self.index, own=frozenset({os.getpid()}), identity=self.identity()
        )


def kernels_of(events: Iterable[Any]) -> list[KernelRun]:
    """The kernels among the events of Kineto, as torch hands them over."""
    kernels = []
    for event in events:
        if _is_kernel(event):
            kernels.append(
                KernelRun(
                    event.name(),
                    _launch_size(event),
                    event.device_resource_id(),
                    event.start_ns(),
                    event.duration_ns(),
                )
            )
    return kernels


def _is_kernel(event: Any) -> bool:
    if event.device_type().name != "CUDA":
        return False
    # Absent in old versions of torch, in which only names distinguish copies.
    if hasattr(event, "activity_type"):
        return bool(event.activity_type() in ("kernel", "concurrent_kernel"))
    is_annotation = hasattr(event, "is_user_annotation") and event.is_user_annotation()
    return not is_annotation and not event.name().startswith(("Memcpy", "Memset"))


def _launch_size(event: Any) -> str:
    """The grid and the block of a launch; empty if torch does not hand them over."""
    if not hasattr(event, "metadata_json"):
        return ""
    text = event.metadata_json()
    if not text.startswith("{"):
        text = f"{{{text}}}"
    try:
        values = json.loads(text)
    except ValueError:
        return ""
    sizes = []
    for name in ("grid", "block"):
        size = values.get(name)
        if isinstance(size, list):
            sizes.append("x".join(map(str, size)))
    return " ".join(sizes)

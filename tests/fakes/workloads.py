"""Small workloads on the fake device whose every answer has a closed form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate.measuring.checklist.step import StepContext
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.measuring.workload.workload import Workload
from perfgate.protocol import StepExtent
from tests.fakes.device import FakeDevice, FakeTensor


@dataclass(frozen=True)
class FakeKernel:
    """One kernel of a call: ``fixed_ns + per_item_ns * items``."""

    op: str
    fixed_ns: int
    per_item_ns: int = 0


@dataclass
class FakeModel:
    """Launches its kernels, allocates an output, and is as picky about batch sizes as it is told."""

    device: FakeDevice
    kernels: tuple[FakeKernel, ...]
    output_bytes: int = 0
    activation_bytes: int = 0
    only_batch: int | None = None

    def __call__(self, inputs: FakeTensor) -> FakeTensor:
        if self.only_batch is not None and inputs.items != self.only_batch:
            raise RuntimeError(f"expected a batch of {self.only_batch}, got {inputs.items}")
        activation = self.device.allocate(self.activation_bytes * inputs.items)
        for kernel in self.kernels:
            self.device.launch(kernel.op, kernel.fixed_ns + kernel.per_item_ns * inputs.items)
        del activation
        return self.device.allocate(self.output_bytes * inputs.items, inputs.items)


def fake_workload(
    *kernels: FakeKernel, item_bytes: int = 0, model: dict[str, Any] | None = None, **fields: Any
) -> Workload:
    """Return a workload of these kernels; ``model`` are further fields of FakeModel, ``fields`` of Workload."""
    return Workload(
        build=lambda device: FakeModel(device, kernels, **(model or {})),
        inputs=lambda batch, seed, **shape: FakeTensor(batch, batch * item_bytes),
        **fields,
    )


def curve(fixed_ns: int, per_item_ns: int, **fields: Any) -> Workload:
    """Return a workload whose call takes ``fixed_ns + per_item_ns * b``, so throughput is ``b / (a + c * b)``.

    Doubling from b gains 2 (a + c b) / (a + 2 c b); that is less than 1.10 from b > 4.5 a / c on.
    """
    return fake_workload(FakeKernel("aten::mm", fixed_ns, per_item_ns), **fields)


def context_on(
    device: FakeDevice, workload: Workload, *, quick: bool = True, root: Path = Path(), **fields: Any
) -> StepContext:
    """Return what a step works with: the workload bound to the device, seed 1, no limits but the defaults."""
    bound = BoundWorkload("fake", workload, device, seed=1, root=root)
    given: dict[str, Any] = {
        "limits": {},
        "seed": 1,
        "artifacts": Path(),
        "progress": lambda text: None,
    }
    return StepContext(workload=bound, extent=StepExtent(quick=quick), **{**given, **fields})

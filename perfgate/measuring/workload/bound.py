"""A workload bound to a device: the model is built, inputs of every shape wait in a pool, one call is one method call."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from perfgate.errors import WorkloadError
from perfgate.measuring.devices.device import Device
from perfgate.measuring.workload.stages import stages_of
from perfgate.measuring.workload.workload import Workload

POOL_SIZE = 8


class BoundWorkload:
    """A built model and its inputs on one device.

    Inputs rotate: call ``i`` takes input ``i % POOL_SIZE``, each made from its own seed, so that no cache sees the same
    data twice in a row.
    """

    def __init__(self, name: str, workload: Workload, device: Device, *, seed: int) -> None:
        self.name = name
        self.workload = workload
        self.device = device
        self.seed = seed
        self.stages = stages_of(workload)
        self.model = workload.build(device.handle())
        self._pools: dict[tuple[str, int], list[Any]] = {}
        self._cursor = 0
        self._new_index = POOL_SIZE

    @property
    def shapes(self) -> list[str]:
        return list(self.workload.shapes)

    @property
    def batch(self) -> int:
        """The configured items per call."""
        return self.workload.batch

    def host_inputs(self, shape: str, *, batch: int | None = None, index: int = 0) -> Any:
        """Make one input batch on the host, preprocessed; the same index gives the same data on both sides."""
        return self.preprocess(self.raw_inputs(shape, batch=batch, index=index))

    def raw_inputs(self, shape: str, *, batch: int | None = None, index: int = 0) -> Any:
        """Make one input batch on the host as ``inputs`` returns it."""
        items = self.batch if batch is None else batch
        inputs = self.workload.inputs(items, self.seed + index, **self.workload.shapes[shape])
        if inputs is None:
            raise WorkloadError(
                f"workload {self.name!r}: inputs({items}, seed) returned None; return a tensor, tuple or dict"
            )
        return inputs

    def preprocess(self, raw: Any) -> Any:
        """Run the stages of the preprocessing one after another."""
        for stage in self.stages:
            raw = stage.run(raw)
        return raw

    def pool(self, shape: str, *, batch: int | None = None) -> list[Any]:
        """The rotating inputs of a shape on the device, made on first use."""
        key = (shape, self.batch if batch is None else batch)
        if key not in self._pools:
            hosts = (self.host_inputs(shape, batch=key[1], index=index) for index in range(POOL_SIZE))
            self._pools[key] = [self.device.to_device(host) for host in hosts]
            self.device.synchronize()
        return self._pools[key]

    def pools(self) -> list[list[Any]]:
        return list(self._pools.values())

    def new_inputs(self, shape: str) -> Any:
        """Inputs on the device that no call has seen: new objects, made from a seed of their own.

        The pool never holds them, and both sides get the same ones in the same order.
        """
        host = self.host_inputs(shape, index=self._new_index)
        self._new_index += 1
        inputs = self.device.to_device(copied(host))
        self.device.synchronize()
        return inputs

    def drop_pool(self, shape: str, *, batch: int) -> None:
        """Forget the inputs of a batch size that is not needed any more."""
        self._pools.pop((shape, batch), None)

    def invoke(self, inputs: Any) -> Any:
        """Make one call on inputs that are already on the device, without waiting for the device."""
        if self.workload.train_step is not None:
            return self.workload.train_step(self.model, inputs)
        if self.workload.grad:
            return self._forward(inputs)
        with self.device.inference_mode():
            return self._forward(inputs)

    def _forward(self, inputs: Any) -> Any:
        if self.workload.call is not None:
            return self.workload.call(self.model, inputs)
        if isinstance(inputs, dict):
            return self.model(**inputs)
        if isinstance(inputs, tuple):
            return self.model(*inputs)
        return self.model(inputs)

    def around(self, model: Any) -> BoundWorkload:
        copied = copy.copy(self)
        copied.model = model
        return copied

    def caller(self, shape: str, *, batch: int | None = None) -> Callable[[], Any]:
        """A function that makes one call on the next input of the pool, without waiting for the device."""
        pool = self.pool(shape, batch=batch)
        invoke = self.invoke

        def call() -> Any:
            self._cursor += 1
            return invoke(pool[self._cursor % POOL_SIZE])

        return call


def copied(batch: Any) -> Any:
    """A copy, because what the workload's ``inputs`` returns may be the same object each time."""
    try:
        return copy.deepcopy(batch)
    except (RuntimeError, TypeError):  # a tensor with a gradient history, an object that refuses: new enough as it is
        return batch

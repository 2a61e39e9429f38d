"""A workload bound to a device: the model is built, inputs of every shape wait in a pool, one call is one method call."""

from __future__ import annotations

import copy
import functools
import traceback
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.devices.device import Call, Device
from perfgate.measuring.workload.output import read
from perfgate.measuring.workload.workload import Workload

POOL_SIZE = 8


class BoundWorkload:
    """A built model and its inputs on one device; ``model`` is one that is already there, ``root`` the checkout of the code.

    Inputs rotate: call ``i`` takes input ``i % POOL_SIZE``, each made from its own seed, so that no cache sees the same
    data twice in a row.
    """

    def __init__(
        self,
        name: str,
        workload: Workload,
        device: Device,
        *,
        seed: int,
        root: Path = Path(),
        model: Any = None,
    ) -> None:
        self.name = name
        self.root = root
        self.workload = workload
        self.device = device
        self.seed = seed
        self.stages = stages_of(workload)
        self.model = workload.build(device.handle()) if model is None else model
        self._pools: dict[tuple[str, int], list[Any]] = {}
        self._cursor = 0
        self._new_index = POOL_SIZE

    @property
    def shapes(self) -> list[str]:
        return list(self.workload.shapes)

    @property
    def batch(self) -> int:
        return self.workload.batch

    def host_inputs(
        self, shape: str, *, batch: int | None = None, index: int = 0
    ) -> Any:
        """Make one input batch on the host, preprocessed; the same index gives the same data on both sides."""
        return self.preprocess(self.raw_inputs(shape, batch=batch, index=index))

    def raw_inputs(self, shape: str, *, batch: int | None = None, index: int) -> Any:
        items = batch or self.batch
        inputs = self.workload.inputs(
            items, self.seed + index, **self.workload.shapes[shape]
        )
        if inputs is None:
            raise WorkloadError(
                Message("workload.no-inputs", {"name": repr(self.name), "items": items})
            )
        return inputs

    def preprocess(self, raw: Any) -> Any:
        for stage in self.stages:
            raw = stage.run(raw)
        return raw

    def pool(self, shape: str, *, batch: int | None = None) -> list[Any]:
        """The rotating inputs of a shape on the device, made on first use."""
        key = (shape, batch or self.batch)
        if key not in self._pools:
            pool = []
            for index in range(POOL_SIZE):
                pool.append(
                    self.device.to_device(
                        self.host_inputs(shape, batch=batch, index=index)
                    )
                )
            self._pools[key] = pool
            self.device.synchronize()
        return self._pools[key]

    def pools(self) -> list[list[Any]]:
        return list(self._pools.values())

    def new_inputs(self, shape: str) -> Any:
        """Inputs on the device that no call has seen: new objects, made from a new seed.

        The pool never holds them, and both sides get equal inputs in the same order.
        """
        host = self.host_inputs(shape, index=self._new_index)
        self._new_index += 1
        inputs = self.device.to_device(copied(host))
        self.device.synchronize()
        return inputs

    def drop_pool(self, shape: str, *, batch: int) -> None:
        self._pools.pop((shape, batch), None)

    def invoke(self, inputs: Any, *, returned: Callable[[], None] | None = None) -> Any:
        """Make one call on inputs that are already on the device and read its output, without waiting for the device.

        ``returned`` is called when the call is over and the reading begins.
        """
        with (
            nullcontext()
            if self.workload.train_step or self.workload.grad
            else self.device.inference_mode()
        ):
            output = self.forward(inputs)
            if returned is not None:
                returned()
            return read(output)

    def forward(self, inputs: Any) -> Any:
        """Call the model, or the workload's own function for one call, without reading its output."""
        if self.workload.train_step is not None:
            return self.workload.train_step(self.model, inputs)
        if self.workload.call is not None:
            return self.workload.call(self.model, inputs)
        if isinstance(inputs, dict):
            return self.model(**inputs)
        if isinstance(inputs, tuple):
            return self.model(*inputs)
        return self.model(inputs)

    def around(self, model: Any) -> BoundWorkload:
        bound = copy.copy(self)
        bound.model = model
        return bound

    def caller(self, shape: str, *, batch: int | None = None) -> Call:
        """A function that makes one call on the next input of the pool, without waiting for the device."""
        pool = self.pool(shape, batch=batch)
        invoke = self.invoke

        def call() -> Any:
            self._cursor += 1
            return invoke(pool[self._cursor % POOL_SIZE])

        return call


def copied(batch: Any) -> Any:
    """A copy, because the workload's ``inputs`` may return the same object each time."""
    try:
        return copy.deepcopy(batch)
    except (
        RuntimeError,
        TypeError,
    ):  # a tensor with a gradient history, an object that refuses: new enough as it is
        return batch


MAX_MESSAGE = 500


def refusal(workload: BoundWorkload, output: Any, inputs: Any) -> str | None:
    """The objection of the workload's check to the output, None without one. Both are on the host."""
    try:
        return answered_no(workload, output, inputs)
    except Exception as error:  # noqa: BLE001 - whatever the check raises is its way of saying no
        return words_of(error)


def answered_no(workload: BoundWorkload, output: Any, inputs: Any) -> str | None:
    """The falsy result of the workload's check, None for others; its exceptions pass through."""
    if workload.workload.check is None:
        return None
    accepted = workload.workload.check(output, inputs)
    # Not `is False`: a falsy tensor or numpy bool counts too.
    if accepted is None or accepted:
        return None
    return f"check returned {accepted!r}"[:MAX_MESSAGE]


def words_of(error: Exception) -> str:
    return "".join(traceback.format_exception_only(type(error), error)).strip()[
        :MAX_MESSAGE
    ]


# The name of a preprocessing that is a lambda.
WHOLE = "preprocess"


class Stage(NamedTuple):
    """One function of the preprocessing; its argument is the result of the stage before it."""

    name: str
    run: Callable[[Any], Any]


def stages_of(workload: Workload) -> tuple[Stage, ...]:
    preprocess = workload.preprocess
    if preprocess is None:
        return ()
    if isinstance(preprocess, Mapping):
        return tuple(Stage(name, run) for name, run in preprocess.items())
    name = getattr(preprocess, "__name__", WHOLE)
    if name == "<lambda>":
        name = WHOLE
    return (Stage(name, preprocess),)


def line_of(function: Callable[..., Any], root: Path) -> str | None:
    """The first line of a function, ``data/resize.py:12``; None for anything but Python code below ``root``.

    A partial counts as the function it wraps; a callable object as its ``__call__``.
    """
    code = _code(function)
    if code is None:
        return None
    try:
        file = Path(code.co_filename).resolve().relative_to(root.resolve())
    except ValueError:
        return None
    return f"{file.as_posix()}:{code.co_firstlineno}"


def _code(function: Any) -> CodeType | None:
    while isinstance(function, functools.partial):
        function = function.func
    for candidate in (function, type(function).__call__):
        code = getattr(candidate, "__code__", None)
        if isinstance(code, CodeType):
            return code
    return None

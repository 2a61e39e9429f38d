"""Read the output of a call to its end: deferred work belongs to the call that returned it.

When a call returns, a generator has not begun, a future has not ended, and a lazy tensor is not computed. So the output of
every call is read, and both are timed and counted.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import io
import sys
from collections import deque
from collections.abc import AsyncIterable, Awaitable, Iterable, Iterator, Mapping, Set
from contextlib import suppress
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.devices.batches import tensors

# Types with instances that hold their value.
_VALUES = frozenset(
    {
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        memoryview,
        range,
        slice,
    }
)
_LIBRARIES_OF_VALUES = frozenset({"numpy", "pandas", "pyarrow", "PIL", "scipy"})
_FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType, functools.partial)
# Devices on which torch records operators and runs them when a value is needed (torch/_lazy, torch_xla).
_LAZY_DEVICES = frozenset({"lazy", "xla"})
_MOST_DEPTH = 8


# The methods of objects with a result that may have to be waited for: it is there once the second method returns.
_PROMISES = (
    ("done", "result"),  # concurrent.futures.Future and futures of dask, ray and others
    ("done", "wait"),  # torch.futures.Future
    ("is_completed", "wait"),  # torch.distributed.Work
    ("ready", "get"),  # multiprocessing.pool.AsyncResult
    ("__dask_graph__", "compute"),  # dask collections
    (
        "trigger_wait",
        "wait",
    ),  # torch.distributed._functional_collectives.AsyncCollectiveTensor
    ("is_alive", "join"),  # threads and processes
)


class UnreadOutputError(WorkloadError):
    """An output that was not computed when the call returned, and that cannot be read from outside."""


# The tensor that the values of a lazy one are copied into, while they are; None while it is made. Neither is work of the call.
reading_into: list[Any] = []


def read(output: Any, *, depth: int = 0) -> Any:
    """The output fully computed, unchanged if no part was deferred.

    Containers, mappings and dataclasses are walked. An iterator becomes the list of its items, a future, a coroutine or a
    promise of another kind its result. A tensor of a class outside torch is copied once, and an object of a project's class
    is read through its public attributes and properties. Raises UnreadOutputError for a function, which has not been
    called, and for a tensor without values.
    """
    import torch

    kind: Any = type(output)
    if kind in _VALUES:
        return output
    if isinstance(output, torch.Tensor):
        _read_tensor(output, torch)
        return output
    if depth > _MOST_DEPTH:
        return output
    inner = depth + 1
    if isinstance(output, Mapping):
        return _read_mapping(output, inner)
    if isinstance(output, (tuple, list)):
        return _read_sequence(output, inner)
    if isinstance(output, (Set, deque)):
        return _read_members(output, inner)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return _read_record(output, inner)
    if isinstance(output, _FUNCTIONS):
        raise UnreadOutputError(
            Message(
                "output.function", {"name": getattr(output, "__name__", kind.__name__)}
            )
        )
    return _read_other(output, inner)


def holds_result(output: Any, inputs: Any) -> bool:
    """Whether an output that was read holds anything that the call may have computed.

    That is a number, a text, an array or a tensor other than the inputs. An object without any of these may not have computed
    anything yet.
    """
    import torch

    addresses = {_address(tensor) for tensor in tensors(inputs)} - {None}
    return _holds(output, addresses, torch, depth=0)


def _holds(
    output: Any, input_addresses: set[int | None], torch: Any, *, depth: int
) -> bool:
    if isinstance(output, torch.Tensor):
        return _address(output) not in input_addresses
    if type(output) in _VALUES:
        return output is not None
    if depth > _MOST_DEPTH or isinstance(output, (ModuleType, torch.nn.Module, type)):
        return False
    members: Iterable[Any]
    if isinstance(output, Mapping):
        members = output.values()
    elif isinstance(output, (tuple, list, Set, deque)):
        members = output
    elif dataclasses.is_dataclass(output):
        members = [getattr(output, field.name) for field in dataclasses.fields(output)]
    elif isinstance(output, _FUNCTIONS):
        return False
    elif _kind(output).__module__.partition(".")[0] in _LIBRARIES_OF_VALUES:
        return True
    elif hasattr(output, "__dict__"):
        members = [
            member for name, member in vars(output).items() if not name.startswith("_")
        ]
    else:
        return is_installed(
            _kind(output)
        )  # an array or an object of a compiled library
    return any(
        _holds(member, input_addresses, torch, depth=depth + 1) for member in members
    )


def _kind(output: Any) -> Any:
    return type(output)


def _address(tensor: Any) -> int | None:
    """The address of a tensor's memory, None if it has none, such as a sparse tensor or a wrapper."""
    try:
        return int(tensor.data_ptr())
    except (RuntimeError, NotImplementedError):
        return None


# --- tensors


def _read_tensor(tensor: Any, torch: Any) -> None:
    kind: Any = type(tensor)
    device = tensor.device.type
    if device == "meta":
        raise UnreadOutputError(Message("output.meta"))
    if device in _LAZY_DEVICES:
        tensor.cpu()
    elif kind is not torch.Tensor and not _holds_its_values(kind):
        # Make a tensor compute its values, even if its class defers them.
        reading_into.append(None)
        try:
            with torch.no_grad():
                values = reading_into[-1] = torch.empty(
                    tensor.shape, dtype=tensor.dtype, device=tensor.device
                )
                values.copy_(tensor)
        finally:
            reading_into.pop()
    elif kind is not torch.Tensor and (wait := _waiting_method(kind)):
        getattr(tensor, wait)()


@functools.lru_cache(maxsize=256)
def _holds_its_values(kind: type) -> bool:
    """Whether a class of tensors computes at once: classes of torch and its vision and quantization libraries do."""
    return kind.__module__.partition(".")[0] in (
        "torch",
        "torchvision",
        "torchao",
        "torch_npu",
    )


# --- containers


def _read_sequence(output: Any, depth: int) -> Any:
    if _VALUES.issuperset(map(type, output)):
        return output
    members = _read_members(output, depth)
    if members is output:
        return output
    if hasattr(output, "_fields"):
        return type(output)(*members)
    if isinstance(output, tuple):
        return tuple(members)
    return members


def _read_members(output: Any, depth: int) -> Any:
    """A list of the members, or the output itself if none was deferred."""
    members = []
    is_changed = False
    for before in output:
        after = read(before, depth=depth)
        members.append(after)
        is_changed = is_changed or after is not before
    return members if is_changed else output


def _read_mapping(output: Mapping[Any, Any], depth: int) -> Any:
    changed = {}
    for key, before in output.items():
        after = read(before, depth=depth)
        if after is not before:
            changed[key] = after
    if not changed:
        return output
    members = {**output, **changed}
    if type(output) is dict:
        return members
    try:
        return type(output)(members)  # type: ignore[call-arg]
    except TypeError:
        return members


def _read_record(output: Any, depth: int) -> Any:
    for field in dataclasses.fields(output):
        before = getattr(output, field.name)
        after = read(before, depth=depth)
        if after is not before:
            object.__setattr__(output, field.name, after)  # also of a frozen one
    if not is_installed(_kind(output)):
        _read_properties(output, depth)
    return output


# --- deferred work, and objects


def _read_other(output: Any, depth: int) -> Any:
    kind: Any = type(output)
    if isinstance(output, (Awaitable, AsyncIterable)):
        return read(_awaited(output), depth=depth)
    if wait := _waiting_method(kind):
        return read(getattr(output, wait)(), depth=depth)
    if isinstance(output, io.IOBase):
        return output
    if isinstance(output, Iterator):
        return [read(item, depth=depth) for item in output]
    if not is_installed(kind) and not _is_model(output):
        _read_attributes(output, depth)
        _read_properties(output, depth)
        if depth == 1 and isinstance(output, Iterable):
            for item in output:
                read(item, depth=depth)
    return output


def _awaited(output: Any) -> Any:
    async def result() -> Any:
        if isinstance(output, AsyncIterable):
            return [item async for item in output]
        return await output

    if isinstance(output, asyncio.Future):
        return output.get_loop().run_until_complete(result())
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(result())
    finally:
        loop.close()


@functools.lru_cache(maxsize=256)
def _waiting_method(kind: type) -> str | None:
    """The method of a promise that waits for its result; None for objects of another kind."""
    for mark, method in _PROMISES:
        if callable(getattr(kind, mark, None)) and callable(
            getattr(kind, method, None)
        ):
            return method
    return None


def _is_model(output: Any) -> bool:
    import torch

    return isinstance(output, (torch.nn.Module, ModuleType, type))


def _read_attributes(output: Any, depth: int) -> None:
    """Read the public state of a project's object; its functions and iterators are left alone."""
    for name, before in list(getattr(output, "__dict__", {}).items()):
        if name.startswith("_") or isinstance(before, (*_FUNCTIONS, Iterator)):
            continue
        with suppress(UnreadOutputError, AttributeError):
            if (after := read(before, depth=depth)) is not before:
                setattr(output, name, after)


def _read_properties(output: Any, depth: int) -> None:
    for name in _properties(_kind(output)):
        try:
            value = getattr(output, name)
        except Exception:  # noqa: BLE001, S112 - a property that does not apply to this object
            continue
        with suppress(UnreadOutputError):
            read(value, depth=depth)


@functools.lru_cache(maxsize=256)
def _properties(kind: type) -> tuple[str, ...]:
    """The public properties that a class of the project's and its bases in the project compute."""
    names = []
    for base in kind.__mro__:
        if is_installed(base):
            continue
        for name, member in vars(base).items():
            if isinstance(
                member, (property, functools.cached_property)
            ) and not name.startswith("_"):
                names.append(name)
    return tuple(names)


@functools.lru_cache(maxsize=1024)
def is_installed(kind: type) -> bool:
    """Whether a class belongs to Python or an installed package, not to the project that is measured."""
    package = kind.__module__.partition(".")[0]
    if package in sys.stdlib_module_names:
        return True
    file = getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
    return "/site-packages/" in file or "/dist-packages/" in file

"""Check the workload's outputs: a model that is faster but wrong, or works less when
timed, must never pass.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from perfgate.document.message import Message
from perfgate.document.run import CorrectnessResult
from perfgate.measuring.devices.batches import (
    in_double,
    outline,
    shape_text,
    tensors,
    values_of_both,
)
from perfgate.measuring.timing.blocks import run_block
from perfgate.measuring.timing.calls import timed_call
from perfgate.measuring.workload.bound import (
    POOL_SIZE,
    BoundWorkload,
    refusal,
    words_of,
)
from perfgate.measuring.workload.output import UnreadOutputError, holds_result
from perfgate.protocol import FEWEST_CALLS, SLOW_CALL_SECONDS

MAX_SIGNATURE = 1000
MAX_SHOWN = 100
# The tolerance between two outputs of the same input, as a share of the largest value:
# kernels choose their algorithm by the input's address, and round differently. An
# output of another input is far beyond it.
ROUNDING = 1e-3
# The number of calls in a block of 1 ms calls; fewer for long calls.
MOST_CALLS = 20
BLOCK_SECONDS = 0.25


def check_outputs(workload: BoundWorkload) -> list[CorrectnessResult]:
    """Call every shape: hand output and inputs, both on the host, to the workload's
    check, if it has one.
    """
    return [_check_shape(workload, shape) for shape in workload.shapes]


def _check_shape(workload: BoundWorkload, shape: str) -> CorrectnessResult:
    result = CorrectnessResult(
        workload=workload.name, shape=shape, status="not_checked"
    )
    has_check, device = workload.workload.check is not None, workload.device
    try:
        inputs = workload.host_inputs(shape)
        output = device.to_host(workload.invoke(device.to_device(inputs)))
        device.synchronize()
        form = signature(output)
        if unrun := nothing_computed(workload, output, inputs):
            raise UnreadOutputError(unrun)
        wrong: Message | str | None = refusal(workload, output, inputs)
        if (
            wrong is None and workload.workload.train_step is None
        ):  # a training step changes the model
            wrong = _stale_output(workload, shape) or _wrong_when_timed(workload, shape)
    except UnreadOutputError as error:
        return msgspec.structs.replace(result, status="error", message=error.reason)
    except Exception as error:  # noqa: BLE001 - another shape may still be called
        if has_check:
            return msgspec.structs.replace(
                result, status="error", message=words_of(error)
            )
        # The steps report a call that fails.
        return result
    result = msgspec.structs.replace(result, signature=form)
    if wrong:
        return msgspec.structs.replace(result, status="failed", message=wrong)
    if has_check:
        return msgspec.structs.replace(result, status="passed")
    return result


def nothing_computed(
    workload: BoundWorkload, output: Any, inputs: Any
) -> Message | None:
    """A message if a call shows no sign of work: no value in its output, which was
    read, and no operator.

    Workloads without operators, such as a tokenizer, return values.
    """
    if holds_result(output, inputs):
        return None
    from perfgate.measuring.counting.dispatch import runs_operators  # imports torch

    batch = workload.device.to_device(inputs)
    if runs_operators(lambda: workload.invoke(batch)):
        return None
    return Message("output.nothing-computed", {"output": signature(output)[:MAX_SHOWN]})


def _stale_output(workload: BoundWorkload, shape: str) -> Message | None:
    """A message if outputs are cached by the identity of an input; None if they are
    not, or it is unknown.
    """
    import torch

    reused, fresh = workload.new_inputs(shape), workload.new_inputs(shape)
    form = _form(reused)
    if not form or form != _form(fresh):
        return None

    try:
        kept = copy.deepcopy(fresh)
    except RuntimeError:  # e.g. a nested tensor
        return None
    expected = _answer(workload, kept)
    if not expected:
        return None
    _answer(workload, reused)
    try:
        with torch.no_grad():
            for target, source in zip(tensors(reused), tensors(fresh)):
                target.copy_(source)
    except (
        RuntimeError
    ):  # e.g. an expanded tensor, several elements of which share one memory location
        return None
    if _agree(expected, _answer(workload, reused)):
        return None
    # A model that changes with every call, or with every second, would otherwise look
    # as if it did not follow.
    if _changes(expected, lambda: _answer(workload, copy.deepcopy(fresh))):
        return None
    return Message("output.stale")


def _form(batch: Any) -> list[tuple[Any, ...]]:
    return [(outline(tensor), tensor.dtype, tensor.layout) for tensor in tensors(batch)]


def _wrong_when_timed(workload: BoundWorkload, shape: str) -> Message | None:
    """A message if the last call of a timed block returns another result than the same
    call outside a block.
    """
    pool, device = workload.pool(shape), workload.device
    seconds = timed_call(lambda: workload.invoke(pool[0]), device) / 1e9
    calls = min(MOST_CALLS, int(BLOCK_SECONDS / max(seconds, 1e-9)))
    calls = max(calls, 1 if seconds >= SLOW_CALL_SECONDS else FEWEST_CALLS)
    last: Any = None
    call_number, last_tensors = 0, list[Any]()

    def call() -> Any:
        nonlocal call_number, last, last_tensors
        output = workload.invoke(pool[call_number % POOL_SIZE])
        if call_number == calls:  # the unrecorded call comes first
            last = device.to_host(output)
            device.synchronize()
            last_tensors = _copies(last)
        call_number += 1
        return output

    run_block(call, device, calls=calls)
    inputs = pool[calls % POOL_SIZE]
    if refused := refusal(workload, last, device.to_host(inputs)):
        return Message("output.refused-when-timed", {"why": refused})

    expected = _answer(workload, inputs)
    if not expected or _agree(expected, last_tensors):
        return None
    # A model that changes with every call, or with every second, would otherwise look
    # as if timing changed it.
    if _changes(expected, lambda: _answer(workload, inputs)):
        return None
    return Message("output.differs-when-timed")


def _answer(workload: BoundWorkload, inputs: Any) -> list[Any]:
    """Copies of the tensors in the output of a call."""
    output = workload.device.to_host(workload.invoke(inputs))
    workload.device.synchronize()
    return _copies(output)


def _copies(on_host: Any) -> list[Any]:
    return [tensor.detach().clone() for tensor in tensors(on_host)]


def _changes(expected: list[Any], answer: Callable[[], list[Any]]) -> bool:
    """Whether one of two further calls answers otherwise."""
    return not (_agree(expected, answer()) and _agree(expected, answer()))


def _agree(first: list[Any], second: list[Any]) -> bool:
    return len(first) == len(second) and all(map(_close, first, second))


def _close(first: Any, second: Any) -> bool:
    if first.dtype != second.dtype:
        return False
    values = values_of_both(first, second)
    return values is not None and all(_are_close(*both) for both in values)


def _are_close(first: Any, second: Any) -> bool:
    import torch

    is_rounded = first.is_floating_point() or first.is_complex()
    if not is_rounded or not first.numel():
        return bool(torch.equal(first, second))
    first, second = in_double(first), in_double(second)
    largest = float(first.nan_to_num(posinf=0.0, neginf=0.0).abs().max())
    return bool(
        torch.allclose(first, second, rtol=0.0, atol=ROUNDING * largest, equal_nan=True)
    )


def signature(output: Any) -> str:
    """Structure, dtypes and shapes of an output, e.g.
    ``(float32[8,48], {mask: bool[8]})``.

    One that is too long ends in a hash of the rest.
    """
    text = _signature(output)
    if len(text) <= MAX_SIGNATURE:
        return text
    return f"{text[:MAX_SIGNATURE]}… {hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _signature(output: Any) -> str:
    import torch

    # A record of the transformers library is a mapping too, of those fields alone that
    # are set.
    if dataclasses.is_dataclass(output) and not isinstance(output, (type, Mapping)):
        output = {
            field.name: getattr(output, field.name)
            for field in dataclasses.fields(output)
        }
    if isinstance(output, Mapping):
        members = [f"{key}: {_signature(value)}" for key, value in output.items()]
        return f"{{{', '.join(members)}}}"
    if isinstance(output, list):
        return f"[{', '.join(map(_signature, output))}]"
    if isinstance(output, tuple):
        inner = ", ".join(map(_signature, output))
        if len(output) == 1:
            inner += ","
        return f"({inner})"
    if output is None:
        return "None"
    if isinstance(output, torch.Tensor):
        sizes = shape_text(output)
    elif hasattr(output, "dtype") and hasattr(output, "shape"):
        sizes = ",".join(map(str, output.shape))
    else:
        return type(output).__name__
    return f"{str(output.dtype).rpartition('.')[2]}[{sizes}]"

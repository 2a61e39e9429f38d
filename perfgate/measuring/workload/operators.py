"""A suite of operator cases as a workload: each case is a shape, the candidate is the model, the reference checks it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfgate.document.message import Message, WorkloadError
from perfgate.measuring.workload.workload import Workload

if TYPE_CHECKING:
    import torch

# How far the output may lie from the reference's, as a share of the reference's largest value: a sum of a thousand products
# that is taken in another order moves by a few roundings of its type.
TOLERANCES = {"float64": 1e-10, "float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}


def operator(
    candidate: Callable[..., Any],
    *,
    cases: Mapping[str, Mapping[str, Any]],
    reference: Callable[..., Any] | None = None,
    inputs: Callable[..., Any] | None = None,
    tolerance: float | None = None,
) -> Workload:
    """A suite of cases for one operator, as a workload: every case is gated as a shape is.

    Args:
        candidate: The operator, called on the inputs of every case.
        cases: A name for each case and what it holds: ``shapes`` of all arguments, and optionally ``dtype`` ("float32") and
            ``strides`` (one entry per argument, None if it is contiguous). Inputs are then random numbers.
        reference: Does the same work natively. Every output is compared with its output, and step 4 measures how much
            faster the candidate is.
        inputs: ``inputs(seed, **case)`` makes the arguments instead; a case then holds whatever that takes.
        tolerance: The largest difference from the reference as a share of its largest value. Default: 1e-10 in float64, 1e-5 in
            float32, 4e-3 in float16, 3e-2 in bfloat16, 0 in integers.

    Returns:
        A workload for perfgate.toml.

    Example:
        import torch
        from torch.nn import functional


        def rms_norm(x, weight):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


        norm = operator(
            rms_norm,
            reference=lambda x, weight: functional.rms_norm(x, weight.shape, weight, 1e-6),
            cases={
                "prompt": {"shapes": [(512, 1024), (1024,)]},
                "transposed": {"shapes": [(512, 1024), (1024,)], "strides": [(1, 512), None]},
            },
        )
    """
    make = inputs or random_inputs
    check = None
    if reference is not None:
        check = functools.partial(_check, reference, tolerance)
    return Workload(
        build=lambda _: as_model(candidate),
        inputs=lambda _batch, seed, **case: make(seed, **case),
        check=check,
        reference=reference,
        shapes=cases,
    )


def random_inputs(
    seed: int,
    *,
    shapes: Sequence[Sequence[int]],
    dtype: str = "float32",
    strides: Sequence[Sequence[int] | None] = (),
) -> tuple[torch.Tensor, ...]:
    """One tensor of each shape: normal numbers, or integers from 0 to 99 for an integer type."""
    import torch

    kind = getattr(torch, dtype, None)
    if not isinstance(kind, torch.dtype):
        raise WorkloadError(Message("workload.case-dtype", {"dtype": repr(dtype)}))
    if strides and len(strides) != len(shapes):
        raise WorkloadError(
            Message(
                "workload.case-strides",
                {"shapes": len(shapes), "strides": len(strides)},
            )
        )
    generator = torch.Generator().manual_seed(seed)
    arguments = []
    for shape, stride in zip(shapes, strides or [None] * len(shapes)):
        if stride is not None and len(stride) != len(shape):
            raise WorkloadError(
                Message(
                    "workload.case-stride",
                    {"shape": str(tuple(shape)), "strides": str(tuple(stride))},
                )
            )
        size = list(shape)
        if stride is not None:
            # All elements between the first and the last, with the elements that strides leave out.
            size = [1 + sum((n - 1) * step for n, step in zip(shape, stride))]
        if kind.is_floating_point or kind.is_complex:
            numbers = torch.randn(size, generator=generator).to(kind)
        else:
            numbers = torch.randint(100, size, generator=generator).to(kind)
        if stride is not None:
            numbers = numbers.as_strided(shape, stride)
        arguments.append(numbers)
    return tuple(arguments)


def as_model(function: Callable[..., Any]) -> torch.nn.Module:
    """A module without weights, so that candidate and reference are called the same way: that takes time too."""
    import torch

    class Operator(torch.nn.Module):
        def forward(self, *arguments: Any, **keywords: Any) -> Any:
            return function(*arguments, **keywords)

    return Operator()


def _check(
    reference: Callable[..., Any], tolerance: float | None, output: Any, inputs: Any
) -> None:
    import torch

    from perfgate.measuring.devices.batches import tensors

    expected, actual = list(tensors(_called(reference, inputs))), list(tensors(output))
    expected_form = [(tensor.dtype, tuple(tensor.shape)) for tensor in expected]
    form = [(tensor.dtype, tuple(tensor.shape)) for tensor in actual]
    if form != expected_form or not expected:
        raise AssertionError(
            f"the reference returns {expected_form}, the candidate {form}"
        )
    for first, second in zip(expected, actual):
        name = str(first.dtype).removeprefix("torch.")
        allowed = tolerance
        if allowed is None:
            allowed = TOLERANCES.get(name, 0.0)
        exact = first.to(torch.complex128) if first.is_complex() else first.double()
        computed = second.to(exact.dtype)
        largest = 0.0
        if exact.numel():
            largest = float(exact.abs().nan_to_num(posinf=0.0).max())
        close = torch.isclose(
            computed, exact, rtol=0.0, atol=allowed * largest, equal_nan=True
        )
        if not bool(close.all()):
            furthest = float(
                (computed - exact).abs().nan_to_num(nan=float("inf")).max()
            )
            share = furthest / largest if largest else float("inf")
            raise AssertionError(
                f"{int((~close).sum())} of {close.numel()} {name} values differ from the reference's, by up to {share:.3g} "
                f"of its largest; {allowed:g} is allowed"
            )


def _called(function: Callable[..., Any], inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return function(**inputs)
    if isinstance(inputs, tuple):
        return function(*inputs)
    return function(inputs)

"""In which precision the kernels of a recording multiply, and what they spend on casts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from perfgate.trace.operators import op_class
from perfgate.trace.recording import Kernel

_FULL, _LOW = ("FLOAT", "DOUBLE"), ("FLOAT16", "BF16", "DT_BF16", "HIFLOAT8", "FLOAT8_E4M3FN", "FLOAT8_E5M2")
# CUDA kernels tell it by name: ampere_bf16_s16816gemm_bf16_128x64, sm80_xmma_fprop_..._f16f16_f16f32_f32, turing_h1688gemm,
# cutlass_tensorop_s1688tf32gemm, volta_sgemm_128x64_nn (samples cuda-hta, cuda-kineto; names of CUTLASS's profiler).
_LOW_NAME = re.compile(r"bf16|(?<!t)f16|fp16|s16816|hgemm|h1688|h884|s884|e4m3|e5m2|half", re.IGNORECASE)
_FULL_NAME = re.compile(r"tf32|sgemm|dgemm|f32f32|float", re.IGNORECASE)


class ProductTimes(NamedTuple):
    """Nanoseconds of matrix products, convolutions and attention: all whose precision is known, and parts of them.

    ``full`` are those in float32 by type of kernel, ``rounded_ns`` is the part of them whose inputs the device rounded.
    """

    known_ns: int
    low_ns: int
    rounded_ns: int
    full: Counter[str]

    @property
    def low_share(self) -> float:
        """Return the share in low precision."""
        return self.low_ns / self.known_ns


class CastTimes(NamedTuple):
    """How often and how long kernels do nothing but convert, the time of all kernels, and the heaviest conversion."""

    casts: int
    cast_ns: int
    busy_ns: int
    change: str | None


def product_times(kernels: Iterable[Kernel]) -> ProductTimes:
    """Return what the products among the kernels took, by precision."""
    known = low = rounded = 0
    full: Counter[str] = Counter()
    for kernel in kernels:
        is_low = _is_low(kernel)
        if kernel.is_collective or op_class(kernel.type or kernel.name) != "conv_matmul" or is_low is None:
            continue
        known += kernel.duration_ns
        if is_low:
            low += kernel.duration_ns
            continue
        full[kernel.type or kernel.name] += kernel.duration_ns
        if kernel.hf32 or "tf32" in kernel.name.lower():
            rounded += kernel.duration_ns
    return ProductTimes(known, low, rounded, full)


def cast_times(kernels: Sequence[Kernel]) -> CastTimes | None:
    """Return the kernels that only convert between dtypes; None where the recording knows no dtypes."""
    if not any(kernel.input_dtypes for kernel in kernels):
        return None
    casts = [kernel for kernel in kernels if is_cast(kernel)]
    changes: Counter[str] = Counter()
    for kernel in casts:
        if kernel.input_dtypes and kernel.output_dtypes:
            changes[f"{kernel.input_dtypes[0]} -> {kernel.output_dtypes[0]}"] += kernel.duration_ns
    return CastTimes(
        casts=len(casts),
        cast_ns=sum(kernel.duration_ns for kernel in casts),
        busy_ns=sum(kernel.duration_ns for kernel in kernels if not kernel.is_collective),
        change=next((change for change, _ in changes.most_common(1)), None),
    )


def is_cast(kernel: Kernel) -> bool:
    """Return whether a kernel only converts: of type ``Cast``, or a copy whose result has another dtype."""
    copies = kernel.type == "TensorMove" or "aclnnInplaceCopy" in kernel.name
    return kernel.type == "Cast" or (copies and kernel.input_dtypes[:1] != kernel.output_dtypes[:1])


def _is_low(kernel: Kernel) -> bool | None:
    """Return whether a kernel reads low precision; None where nothing says. What it reads first counts, integers apart.

    A gradient's first input may be a shape (Conv2DBackpropInput reads INT32, FLOAT, FLOAT).
    """
    dtype = next((dtype for dtype in kernel.input_dtypes if dtype in (*_FULL, *_LOW)), None)
    if dtype is not None:
        return dtype in _LOW
    if kernel.input_dtypes:
        return None
    # tf32 holds f32, and f16f32 both: what is read first stands first.
    first_low, first_full = _LOW_NAME.search(kernel.name), _FULL_NAME.search(kernel.name)
    if first_low and first_full:
        return first_low.start() < first_full.start()
    return True if first_low else False if first_full else None

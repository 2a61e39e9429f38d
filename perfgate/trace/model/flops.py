"""The number of floating-point operations of a kernel, if the shapes in its table
determine it exactly.

A multiplication and an addition are two. The work of attention depends on its mask and
layout, which no table has, and sizes in formats of blocks (FRACTAL_NZ, NC1HWC0) are
padded: both are treated as unknown.
"""

from __future__ import annotations

import re
from math import prod
from typing import Literal

from perfgate.trace.model.recording import Kernel

# MatMulV2, MatMulV3, BatchMatMul, QuantBatchMatmulV3, WeightQuantBatchMatmulV2 (samples
# of 910B; aclnn API of CANN 8).
PRODUCT = re.compile(r"(?P<quantized>(?:Weight)?Quant)?(?:Batch)?Mat[Mm]ul(?:V\d)?")
CONVOLUTION = re.compile(r"Conv[23]D(?P<backward>Backprop(?:Input|Filter))?D?(?:V\d)?")
Arithmetic = Literal["float16", "float32", "int8"]
ARITHMETICS: tuple[Arithmetic, ...] = ("float16", "float32", "int8")
_ARITHMETIC: dict[str, Arithmetic] = {
    "FLOAT16": "float16",
    "BF16": "float16",
    "BFLOAT16": "float16",
    "FLOAT": "float32",
    "INT8": "int8",
}
_MATRIX = 2
_PLAIN_IMAGES = ("NCHW", "NHWC", "NCDHW", "NDHWC")
# The axis of the output channels in a filter.
_FILTER_OUTPUTS = {
    "NCHW": 0,
    "NHWC": 0,
    "NCDHW": 0,
    "NDHWC": 0,
    "HWCN": -1,
    "DHWCN": -1,
}


def arithmetic(kernel: Kernel) -> Arithmetic | None:
    """The number format that a product or convolution computes in; None for one outside
    the list.
    """
    for dtype in kernel.inputs.dtypes:
        if dtype in _ARITHMETIC:
            return _ARITHMETIC[dtype]
    return None


def flops(kernel: Kernel) -> int | None:
    """The operations of a product or convolution; None for other kernels, and if the
    table does not determine them.
    """
    kind = kernel.type or ""
    product = PRODUCT.fullmatch(kind)
    if product:
        return _of_product(kernel, quantized=product["quantized"] is not None)
    convolution = CONVOLUTION.fullmatch(kind)
    if convolution:
        return _of_convolution(kernel, convolution["backward"])
    return None


def _of_product(kernel: Kernel, *, quantized: bool) -> int | None:
    """Twice the elements of the output times the inner size, the size of the left
    matrix that the output does not have.
    """
    shapes, outputs = kernel.inputs.shapes, kernel.outputs.shapes
    formats = (*kernel.inputs.formats[:2], *kernel.outputs.formats[:1])
    if len(shapes) < _MATRIX or not outputs or len(formats) != _MATRIX + 1:
        return None
    first_shape = shapes[0]
    right = shapes[1]
    result = outputs[0]
    if (
        min(len(first_shape), len(result)) < _MATRIX
        or _is_blocked(formats[0])
        or _is_blocked(formats[2])
    ):
        return None
    rows, columns = result[-2:]
    # The left matrix may be transposed.
    first, second = first_shape[-2:]
    if rows not in (first, second):
        return None
    inner = second if first == rows else first
    # The right matrix of a quantized product may be packed.
    is_plain = not quantized and not _is_blocked(formats[1])
    if is_plain and sorted(right[-2:]) != sorted((inner, columns)):
        return None
    return 2 * prod(result) * inner


def _of_convolution(kernel: Kernel, backward: str | None) -> int | None:
    """Twice the elements of the forward output times the elements of the filter for one
    output channel, of any grouping.
    """
    inputs = list(zip(kernel.inputs.shapes, kernel.inputs.formats))
    outputs = list(zip(kernel.outputs.shapes, kernel.outputs.formats))
    # The tensors with the shapes of the filter and of the forward output.
    if backward == "BackpropInput":
        filters, results = inputs[1:2], inputs[2:3]
    elif backward == "BackpropFilter":
        filters, results = outputs[:1], inputs[2:3]
    else:
        filters, results = inputs[1:2], outputs[:1]
    if not filters or not results:
        return None
    (filter_shape, filter_format), (result, result_format) = filters[0], results[0]
    if (
        result_format not in _PLAIN_IMAGES
        or filter_format not in _FILTER_OUTPUTS
        or len(filter_shape) != len(result)
    ):
        return None
    channels = filter_shape[_FILTER_OUTPUTS[filter_format]]
    if not channels:
        return None
    return 2 * prod(result) * prod(filter_shape) // channels


def _is_blocked(layout: str) -> bool:
    return layout.startswith(("FRACTAL", "NC1", "NDC1"))

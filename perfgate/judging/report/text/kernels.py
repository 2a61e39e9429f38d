"""Names of kernels, shortened to their distinctive parts: without return type,
arguments and the inside of templates.
"""

from __future__ import annotations

import re

_RETURN_TYPES = ("void", "float", "double", "int", "bool", "__global__")
# Names in Tensile and CUTLASS are a sequence of settings; the tile is the most
# distinctive: MT128x256x32, 256x128_64x3.
_TENSILE = r"(Cijk)_.*?_(MT\d+x\d+x\d+)"
_CUTLASS = (
    r"(?:cutlass_\d+_)?(\w*?)(tensorop|wgmma|simt)_(\w*?gemm)\w*?_(\d+x\d+_\d+x\d+)"
)
_ANONYMOUS = "(anonymous namespace)::"
# The part inside the templates that distinguishes PyTorch's elementwise kernels, and
# CUTLASS's.
_FUNCTOR = r"\b(CUDAFunctor_\w+|cutlass_\w+|\w+(?:Functor|_kernel_cuda|_kernel_impl|KernelImpl|Ops))\b"
_LEAST_IN_TEMPLATE = 12
_TEMPLATE = re.compile(r"::.*<|<.*::")
_PYTEST_ID = ".py::"  # tests/test_model.py::test_forward[<lambda>]
_LONGEST = 64


def kernel_name(name: str, *, limit: int) -> str:
    """A name of at most ``limit`` letters, shortened from the middle."""
    if name.startswith("Cijk") and (tensile := re.match(_TENSILE, name)):
        return f"{tensile[1]}…{tensile[2]}"
    if "gemm" in name and (cutlass := re.match(_CUTLASS, name)):
        return f"cutlass…{cutlass[3]}_{cutlass[4]}"
    first, _, rest = name.partition(" ")
    if rest and first in _RETURN_TYPES:
        name = rest.lstrip()
    short = _without_arguments(name.replace(_ANONYMOUS, ""))
    if len(short) > limit:
        short = _outermost(short)
    if len(short) <= limit:
        return short
    head = (limit - 1) // 2
    return f"{short[:head]}…{short[len(short) - (limit - 1 - head) :]}"


def with_short_kernel(text: str) -> str:
    """The short name of a kernel instead of its long one with namespaces and templates;
    any other text as it is.
    """
    if len(text) > _LONGEST and _TEMPLATE.search(text) and _PYTEST_ID not in text:
        return kernel_name(text, limit=_LONGEST)
    return text


def _without_arguments(name: str) -> str:
    """``gemm<1>(int*)`` without its last parentheses, if they end it."""
    if not name.endswith(")"):
        return name
    depth = 0
    for place in range(len(name) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(name[place], 0)
        if depth == 0:
            return name[:place].rstrip() or name
    return name


def _outermost(name: str) -> str:
    """The inside of long templates replaced: ``elementwise_kernel<…>``; namespaces
    stay.
    """
    parts = []
    depth = 0
    inside = ""
    for letter in name:
        depth -= letter == ">" and depth > 0
        if depth:
            inside += letter
        else:
            if inside:
                parts.append(_inside(inside))
                inside = ""
            parts.append(letter)
        depth += letter == "<"
    return "".join(parts) + (inside and "…")


def _inside(template: str) -> str:
    """The arguments of a template; of long templates only the functor."""
    if len(template) <= _LEAST_IN_TEMPLATE:
        return template
    functor = re.search(_FUNCTOR, template)
    if functor:
        return f"…{functor[1]}…"
    return "…"

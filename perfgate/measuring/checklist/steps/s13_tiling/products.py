"""The matrix products and convolutions of a call: recorded at dispatch, and run again
by themselves, padded or not.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from perfgate.measuring.devices.device import Call

if TYPE_CHECKING:
    from perfgate.measuring.counting.operator_calls import OperatorCall

# Padding that makes a size more than a quarter larger computes more than it can save.
_MOST_PADDING = 1.25


class _Form(NamedTuple):
    """Which sizes the dimensions of an operator's tensors are, by a letter each: of its
    arguments and of its result.

    Letters name the last dimensions of a tensor (those before are batches), or with
    ``leading`` the first dimensions. Those that may be padded with zeros are those in
    ``padded``: the result then only gets larger.
    """

    arguments: tuple[str, ...]
    result: str
    padded: str = "mkn"
    leading: bool = False


_FORMS: Mapping[str, _Form] = {
    "aten::mm": _Form(("mk", "kn"), "mn"),
    "aten::addmm": _Form(("mn", "mk", "kn"), "mn"),
    "aten::bmm": _Form(("mk", "kn"), "mn"),
    "aten::baddbmm": _Form(("mn", "mk", "kn"), "mn"),
    # A separate kernel only on devices from outside torch; elsewhere it arrives as
    # addmm.
    "aten::linear": _Form(("mk", "nk", "n"), "mn"),
    "aten::convolution": _Form(("bc", "oc", "o"), "bo", padded="co", leading=True),
}
_TRANSPOSED, _GROUPS = 6, 8  # positions among the arguments of aten::convolution


class Operand(NamedTuple):
    """The known properties of an operator's input tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: Any


@dataclass(frozen=True)
class ReplayedProduct:
    """One matrix product or convolution on operands of one form, and how often a call
    runs it from that line.

    ``arguments`` are the arguments of ``function`` with an ``Operand`` in the place of
    each tensor; ``flops`` are of one run.
    """

    op: str
    function: Any
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    line: str | None
    flops: int
    count: int = 1

    @property
    def form(self) -> _Form:
        return _FORMS[self.op]

    def sizes(self) -> dict[str, int]:
        """Each lettered size; a broadcast bias takes the size of the others."""
        sizes: dict[str, int] = {}
        for argument, letters in zip(self.arguments, self.form.arguments):
            if isinstance(argument, Operand):
                for letter, dimension in _lettered(
                    letters, argument.shape, leading=self.form.leading
                ):
                    sizes[letter] = max(sizes.get(letter, 0), argument.shape[dimension])
        return sizes

    def padding(self, multiple: int) -> dict[str, int]:
        """The sizes that are not a multiple but near the next, and that next multiple."""
        padding = {}
        for letter, size in self.sizes().items():
            nearest = -(-size // multiple) * multiple
            if letter in self.form.padded and size < nearest <= _MOST_PADDING * size:
                padding[letter] = nearest
        return padding

    def shapes(self, padding: Mapping[str, int]) -> str:
        """The shapes of the operands that are multiplied, e.g. ``31x1000 @ 1000x1000``,
        bias apart.
        """
        shapes = []
        for argument, letters in zip(self.arguments, self.form.arguments):
            if isinstance(argument, Operand) and letters not in (
                self.form.result,
                "n",
                "o",
            ):
                sizes = _padded_shape(argument, letters, self, padding)
                shapes.append("x".join(map(str, sizes)))
        return " @ ".join(shapes)


def record_products(call: Call, *, root: Path) -> list[ReplayedProduct]:
    """Make one call and return its products and convolutions, most operations of the
    call first.

    Left out are grouped and transposed convolutions, and operands other than dense
    floating point tensors.
    """
    from perfgate.measuring.counting.dispatch import WatchingMode
    from perfgate.measuring.counting.tally import SourceLines

    lines = SourceLines(root)
    counts: Counter[ReplayedProduct] = Counter()

    class ProductMode(WatchingMode):  # type: ignore[no-untyped-call]
        def saw(self, call: OperatorCall) -> None:
            if call.name in _FORMS and _can_be_replayed(call):
                counts[_product(call, lines.of(sys._getframe(2)))] += 1

    with ProductMode():  # type: ignore[no-untyped-call]
        call()
    products = [replace(product, count=count) for product, count in counts.items()]
    return sorted(products, key=lambda product: -product.flops * product.count)


def _can_be_replayed(call: OperatorCall) -> bool:
    import torch

    for tensor in call.inputs:
        if (
            tensor.layout != torch.strided
            or tensor.is_nested
            or not tensor.is_floating_point()
        ):
            return False
    return call.name != "aten::convolution" or (
        not call.args[_TRANSPOSED] and call.args[_GROUPS] == 1
    )


def _product(call: OperatorCall, line: str | None) -> ReplayedProduct:
    flops = call.flops()
    if flops is None:
        # linear has no formula: each element of the result takes a multiplication and
        # an addition for each input.
        flops = 2 * call.result.numel() * call.args[1].shape[1]
    keywords = [
        (name, _described(value)) for name, value in sorted(call.keywords.items())
    ]
    return ReplayedProduct(
        op=call.name,
        function=call.func,
        arguments=tuple(map(_described, call.args)),
        keywords=tuple(keywords),
        line=line,
        flops=flops,
    )


def _described(argument: Any) -> Any:
    import torch

    if isinstance(argument, torch.Tensor):
        return Operand(tuple(argument.shape), tuple(argument.stride()), argument.dtype)
    if isinstance(argument, list):
        return tuple(argument)
    return argument


class ProductReplay:
    """One product on random operands of its form, and the same numbers in operands
    padded with zeros.
    """

    def __init__(
        self, product: ReplayedProduct, padding: Mapping[str, int], place: Any
    ) -> None:
        self._product = product
        self._keywords = dict(product.keywords)
        self._plain = [_random(argument, place) for argument in product.arguments]
        self._padded = list(self._plain)
        for position, letters in enumerate(
            product.form.arguments[: len(product.arguments)]
        ):
            operand = product.arguments[position]
            if isinstance(operand, Operand):
                shape = _padded_shape(operand, letters, product, padding)
                self._padded[position] = _zero_padded(self._plain[position], shape)

    def plain(self) -> Any:
        return self._product.function(*self._plain, **self._keywords)

    def padded(self) -> Any:
        return self._product.function(*self._padded, **self._keywords)

    def outputs(self) -> tuple[Any, Any]:
        """The outputs of both products, the padded one without its padding."""
        plain, padded = self.plain(), self.padded()
        return plain, padded[tuple(slice(size) for size in plain.shape)]


def _lettered(
    letters: str, shape: tuple[int, ...], *, leading: bool
) -> list[tuple[str, int]]:
    """Letters with the dimensions that they name; a bias with fewer dimensions has the
    last letters.
    """
    if leading:
        return list(zip(letters, range(len(shape))))
    last = letters[-len(shape) :] if shape else ""
    return list(zip(last, range(len(shape) - len(last), len(shape))))


def _padded_shape(
    operand: Operand, letters: str, product: ReplayedProduct, padding: Mapping[str, int]
) -> tuple[int, ...]:
    sizes, shape = product.sizes(), list(operand.shape)
    for letter, dimension in _lettered(
        letters, operand.shape, leading=product.form.leading
    ):
        # A bias of size 1 is spread over the padding too.
        if letter in padding and shape[dimension] == sizes[letter]:
            shape[dimension] = padding[letter]
    return tuple(shape)


def _random(argument: Any, place: Any) -> Any:
    import torch

    if not isinstance(argument, Operand):
        if isinstance(argument, tuple):
            return list(argument)
        return argument
    tensor = _laid_out(argument, argument.shape, place)
    # A product of numbers this small stays in the range of float16.
    return tensor.copy_(torch.randn(argument.shape, device=place) / 10)


def _zero_padded(tensor: Any, shape: tuple[int, ...]) -> Any:
    if tuple(tensor.shape) == shape:
        return tensor
    padded = _laid_out(
        Operand(tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype),
        shape,
        tensor.device,
    )
    padded.zero_()[tuple(slice(size) for size in tensor.shape)].copy_(tensor)
    return padded


def _laid_out(operand: Operand, shape: tuple[int, ...], place: Any) -> Any:
    """Memory for a tensor of a shape, with the dimensions in the operand's order."""
    import torch

    order = np.argsort(-np.array(operand.stride, dtype=np.int64), kind="stable")
    sizes = np.array(shape, dtype=np.int64)[order].tolist()
    return torch.empty(sizes, dtype=operand.dtype, device=place).permute(
        np.argsort(order).tolist()
    )

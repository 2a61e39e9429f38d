"""Watch every operator a call dispatches. Imports torch: import it where something is counted, not before."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from types import FrameType
from typing import Any, Optional

import torch
from torch._C import DispatchKey
from torch.utils._python_dispatch import TorchDispatchMode

import perfgate
from perfgate.measuring.trace.tally import OpTally

# Which operators copy a whole tensor, by schema name: position of (result, source) among result and arguments is in
# _copied. contiguous(), reshape() and to() arrive as clone or _to_copy, because composite operators are taken apart.
_COPY_TO_RESULT = frozenset({"aten::clone", "aten::_to_copy", "aten::copy"})
_COPY_IN_PLACE = frozenset({"aten::copy_", "aten::_foreach_copy_"})
# The second half of a reshape that copies: the clone is counted, this hides from autograd that it is a view of it.
_UNMARKED_VIEWS = frozenset({"aten::_unsafe_view"})
_PACKAGE = str(Path(perfgate.__file__).resolve().parent)


class CountingMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Count operators into ``ops`` by schema name (``aten::addmm``) while active.

    Under inference mode composite operators such as ``aten::linear`` reach a dispatch mode whole, with gradients on
    they arrive as their parts. Here they are always taken apart by their C++ kernel, so that both count the same: the
    operators that have a kernel of their own. Marks of ``record_function`` (``profiler::``) are no operators.
    """

    def __init__(self, ops: dict[str, OpTally], *, root: Path) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ops = ops
        self._lines = SourceLines(root)

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Count one operator and run it."""
        keywords = kwargs or {}
        if _is_composite(func):
            with self:
                return func._op_dk(DispatchKey.CompositeImplicitAutograd, *args, **keywords)
        result = func(*args, **keywords)
        name = func._schema.name
        if not name.startswith("profiler::"):
            self._count(name, args, result, view=_is_view(func))
        return result

    def _count(self, name: str, args: tuple[Any, ...], result: Any, *, view: bool) -> None:
        tally = self._ops.setdefault(name, OpTally(view=view))
        tally.count += 1
        if (line := self._lines.of(sys._getframe(2))) is not None:
            tally.lines[line] += 1
        for target, source in _copied(name, args, result):
            tally.copies += 1
            tally.copy_bytes += target.numel() * target.element_size()
            tally.noncontiguous_copies += _layout_differs(target, source)


@lru_cache(maxsize=4096)
def _is_view(func: Any) -> bool:
    """Return whether an operator's result shares its input's memory, by the alias marks of its schema (``Tensor(a)``)."""
    if func._schema.name in _UNMARKED_VIEWS:
        return True
    marks = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
    return bool(marks) and not any(mark.is_write for mark in marks)


class SourceLines:
    """Find the innermost line of the project on the Python stack.

    The project is what lies below ``root`` and belongs neither to an installed package nor to perfgate itself. An
    operator of the backward pass has no line of its own: it is charged to the line that started the pass.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._known: dict[str, Optional[str]] = {}

    def of(self, frame: Optional[FrameType]) -> Optional[str]:
        """Return ``file:line`` relative to the root, None where no frame is the project's."""
        while frame is not None:
            file = self._file(frame.f_code.co_filename)
            if file is not None:
                return f"{file}:{frame.f_lineno}"
            frame = frame.f_back
        return None

    def _file(self, name: str) -> Optional[str]:
        if name not in self._known:
            self._known[name] = self._relative(name)
        return self._known[name]

    def _relative(self, name: str) -> Optional[str]:
        if name.startswith("<"):
            return None
        path = Path(name).resolve()
        installed = {"site-packages", "dist-packages"} & set(path.parts)
        if installed or _PACKAGE in map(str, path.parents) or self._root not in path.parents:
            return None
        return path.relative_to(self._root).as_posix()


def _is_composite(func: Any) -> bool:
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"))


def _copied(name: str, args: tuple[Any, ...], result: Any) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield (result, source) of every tensor an operator copies."""
    if name in _COPY_TO_RESULT and isinstance(result, torch.Tensor):
        yield result, args[1] if name == "aten::copy" else args[0]
    elif name in _COPY_IN_PLACE:
        yield from zip(_as_list(args[0]), _as_list(args[1]))


def _as_list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, (list, tuple)) else [value]


def _layout_differs(target: torch.Tensor, source: torch.Tensor) -> bool:
    """Return whether source and result lie differently in memory; strides of dimensions of size 1 mean nothing."""
    if target.layout != torch.strided or source.layout != torch.strided or target.is_nested or source.is_nested:
        return target.layout != source.layout
    if target.shape != source.shape:
        return True
    return any(
        size > 1 and ours != theirs for size, ours, theirs in zip(target.shape, target.stride(), source.stride())
    )

"""A table of kernels column by column: a kernel becomes an object when it is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from perfgate.trace.analysis import IntColumn, counts_by_name, group_rows, totals_by_name
from perfgate.trace.recording import Kernel, is_collective

# Instead of a whole number or a time that is not known.
NO_NUMBER = -(1 << 63)
NO_TEXT = -1
_NUMBERS = ("start_ns", "duration_ns", "wait_ns", "step", "stream", "task", "model_id", "blocks", "mix_blocks")
_TEXTS = ("name", "type", "core")
_LISTS = {"inputs": "input_shapes", "outputs": "output_shapes", "input_types": "input_dtypes"}
_AT_ONCE = 65536


class Alike(NamedTuple):
    """A kernel, how many there are like it, and the nanoseconds of all of them."""

    kernel: Kernel
    number: int
    total_ns: int


@dataclass(frozen=True, eq=False)
class KernelTable(Sequence[Kernel]):
    """Kernels in the order of the file.

    ``numbers`` are columns of int64 by the names that Kernel has for them, NO_NUMBER where one is not known. ``codes`` are
    columns of positions in ``texts``, NO_TEXT where there is none: name, type and core; and ``inputs``, ``outputs`` and
    ``input_types``, a number for each list of shapes or data types, NO_TEXT for none. ``kernels_at`` makes the kernels of some
    ``rows``.
    """

    numbers: Mapping[str, IntColumn]
    codes: Mapping[str, IntColumn]
    texts: tuple[str, ...]
    rows: npt.NDArray[np.intp]
    kernels_at: Callable[[npt.NDArray[np.intp]], Iterator[Kernel]]

    @staticmethod
    def of(kernels: Sequence[Kernel]) -> KernelTable:
        """The columns of kernels, whatever they are kept as."""
        if isinstance(kernels, KernelTable):
            return kernels
        texts: dict[str, int] = {}
        codes = {name: _column([_number(texts, getattr(kernel, name)) for kernel in kernels]) for name in _TEXTS}
        for name, field in _LISTS.items():
            numbers_of: dict[tuple[object, ...], int] = {(): NO_TEXT}
            codes[name] = _column([numbers_of.setdefault(getattr(one, field), len(numbers_of)) for one in kernels])
        numbers = {
            name: _column([NO_NUMBER if (value := getattr(kernel, name)) is None else value for kernel in kernels])
            for name in _NUMBERS
        }
        rows = np.arange(len(kernels))
        return KernelTable(numbers, codes, tuple(texts), rows, lambda chosen: (kernels[row] for row in chosen.tolist()))

    def __len__(self) -> int:
        return int(self.rows.size)

    def __iter__(self) -> Iterator[Kernel]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self.kernels_at(self.rows[begin : begin + _AT_ONCE])

    @overload
    def __getitem__(self, place: int) -> Kernel: ...

    @overload
    def __getitem__(self, place: slice) -> KernelTable: ...

    def __getitem__(self, place: int | slice) -> Kernel | KernelTable:
        if isinstance(place, slice):
            return self.select(np.arange(len(self))[place])
        return next(self.kernels_at(self.rows[place : place + 1 or None]))

    def select(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> KernelTable:
        """The kernels chosen by a mask, or by positions in their order."""
        return replace(
            self,
            numbers={name: column[chosen] for name, column in self.numbers.items()},
            codes={name: column[chosen] for name, column in self.codes.items()},
            rows=self.rows[chosen],
        )

    @property
    def start(self) -> IntColumn:
        return self.numbers["start_ns"]

    @property
    def duration(self) -> IntColumn:
        return self.numbers["duration_ns"]

    @cached_property
    def group(self) -> IntColumn:
        """What a table of operators counts each kernel under: its type, else its name."""
        return np.where(self.codes["type"] == NO_TEXT, self.codes["name"], self.codes["type"])

    @cached_property
    def is_collective(self) -> npt.NDArray[np.bool_]:
        """Which are shares of collectives, as ``Kernel.is_collective`` says; each name and core is looked at once."""
        by_core = np.array([is_collective("", text) for text in (*self.texts, "")], dtype=bool)
        by_name = np.array([is_collective(text, None) for text in (*self.texts, "")], dtype=bool)
        either: npt.NDArray[np.bool_] = by_core[self.codes["core"]] | by_name[self.codes["name"]]
        return either

    def of_types(self, *patterns: re.Pattern[str]) -> KernelTable:
        """The kernels whose type, else whose name, one of the patterns describes in full."""
        codes = [code for code, text in enumerate(self.texts) if any(pattern.fullmatch(text) for pattern in patterns)]
        return self.select(np.isin(self.group, codes))

    def alike(self) -> Iterator[Alike]:
        """Those that are equal in type, shapes and data types of inputs, and shapes of outputs: one of each."""
        first, row = group_rows(self.group, *(self.codes[name] for name in ("inputs", "outputs", "input_types")))
        totals, counts = totals_by_name(row, self.duration, first.size), counts_by_name(row, first.size)
        for kernel, count, total in zip(self.select(first), counts.tolist(), totals.tolist()):
            yield Alike(kernel, count, total)

    @property
    def steps(self) -> list[int]:
        """The numbers of the profiler's steps, rising."""
        return [number for number in np.unique(self.numbers["step"]).tolist() if number != NO_NUMBER]


def _column(values: list[Any]) -> IntColumn:
    return np.array(values, dtype=np.int64)


def _number(texts: dict[str, int], text: str | None) -> int:
    return NO_TEXT if text is None else texts.setdefault(text, len(texts))

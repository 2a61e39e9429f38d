"""A table of kernels column by column: a kernel becomes an object on access."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from perfgate.trace.model.arithmetic import (
    CodeColumn,
    Codes,
    Groups,
    IntColumn,
    Mask,
    Positions,
    counts_by_name,
    totals_by_name,
)
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.counters import CounterColumns, KeptCounters
from perfgate.trace.model.events import KIND_CODES, NO_CORRELATION, NO_TEXT, EventTable, constant
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.packed import NO_NUMBER, Columns, Packed, PackedReals, Rows, distinct_rows, joined_columns
from perfgate.trace.model.recording import Kernel, Shapes, is_collective_core

NUMBERS = ("start_ns", "duration_ns", "wait_ns", "step", "stream", "task", "model_id", "blocks", "mix_blocks")
TEXTS = ("name", "type", "core", "state")
# Columns of lists here, and the fields of Kernel that they fill.
SHAPES = {"inputs": "input_shapes", "outputs": "output_shapes"}
WORDS = {
    "input_types": "input_dtypes",
    "input_formats": "input_formats",
    "output_types": "output_dtypes",
    "output_formats": "output_formats",
}
_AT_ONCE = 65536
_Value = TypeVar("_Value", bound=Hashable)


class Alike(NamedTuple):
    """Kernels that differ only in when and how long they ran and in counters: the first, how many, and their nanoseconds."""

    kernel: Kernel
    number: int
    total_ns: int


@dataclass(frozen=True, eq=False)
class KernelTable(Sequence[Kernel]):
    """Kernels in the order of the file.

    ``numbers`` are columns by the names of Kernel's fields, NO_NUMBER for unknown values. ``codes`` are positions in
    ``texts``, in ``shapes`` or in ``words``, and of ``hf32`` 0 or 1; NO_TEXT for none.
    """

    numbers: Columns[IntColumn]
    codes: Columns[CodeColumn]
    texts: tuple[str, ...]
    shapes: tuple[Shapes, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    counters: CounterColumns = field(default_factory=CounterColumns)

    @staticmethod
    def of(kernels: Sequence[Kernel]) -> KernelTable:
        """The columns of kernels, from any sequence of them."""
        return kernels if isinstance(kernels, KernelTable) else _table_of(kernels)

    def __len__(self) -> int:
        return len(self.numbers.packed["duration_ns"])

    def __iter__(self) -> Iterator[Kernel]:
        for begin in range(0, len(self), _AT_ONCE):
            yield from self._kernels(np.arange(begin, min(begin + _AT_ONCE, len(self))))

    @overload
    def __getitem__(self, place: int) -> Kernel: ...

    @overload
    def __getitem__(self, place: slice) -> KernelTable: ...

    def __getitem__(self, place: int | slice) -> Kernel | KernelTable:
        if isinstance(place, slice):
            return self.select(np.arange(len(self))[place])
        return next(self._kernels(np.arange(len(self))[place : place + 1 or None]))

    def select(self, chosen: Rows) -> KernelTable:
        """The kernels chosen by a mask, or by positions in their order."""
        if chosen.dtype == bool and chosen.all():
            return self
        return replace(
            self,
            numbers=self.numbers.select(chosen),
            codes=self.codes.select(chosen),
            counters=self.counters.select(chosen),
        )

    def kept(self) -> KernelTable:
        """The same with its counters in memory."""
        return replace(self, counters=self.counters.kept())

    @property
    def start(self) -> IntColumn:
        return self.numbers["start_ns"]

    @cached_property
    def duration(self) -> IntColumn:
        return self.numbers["duration_ns"]

    @property
    def group(self) -> CodeColumn:
        """The name under which a table of operators counts each kernel: its type, else its own name."""
        kind = self.codes["type"]
        return np.where(kind == NO_TEXT, self.codes["name"], kind) if (kind == NO_TEXT).any() else kind

    @cached_property
    def events(self) -> EventTable:
        """One event per kernel, in their order and on one track; one without a known start begins at 0."""
        start, name, kind = self.start, self.codes["name"], self.codes["type"]
        numbers = {text: number for number, text in enumerate(self.texts)}
        if (kind == NO_TEXT).any():
            by_name = np.full(len(self.texts), NO_TEXT, dtype=np.int32)
            for code in np.unique(name[kind == NO_TEXT]).tolist():
                by_name[code] = numbers.setdefault(type_by_name(self.texts[code]), len(numbers))
            kind = np.where(kind == NO_TEXT, by_name[name], kind)
        return EventTable(
            start=np.where(start == NO_NUMBER, 0, start) if (start == NO_NUMBER).any() else start,
            duration=self.duration,
            track=constant("track", 0, len(self)),
            name=name,
            kind=self.kind,
            correlation=constant("correlation", NO_CORRELATION, len(self)),
            group=kind,
            request=constant("request", NO_TEXT, len(self)),
            shape=constant("shape", NO_TEXT, len(self)),
            names=tuple(numbers),
            tracks=(("", ""),),
        )

    @cached_property
    def kind(self) -> Codes:
        """The kind of each as an event, as in ``Kernel.kind``; each name and core is examined once."""
        by_core = np.array([is_collective_core(text) for text in (*self.texts, "")], dtype=bool)
        by_name = np.array([KIND_CODES[kernel_kind(text)] for text in (*self.texts, "")], dtype=np.uint8)
        return np.where(by_core[self.codes["core"]], np.uint8(KIND_CODES["comm"]), by_name[self.codes["name"]])

    @property
    def is_collective(self) -> Mask:
        """Which are shares of collectives and nothing else."""
        collective: Mask = self.kind == KIND_CODES["comm"]
        return collective

    @property
    def steps(self) -> list[int]:
        """The numbers of the profiler's steps, rising."""
        return sorted(number for number in self.numbers.packed["step"].distinct() if number != NO_NUMBER)

    def of_types(self, *patterns: re.Pattern[str]) -> KernelTable:
        """The kernels with a type, else a name, that one of the patterns matches in full."""
        codes = [code for code, text in enumerate(self.texts) if any(pattern.fullmatch(text) for pattern in patterns)]
        return self.select(np.isin(self.group, codes))

    def alike(self, *, named: bool = True) -> tuple[Alike, ...]:
        """All kernels grouped by their properties, in the order of their first members; else by type, inputs and outputs."""
        columns = (Packed.of(self.group), *(self.codes.packed[name] for name in (*SHAPES, *WORDS)))
        first, row = self._alike if named else distinct_rows(columns)
        numbers, totals = counts_by_name(row, first.size), totals_by_name(row, self.duration, first.size)
        return tuple(map(Alike, self._kernels(first), numbers.tolist(), totals.tolist()))

    @property
    def alike_number(self) -> Codes:
        """The position of each kernel's like in ``alike``."""
        return self._alike[1]

    def longest_alike(self) -> list[int]:
        """The nanoseconds of the longest of each of those that are alike."""
        first, row = self._alike
        longest = np.zeros(first.size, dtype=np.int64)
        np.maximum.at(longest, row, self.duration)
        return longest.tolist()

    @cached_property
    def _alike(self) -> Groups:
        """The first of those that are alike, and the number of each kernel's like."""
        columns = [*self.codes.packed.values(), self.numbers.packed["model_id"], self.numbers.packed["blocks"]]
        return distinct_rows(columns)

    def _kernels(self, rows: Positions) -> Iterator[Kernel]:
        """The kernels of some rows."""

        def column(names: Iterable[str], values: Sequence[Any]) -> list[list[Any]]:
            return [
                [values[code] for code in self.codes.packed[name].select(rows).unpacked().tolist()] for name in names
            ]

        numbers = [
            [
                None if number == NO_NUMBER else number
                for number in self.numbers.packed[name].select(rows).unpacked().tolist()
            ]
            for name in NUMBERS
        ]
        texts = column(TEXTS, (*self.texts, None))
        shapes = column(SHAPES, (*self.shapes, ()))
        words = column(WORDS, (*self.words, ()))
        (hf32,) = column(("hf32",), (False, True, None))
        for row, number, text, flag, shape, word in zip(
            rows.tolist(), zip(*numbers), zip(*texts), hf32, zip(*shapes), zip(*words)
        ):
            start, duration, wait, step, stream, task, model, blocks, mix = number
            name, kind, core, state = text
            yield Kernel(
                name,
                kind,
                core,
                start,
                duration,
                wait,
                step,
                stream,
                task,
                model,
                state,
                blocks,
                mix,
                flag,
                shape[0],
                word[0],
                word[1],
                shape[1],
                word[2],
                word[3],
                self.counters.of(row),
            )


def kernel_table(
    numbers: Mapping[str, Packed],
    codes: Mapping[str, Packed],
    *,
    texts: dict[str, int],
    shapes: Iterable[Shapes] = (),
    words: Iterable[tuple[str, ...]] = (),
    counters: CounterColumns | None = None,
) -> KernelTable:
    """A table of some columns; values outside them are unknown. A kernel without a name has an empty one."""
    size = len(numbers["duration_ns"])
    if NO_TEXT in codes["name"].distinct():
        empty = texts.setdefault("", len(texts))
        codes = {**codes, "name": codes["name"].changed(lambda name: np.where(name == NO_TEXT, empty, name))}
    unknown, none = Packed.same(NO_NUMBER, size), Packed.same(NO_TEXT, size)
    return KernelTable(
        Columns({name: numbers.get(name, unknown) for name in NUMBERS}, Packed.unpacked),
        Columns({name: codes.get(name, none) for name in (*TEXTS, "hf32", *SHAPES, *WORDS)}, Packed.codes),
        tuple(texts),
        tuple(shapes),
        tuple(words),
        counters or CounterColumns(),
    )


def joined_tables(tables: Sequence[KernelTable]) -> KernelTable:
    """The kernels of all tables, one behind the other."""
    if len(tables) == 1:
        return tables[0]
    texts: dict[str, int] = {}
    shapes: dict[Shapes, int] = {}
    words: dict[tuple[str, ...], int] = {}
    codes: dict[str, list[Packed]] = {}
    for table in tables:
        places = (
            (TEXTS, _places(table.texts, texts)),
            (SHAPES, _places(table.shapes, shapes)),
            (WORDS, _places(table.words, words)),
        )
        for name, place in ((name, place) for names, place in places for name in names):
            codes.setdefault(name, []).append(Packed.of(place[table.codes[name]]))
        codes.setdefault("hf32", []).append(table.codes.packed["hf32"])
    numbers = {name: joined_columns([table.numbers.packed[name] for table in tables]) for name in NUMBERS}
    return kernel_table(
        numbers,
        {name: joined_columns(parts) for name, parts in codes.items()},
        texts=texts,
        shapes=shapes,
        words=words,
        counters=CounterColumns(_Joined(tables)),
    )


class _Joined:
    """The counters of several tables, one behind the other."""

    def __init__(self, tables: Sequence[KernelTable]) -> None:
        self._tables = tables

    @cached_property
    def names(self) -> Sequence[str]:
        return tuple(dict.fromkeys(name for table in self._tables for name in table.counters.names))

    def read(self, names: Sequence[str]) -> list[PackedReals]:
        parts = [(len(table), table.counters.columns(*names)) for table in self._tables]
        return [
            PackedReals(*(found[name] if name in found else np.full(size, np.nan) for size, found in parts))
            for name in names
        ]


def _table_of(kernels: Sequence[Kernel]) -> KernelTable:
    texts: dict[str, int] = {}
    shapes: dict[Shapes, int] = {}
    words: dict[tuple[str, ...], int] = {}

    def column(values: Sequence[int]) -> Packed:
        return Packed.of(np.array(values, dtype=np.int64))

    codes = {name: column([_code(getattr(kernel, name), texts) for kernel in kernels]) for name in TEXTS}
    codes["hf32"] = column([NO_TEXT if kernel.hf32 is None else int(kernel.hf32) for kernel in kernels])
    for name, field_name in SHAPES.items():
        codes[name] = column([_code(getattr(kernel, field_name), shapes) for kernel in kernels])
    for name, field_name in WORDS.items():
        codes[name] = column([_code(getattr(kernel, field_name), words) for kernel in kernels])
    numbers = {
        name: column([NO_NUMBER if (value := getattr(kernel, name)) is None else value for kernel in kernels])
        for name in NUMBERS
    }
    counters = {
        name: PackedReals(np.array([kernel.counters.get(name, np.nan) for kernel in kernels]))
        for name in dict.fromkeys(name for kernel in kernels for name in kernel.counters)
    }
    source = CounterColumns(KeptCounters(counters))
    return kernel_table(numbers, codes, texts=texts, shapes=shapes, words=words, counters=source)


def _code(value: _Value | None, numbers: dict[_Value, int]) -> int:
    """The number of a value, NO_TEXT for none and for a list without members."""
    return NO_TEXT if value is None or value == () else numbers.setdefault(value, len(numbers))


def _places(values: Sequence[_Value], numbers: dict[_Value, int]) -> IntColumn:
    """The number of each value among ``numbers``, which takes in those that are new; the last entry is for none."""
    return np.array([*(numbers.setdefault(value, len(numbers)) for value in values), NO_TEXT], dtype=np.int64)

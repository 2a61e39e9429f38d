"""A table of kernels column by column: a kernel becomes an object on access."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np

from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    CodeColumn,
    Codes,
    FloatColumn,
    Groups,
    IntColumn,
    Mask,
    Positions,
    Rows,
    counts_by_name,
    distinct,
    distinct_rows,
    known_number,
    number_of,
    one_of,
    totals_by_name,
)
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.model.counters import CounterColumns, KeptCounters
from perfgate.trace.model.events import (
    KIND_CODES,
    NO_TEXT,
    SHORTEST_WORK_NS,
    EventKind,
    EventTable,
)
from perfgate.trace.model.kernel_names import type_by_name
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.recording import (
    Kernel,
    Launch,
    Shapes,
    Tensors,
    is_collective_core,
)

NUMBERS = (
    "start_ns",
    "duration_ns",
    "wait_ns",
    "step",
    "stream",
    "task",
    "model_id",
    "blocks",
    "mix_blocks",
)
TEXTS = ("name", "type", "core", "state")
SHAPES = ("inputs", "outputs")
WORDS = ("input_types", "input_formats", "output_types", "output_formats")
HF32 = Numbering((False, True))
_Record = TypeVar("_Record", bound=tuple[Any, ...])
_AT_ONCE = 65536


class Alike(NamedTuple):
    """Kernels that differ only in when and how long they ran and in counters: the
    first, how many, and their nanoseconds.
    """

    kernel: Kernel
    number: int
    total_ns: int


@dataclass(frozen=True, eq=False)
class KernelTable(Sequence[Kernel]):
    """Kernels in the order of the file.

    ``numbers`` are columns by the names of fields of Kernel and Launch, NO_NUMBER for
    unknown values. ``codes`` are positions in ``texts``, in ``shapes`` or in ``words``,
    and of ``hf32`` 0 or 1; NO_TEXT for none.
    """

    numbers: Mapping[str, IntColumn]
    codes: Mapping[str, CodeColumn]
    texts: tuple[str, ...]
    shapes: tuple[Shapes, ...] = ()
    words: tuple[tuple[str, ...], ...] = ()
    counters: CounterColumns = field(default_factory=CounterColumns)

    @staticmethod
    def of(kernels: Sequence[Kernel]) -> KernelTable:
        """The columns of kernels, from any sequence of them."""
        if isinstance(kernels, KernelTable):
            return kernels
        return _table_of(kernels)

    def __len__(self) -> int:
        return self.duration.size

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
            numbers={name: column[chosen] for name, column in self.numbers.items()},
            codes={name: column[chosen] for name, column in self.codes.items()},
            counters=self.counters.select(chosen),
        )

    def kept(self) -> KernelTable:
        """The same with its counters in memory."""
        return replace(self, counters=self.counters.kept())

    @property
    def start(self) -> IntColumn:
        return self.numbers["start_ns"]

    @property
    def duration(self) -> IntColumn:
        return self.numbers["duration_ns"]

    @property
    def group(self) -> CodeColumn:
        """The name under which a table of operators counts each kernel: its type, else
        its own name.
        """
        kind = self.codes["type"]
        untyped = kind == NO_TEXT
        return np.where(untyped, self.codes["name"], kind)

    @cached_property
    def events(self) -> EventTable:
        """One event per kernel, in their order and on one track; one without a known
        start begins at 0.
        """
        start = self.start
        name = self.codes["name"]
        group = self.codes["type"]
        numbers = Numbering(self.texts)
        untyped = group == NO_TEXT
        if untyped.any():
            by_name = np.full(len(self.texts), NO_TEXT, dtype=np.int32)
            for code in np.unique(name[untyped]).tolist():
                by_name[code] = numbers[type_by_name(self.texts[code])]
            group = np.where(untyped, by_name[name], group)
        unknown = start == NO_NUMBER
        if unknown.any():
            start = np.where(unknown, 0, start)
        return EventTable(
            start=start,
            duration=self.duration,
            track=np.array(0),
            name=name,
            kind=self.kind,
            group=group,
            names=tuple(numbers),
            tracks=(("", ""),),
            shortest_ns=SHORTEST_WORK_NS,
        )

    @cached_property
    def kind(self) -> Codes:
        """The kind of each as an event, as in ``Kernel.kind``; each name and core is
        examined once.
        """
        texts = (*self.texts, "")  # the last stands for none
        by_core = np.array([is_collective_core(text) for text in texts], dtype=bool)
        by_name = np.array(
            [KIND_CODES[kernel_kind(text)] for text in texts], dtype=np.uint8
        )
        kind = by_name[self.codes["name"]]
        kind[by_core[self.codes["core"]]] = KIND_CODES["comm"]
        return kind

    @property
    def is_collective(self) -> Mask:
        """Which kernels are only shares of collectives."""
        return self.is_kind("comm")

    def is_kind(self, *kinds: EventKind) -> Mask:
        return one_of(self.kind, (KIND_CODES[kind] for kind in kinds))

    @property
    def steps(self) -> list[int]:
        """The numbers of the profiler's steps, rising."""
        return sorted(
            number for number in distinct(self.numbers["step"]) if number != NO_NUMBER
        )

    def of_types(self, *patterns: re.Pattern[str]) -> KernelTable:
        """The kernels with a type, else a name, that one of the patterns matches in
        full.
        """
        is_chosen = np.zeros(len(self.texts), dtype=bool)
        for pattern in patterns:
            is_chosen |= [pattern.fullmatch(text) is not None for text in self.texts]
        return self.select(is_chosen.take(self.group))

    def alike(self, *, named: bool = True) -> tuple[Alike, ...]:
        """All kernels grouped by their properties, in the order of their first members.

        If not ``named``, they are grouped only by type, inputs and outputs.
        """
        first, row = self._alike
        if not named:
            columns = [self.codes[name] for name in (*SHAPES, *WORDS)]
            first, row = distinct_rows([self.group, *columns])
        numbers = counts_by_name(row, first.size)
        totals = totals_by_name(row, self.duration, first.size)
        return tuple(
            map(Alike, self._kernels(first), numbers.tolist(), totals.tolist())
        )

    @property
    def alike_number(self) -> Codes:
        """The position in ``alike`` of each kernel's group."""
        return self._alike[1]

    def longest_alike(self) -> list[int]:
        """The nanoseconds of the longest kernel of each group in ``alike``."""
        first, row = self._alike
        longest = np.zeros(first.size, dtype=np.int64)
        np.maximum.at(longest, row, self.duration)
        return longest.tolist()

    @cached_property
    def _alike(self) -> Groups:
        return distinct_rows(
            [*self.codes.values(), self.numbers["model_id"], self.numbers["blocks"]]
        )

    def _kernels(self, rows: Positions) -> Iterator[Kernel]:
        """The kernels of some rows."""
        fields: dict[str, Iterable[Any]] = {}
        for name in NUMBERS:
            fields[name] = map(known_number, self.numbers[name][rows].tolist())
        for name in TEXTS:
            fields[name] = self._values(name, rows, (*self.texts, None))
        fields["launch"] = _records(Launch, [fields[name] for name in Launch._fields])
        fields["hf32"] = self._values("hf32", rows, (*HF32, None))
        fields["inputs"] = self._tensors("input", rows)
        fields["outputs"] = self._tensors("output", rows)
        fields["counters"] = map(self.counters.of, rows.tolist())
        return _records(Kernel, [fields[name] for name in Kernel._fields])

    def _tensors(self, side: str, rows: Positions) -> Iterator[Tensors]:
        shapes = self._values(f"{side}s", rows, (*self.shapes, ()))
        dtypes = self._values(f"{side}_types", rows, (*self.words, ()))
        formats = self._values(f"{side}_formats", rows, (*self.words, ()))
        return _records(Tensors, [shapes, dtypes, formats])

    def _values(self, name: str, rows: Positions, values: Sequence[Any]) -> list[Any]:
        """A column of codes as the values that they stand for; the last is for none."""
        return [values[code] for code in self.codes[name][rows].tolist()]


def _records(
    kind: type[_Record], columns: Sequence[Iterable[Any]]
) -> Iterator[_Record]:
    """The named tuples of some columns.

    Making them as plain tuples are made takes a third of the time.
    """
    return map(partial(tuple.__new__, kind), zip(*columns))


class CodedValues:
    """The distinct values of the columns of codes, and their numbers."""

    def __init__(self, texts: Numbering[str] | None = None) -> None:
        self.texts = Numbering[str]() if texts is None else texts
        self.shapes = Numbering[Shapes]()
        self.words = Numbering[tuple[str, ...]]()


def kernel_table(
    numbers: Mapping[str, IntColumn],
    codes: Mapping[str, Codes],
    values: CodedValues,
    counters: CounterColumns | None = None,
) -> KernelTable:
    """A table of some columns; values outside them are unknown.

    A kernel without a name has an empty one.
    """
    size = numbers["duration_ns"].size
    unknown = np.broadcast_to(np.int64(NO_NUMBER), size)
    none = np.broadcast_to(np.int32(NO_TEXT), size)
    every_code = {}
    for name in (*TEXTS, "hf32", *SHAPES, *WORDS):
        every_code[name] = codes.get(name, none).astype(np.int32, copy=False)
    unnamed = every_code["name"] == NO_TEXT
    if unnamed.any():
        every_code["name"] = np.where(
            unnamed, np.int32(values.texts[""]), every_code["name"]
        )
    return KernelTable(
        {name: numbers.get(name, unknown) for name in NUMBERS},
        every_code,
        tuple(values.texts),
        tuple(values.shapes),
        tuple(values.words),
        counters or CounterColumns(),
    )


def joined_tables(tables: Sequence[KernelTable]) -> KernelTable:
    """The kernels of all tables, one behind the other."""
    if len(tables) == 1:
        return tables[0]
    values = CodedValues()
    codes: dict[str, list[Codes]] = defaultdict(list)
    for table in tables:
        # The last place is NO_TEXT.
        texts = values.texts.codes((*table.texts, None))
        shapes = values.shapes.codes((*table.shapes, None))
        words = values.words.codes((*table.words, None))
        for names, place in ((TEXTS, texts), (SHAPES, shapes), (WORDS, words)):
            for name in names:
                codes[name].append(place[table.codes[name]])
        codes["hf32"].append(table.codes["hf32"])
    numbers = {}
    for name in NUMBERS:
        numbers[name] = np.concatenate([table.numbers[name] for table in tables])
    joined_codes = {name: np.concatenate(parts) for name, parts in codes.items()}
    return kernel_table(numbers, joined_codes, values, CounterColumns(_Joined(tables)))


class _Joined:
    """The counters of several tables, one behind the other."""

    def __init__(self, tables: Sequence[KernelTable]) -> None:
        self._tables = tables

    @cached_property
    def names(self) -> Sequence[str]:
        names = {}
        for table in self._tables:
            names.update(dict.fromkeys(table.counters.names))
        return tuple(names)

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        parts: dict[str, list[FloatColumn]] = defaultdict(list)
        for table in self._tables:
            columns = table.counters.columns(*names)
            for name in names:
                parts[name].append(columns.get(name, np.full(len(table), np.nan)))
        return [np.concatenate(parts[name]) for name in names]


def _table_of(kernels: Sequence[Kernel]) -> KernelTable:
    fields: dict[str, Sequence[Any]] = dict.fromkeys(
        (*Kernel._fields, *Launch._fields), ()
    )
    if kernels:
        fields.update(zip(Kernel._fields, zip(*kernels)))
        fields.update(zip(Launch._fields, zip(*fields["launch"])))
    values = CodedValues()
    codes = {name: values.texts.codes(fields[name]) for name in TEXTS}
    codes["hf32"] = HF32.codes(fields["hf32"])
    for side in ("input", "output"):
        tensors: Sequence[Tensors] = fields[f"{side}s"]
        codes[f"{side}s"] = values.shapes.codes(of.shapes or None for of in tensors)
        codes[f"{side}_types"] = values.words.codes(of.dtypes or None for of in tensors)
        codes[f"{side}_formats"] = values.words.codes(
            of.formats or None for of in tensors
        )
    numbers = {}
    for name in NUMBERS:
        numbers[name] = np.array(list(map(number_of, fields[name])), dtype=np.int64)
    names = {}
    for counters in fields["counters"]:
        names.update(dict.fromkeys(counters))
    counter_columns = {}
    for name in names:
        counter_columns[name] = np.array(
            [counters.get(name, np.nan) for counters in fields["counters"]]
        )
    return kernel_table(
        numbers, codes, values, CounterColumns(KeptCounters(counter_columns))
    )

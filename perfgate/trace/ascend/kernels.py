"""The table of kernels: kernel_details.csv of torch_npu, op_summary_*.csv of msprof."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError
from perfgate.trace.analysis import IntColumn
from perfgate.trace.ascend.files import MAX_NUMBER_TEXT, MAX_ROWS, Device, Row, clean_cell, plain_header, rows_of
from perfgate.trace.kernel_table import NO_NUMBER, NO_TEXT, KernelTable
from perfgate.trace.recording import Kernel
from perfgate.trace.scanner.table import CellKind, ScannedTable, scan_table

# What CANN's GE_OP_MODEL_ID says of a kernel that belongs to no graph (msprof constant.py).
EAGER_MODEL_ID = 4294967295
# Every other column is a hardware counter.
_COLUMNS = frozenset(
    (
        *("step id", "device_id", "model id", "model name", "task id", "stream id", "infer id"),
        *("name", "type", "op state"),
        *("accelerator core", "start time(us)", "duration(us)", "wait time(us)", "block dim", "mix block dim"),
        *("hf32 eligible", "input shapes", "input data types", "input formats", "output shapes", "output data types"),
        *("output formats", "context id", "batch id", "subtask id", "index id"),
    )
)
_KINDS: dict[str, CellKind] = {
    **dict.fromkeys(
        ("step id", "device_id", "model id", "task id", "stream id", "block dim", "mix block dim"), "whole"
    ),
    **dict.fromkeys(("start time(us)", "duration(us)", "wait time(us)"), "time"),
    **dict.fromkeys(("name", "type", "op state", "accelerator core", "hf32 eligible"), "text"),
    **dict.fromkeys(("input shapes", "input data types", "input formats"), "text"),
    **dict.fromkeys(("output shapes", "output data types", "output formats"), "text"),
}
_CACHE_SIZE = 100_000

Shapes = tuple[tuple[int, ...], ...]


class Counters(Mapping[str, float]):
    """A kernel's hardware counters by column name in eight bytes each; a column without a number is not there."""

    __slots__ = ("_positions", "_values")

    def __init__(self, positions: Mapping[str, int], values: Sequence[float] | npt.NDArray[np.float64]) -> None:
        """``positions`` are shared by all kernels of a table; a value is NaN where there is none."""
        self._positions, self._values = positions, values

    def __getitem__(self, name: str) -> float:
        value = float(self._values[self._positions[name]])
        if math.isnan(value):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, index in self._positions.items() if not math.isnan(self._values[index]))

    def __len__(self) -> int:
        return sum(not math.isnan(value) for value in self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


class KernelRows(NamedTuple):
    """The kernels of a table by device, and how many rows lack what a kernel must have."""

    by_device: dict[Device, Sequence[Kernel]]
    incomplete: int


def read_kernels(path: Path) -> KernelRows:
    """The kernels of a table in the order of the file. Raises DocumentError for what is no such table."""
    return scan_kernels(path) or read_rows(path)


def read_rows(path: Path) -> KernelRows:
    """As ``read_kernels``, row by row: slowly, and with the place of what is wrong."""
    reader: _Reader | None = None
    kernels: dict[Device, list[Kernel]] = {}
    incomplete = 0
    for row in rows_of(path, limit=MAX_ROWS):
        reader = reader or _Reader(row, path)
        try:
            kernel = reader.kernel(row)
        except DocumentError:
            # A row of 2023 lacks its duration, and what follows is shifted (sample msinsight-gpt3-cann7-2309).
            if not row.is_short:
                raise
            kernel = None
        if kernel is None:
            incomplete += 1
        else:
            kernels.setdefault(row.whole("device_id"), []).append(kernel)
    return KernelRows({device: tuple(rows) for device, rows in kernels.items()}, incomplete)


def scan_kernels(path: Path) -> KernelRows | None:
    """As ``read_rows`` reads them, by the compiled scanner; None where that is not there, or the table is not plain."""
    try:
        header = plain_header(path)
        if header is None or not {"name", "duration(us)"} <= set(header.names):
            return None
        kinds: list[CellKind] = ["skipped"] * header.size
        for name, position in header.names.items():
            kinds[position] = _KINDS.get(name, "skipped" if name in _COLUMNS else "real")
        table = scan_table(path, kinds, skip=header.bytes)
        return None if table is None else _Columns(table, header.names).rows()
    except (OSError, ValueError):
        return None


class _Columns:
    """A scanned table of kernels; equal shapes and words are one object."""

    def __init__(self, table: ScannedTable, names: Mapping[str, int]) -> None:
        """Raises ValueError where a shape is none, or a kernel takes less than no time."""
        self._cells = {name: table[position] for name, position in names.items() if name in _KINDS}
        self._size = next(iter(self._cells.values())).size
        self._texts = [clean_cell(text) for text in table.texts]
        self._shapes = {
            code: split_shapes(cell)
            for name in ("input shapes", "output shapes")
            for code in self._distinct(name)
            if (cell := table.texts[code].strip()) and cell != "N/A"
        }
        self._words: dict[int, tuple[str, ...]] = {
            code: split_words(self._texts[code])
            for name in ("input data types", "input formats", "output data types", "output formats")
            for code in self._distinct(name)
        }
        counters = [name for name in names if name not in _COLUMNS]
        self._counters = {name: number for number, name in enumerate(counters)}
        columns = [table[names[name]] for name in counters]
        self._values = np.stack(columns, axis=1) if columns else np.empty((self._size, 0))
        self._model = np.where(self._number("model id") == EAGER_MODEL_ID, NO_NUMBER, self._number("model id"))

    def rows(self) -> KernelRows:
        """Raises ValueError where a kernel takes less than no time, or there are more than are read."""
        duration, device = self._number("duration(us)"), self._number("device_id")
        whole = duration != NO_NUMBER
        if self._size > MAX_ROWS or (duration[whole] < 0).any():
            raise ValueError("the rows are for the slower reader")
        every = self._table()
        by_device: dict[Device, Sequence[Kernel]] = {}
        owners, first = np.unique(device[whole], return_index=True)
        for number in owners[np.argsort(first)].tolist():
            by_device[None if number == NO_NUMBER else number] = every.select(
                np.flatnonzero(whole & (device == number))
            )
        return KernelRows(by_device, int(self._size - whole.sum()))

    def _table(self) -> KernelTable:
        # Cells that differ in a trailing tab are one text; the last entry is for no cell.
        numbers_of: dict[str, int] = {}
        places = [NO_TEXT if text is None else numbers_of.setdefault(text, len(numbers_of)) for text in self._texts]
        place = np.array([*places, NO_TEXT], dtype=np.int64)
        codes = {
            name: place[column]
            for name, column in (
                ("name", self._code("name")),
                ("type", self._code("type")),
                ("core", self._code("accelerator core")),
            )
        }
        nameless = numbers_of.setdefault("", len(numbers_of))
        codes["name"] = np.where(codes["name"] == NO_TEXT, nameless, codes["name"])
        codes["inputs"] = self._equal(self._code("input shapes"), self._shapes)
        codes["outputs"] = self._equal(self._code("output shapes"), self._shapes)
        codes["input_types"] = self._equal(self._code("input data types"), self._words)
        numbers = {
            "start_ns": self._number("start time(us)"),
            "duration_ns": self._number("duration(us)"),
            "wait_ns": self._number("wait time(us)"),
            "step": self._number("step id"),
            "stream": self._number("stream id"),
            "task": self._number("task id"),
            "model_id": self._model,
            "blocks": self._number("block dim"),
            "mix_blocks": self._number("mix block dim"),
        }
        return KernelTable(numbers, codes, tuple(numbers_of), np.arange(self._size), self._kernels)

    def _equal(self, column: IntColumn, lists: Mapping[int, tuple[object, ...]]) -> IntColumn:
        numbers: dict[tuple[object, ...], int] = {(): NO_TEXT}
        place = np.full(len(self._texts) + 1, NO_TEXT, dtype=np.int64)
        for code, members in lists.items():
            place[code] = numbers.setdefault(members, len(numbers))
        return place[column]

    def _kernels(self, rows: npt.NDArray[np.intp]) -> Iterator[Kernel]:
        """The kernels of some rows."""
        numbers = [
            [None if number == NO_NUMBER else number for number in column[rows].tolist()]
            for column in (
                *(self._number(name) for name in ("start time(us)", "duration(us)", "wait time(us)", "step id")),
                *(self._number(name) for name in ("stream id", "task id")),
                self._model,
                *(self._number(name) for name in ("block dim", "mix block dim")),
            )
        ]
        texts = [
            [None if code == NO_TEXT else self._texts[code] for code in self._code(name)[rows].tolist()]
            for name in ("name", "type", "accelerator core", "op state", "hf32 eligible")
        ]
        tensors = [
            [table.get(code, ()) for code in self._code(name)[rows].tolist()]
            for table, name in (
                (self._shapes, "input shapes"),
                (self._words, "input data types"),
                (self._words, "input formats"),
                (self._shapes, "output shapes"),
                (self._words, "output data types"),
                (self._words, "output formats"),
            )
        ]
        for row, number, text, tensor in zip(rows.tolist(), zip(*numbers), zip(*texts), zip(*tensors)):
            name, kind, core, state, hf32 = text
            start, duration, wait, step, stream, task, model, blocks, mix = number
            inputs, input_types, input_formats, outputs, output_types, output_formats = tensor
            yield Kernel(
                name or "",
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
                None if hf32 is None else hf32.upper() == "YES",
                inputs,
                input_types,
                input_formats,
                outputs,
                output_types,
                output_formats,
                Counters(self._counters, self._values[row]),
            )

    def _number(self, name: str) -> IntColumn:
        return self._cells.get(name, np.full(self._size, NO_NUMBER, dtype=np.int64))

    def _code(self, name: str) -> IntColumn:
        return self._cells.get(name, np.full(self._size, NO_TEXT, dtype=np.int32))

    def _distinct(self, name: str) -> list[int]:
        return [code for code in np.unique(self._code(name)).tolist() if code != NO_TEXT]


class _Reader:
    """Turns rows into kernels; equal texts, words and shapes are one object."""

    def __init__(self, row: Row, path: Path) -> None:
        if not {"name", "duration(us)"} <= set(row.columns):
            raise DocumentError(f"{path}: no columns Name and Duration(us); this is no table of kernels")
        names = (name for name in row.columns if name not in _COLUMNS)
        self._counters = {name: number for number, name in enumerate(names)}
        self._shapes: dict[str, Shapes] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        self._texts: dict[str | None, str | None] = {}

    def kernel(self, row: Row) -> Kernel | None:
        duration = row.duration("duration(us)")
        if duration is None:
            return None
        model = row.whole("model id")
        hf32 = row.text("hf32 eligible")
        return Kernel(
            name=self._text(row, "name") or "",
            type=self._text(row, "type"),
            core=self._text(row, "accelerator core"),
            start_ns=row.timestamp("start time(us)"),
            duration_ns=duration,
            wait_ns=row.time("wait time(us)"),
            step=row.whole("step id"),
            stream=row.whole("stream id"),
            task=row.whole("task id"),
            model_id=None if model == EAGER_MODEL_ID else model,
            state=self._text(row, "op state"),
            blocks=row.whole("block dim"),
            mix_blocks=row.whole("mix block dim"),
            hf32=None if hf32 is None else hf32.upper() == "YES",
            input_shapes=self._shapes_of(row, "input shapes"),
            input_dtypes=self._words_of(row, "input data types"),
            input_formats=self._words_of(row, "input formats"),
            output_shapes=self._shapes_of(row, "output shapes"),
            output_dtypes=self._words_of(row, "output data types"),
            output_formats=self._words_of(row, "output formats"),
            counters=Counters(self._counters, array("d", (_number(row.text(name)) for name in self._counters))),
        )

    def _text(self, row: Row, column: str) -> str | None:
        text = row.text(column)
        return self._texts.setdefault(text, text)

    def _words_of(self, row: Row, column: str) -> tuple[str, ...]:
        cell = row.raw(column)
        words = self._words.get(cell)
        if words is None:
            words = split_words(row.text(column))
            if len(self._words) < _CACHE_SIZE:
                self._words[cell] = words
        return words

    def _shapes_of(self, row: Row, column: str) -> Shapes:
        cell = row.raw(column)
        if not cell or cell == "N/A":
            return ()
        shapes = self._shapes.get(cell)
        if shapes is None:
            try:
                shapes = split_shapes(cell)
            except ValueError:
                raise row.wrong(column, "is no list of shapes") from None
            if len(self._shapes) < _CACHE_SIZE:
                self._shapes[cell] = shapes
        return shapes


def split_shapes(cell: str) -> Shapes:
    """One shape a tensor of ``"64,3,11,11;;8"``; an empty one is a scalar. Raises ValueError for other text."""
    return tuple(
        tuple(_size(size) for size in tensor.split(",")) if tensor.strip() else ()
        for tensor in cell.strip('"').split(";")
    )


def split_words(cell: str | None) -> tuple[str, ...]:
    """One word a tensor, dtypes and formats as one generation of CANN writes them.

    ``DT_BF16`` is BF16 and ``FORMAT_ND`` is ND; ``NC1HWC0:1`` loses the sub-format behind the colon.
    """
    words = () if cell is None else cell.split(";")
    return tuple(word.strip().partition(":")[0].removeprefix("FORMAT_").removeprefix("DT_") for word in words)


def _size(text: str) -> int:
    if len(text) > 20:
        raise ValueError("no size has so many digits")
    return int(text)


def _number(text: str | None) -> float:
    """NaN for a word in an unknown column, which is no counter."""
    try:
        number = math.nan if text is None or len(text) > MAX_NUMBER_TEXT else float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan

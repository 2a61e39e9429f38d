"""The table of kernels: kernel_details.csv of torch_npu, op_summary_*.csv of msprof."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.ascend.files import MAX_NUMBER_TEXT, MAX_ROWS, Device, Row, rows_of
from perfgate.trace.recording import Kernel

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
_CACHE_SIZE = 100_000

Shapes = tuple[tuple[int, ...], ...]


class Counters(Mapping[str, float]):
    """A kernel's hardware counters by column name in eight bytes each; a column without a number is not there."""

    __slots__ = ("_positions", "_values")

    def __init__(self, positions: Mapping[str, int], values: array[float]) -> None:
        """``positions`` are shared by all kernels of a table; a value is NaN where there is none."""
        self._positions, self._values = positions, values

    def __getitem__(self, name: str) -> float:
        value = self._values[self._positions[name]]
        if math.isnan(value):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, index in self._positions.items() if not math.isnan(self._values[index]))

    def __len__(self) -> int:
        return sum(not math.isnan(value) for value in self._values)

    def __repr__(self) -> str:
        return repr(dict(self))


def read_kernels(path: Path) -> Iterator[tuple[Device, Kernel | None]]:
    """The kernels of a table in the order of the file, None for a row that lacks its duration.

    Raises DocumentError for what is no such table.
    """
    reader: _Reader | None = None
    for row in rows_of(path, limit=MAX_ROWS):
        reader = reader or _Reader(row, path)
        try:
            kernel = reader.kernel(row)
        except DocumentError:
            # A row of 2023 lacks its duration, and what follows is shifted (sample msinsight-gpt3-cann7-2309).
            if not row.is_short:
                raise
            kernel = None
        yield None if kernel is None else row.whole("device_id"), kernel


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

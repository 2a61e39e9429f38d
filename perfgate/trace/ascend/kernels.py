"""The table of kernels: kernel_details.csv of torch_npu, op_summary_*.csv of msprof; and task_time.csv."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from perfgate.errors import DocumentError
from perfgate.trace.ascend.files import MAX_NUMBER_TEXT, MAX_ROWS, Row, rows_of
from perfgate.trace.recording import Kernel

# What CANN's GE_OP_MODEL_ID says of a kernel that belongs to no graph (msprof constant.py).
EAGER_MODEL_ID = 4294967295
_KNOWN = frozenset((
    "step id", "device_id", "model id", "model name", "task id", "stream id", "infer id", "name", "type", "op state",
    "accelerator core", "start time(us)", "duration(us)", "wait time(us)", "block dim", "mix block dim", "hf32 eligible",
    "input shapes", "input data types", "input formats", "output shapes", "output data types", "output formats",
    "context id", "batch id", "subtask id", "index id",
))  # fmt: skip
_SHAPE_CACHE = 100_000


class KernelTable(NamedTuple):
    """Kernels of each device (None where the table names none), and how many rows could not be used."""

    by_device: Mapping[int | None, tuple[Kernel, ...]]
    incomplete: int


def read_kernels(path: Path) -> KernelTable:
    """The kernels of a table in the order of the file. Raises DocumentError for what is no such table."""
    by_device: dict[int | None, list[Kernel]] = {}
    reader: _Reader | None = None
    incomplete = 0
    for row in rows_of(path, most=MAX_ROWS):
        reader = reader or _Reader(row, path)
        kernel = _kernel_of(reader, row)
        if kernel is None:
            incomplete += 1
        else:
            by_device.setdefault(row.whole("device_id"), []).append(kernel)
    return KernelTable({device: tuple(kernels) for device, kernels in by_device.items()}, incomplete)


def _kernel_of(reader: _Reader, row: Row) -> Kernel | None:
    try:
        return reader.kernel(row)
    except DocumentError:
        # A row of 2023 lacks its duration, and what follows is shifted (sample msinsight-gpt3-cann7-2309).
        if row.is_short:
            return None
        raise


class _Reader:
    """Turns rows into kernels; equal shapes and words are kept once."""

    def __init__(self, row: Row, path: Path) -> None:
        if not {"name", "duration(us)"} <= set(row.columns):
            raise DocumentError(f"{path}: no columns Name and Duration(us); this is no table of kernels")
        self._counters = {
            name: number for number, name in enumerate(name for name in row.columns if name not in _KNOWN)
        }
        self._shapes: dict[tuple[str, str], tuple[tuple[int, ...], ...]] = {}
        self._words: dict[str, tuple[str, ...]] = {}
        self._texts: dict[str | None, str | None] = {}

    def kernel(self, row: Row) -> Kernel | None:
        duration = row.lasting("duration(us)")
        if duration is None:
            return None
        model = row.whole("model id")
        hf32 = row.text("hf32 eligible")
        return Kernel(
            name=self._one(row.text("name")) or "",
            type=self._one(row.text("type")),
            core=self._one(row.text("accelerator core")),
            start_ns=row.moment("start time(us)"),
            duration_ns=duration,
            wait_ns=row.time("wait time(us)"),
            step=row.whole("step id"),
            stream=row.whole("stream id"),
            task=row.whole("task id"),
            model_id=None if model == EAGER_MODEL_ID else model,
            state=self._one(row.text("op state")),
            blocks=row.whole("block dim"),
            mix_blocks=row.whole("mix block dim"),
            hf32=None if hf32 is None else hf32.upper() == "YES",
            input_shapes=self._shapes_of(row, "input"),
            input_dtypes=self._words_of(row, "input data types"),
            input_formats=self._words_of(row, "input formats"),
            output_shapes=self._shapes_of(row, "output"),
            output_dtypes=self._words_of(row, "output data types"),
            output_formats=self._words_of(row, "output formats"),
            counters=self._counters_of(row),
        )

    def _one(self, text: str | None) -> str | None:
        return self._texts.setdefault(text, text)

    def _words_of(self, row: Row, column: str) -> tuple[str, ...]:
        cell = row.raw(column)
        found = self._words.get(cell)
        if found is None:
            found = words(row.text(column))
            if len(self._words) < _SHAPE_CACHE:
                self._words[cell] = found
        return found

    def _shapes_of(self, row: Row, side: str) -> tuple[tuple[int, ...], ...]:
        cell = row.raw(f"{side} shapes")
        if not cell or cell == "N/A":
            return ()
        found = self._shapes.get((side, cell))
        if found is None:
            try:
                found = shapes(cell)
            except ValueError:
                raise row.wrong(f"{side} shapes", "is no list of shapes") from None
            if len(self._shapes) < _SHAPE_CACHE:
                self._shapes[side, cell] = found
        return found

    def _counters_of(self, row: Row) -> Mapping[str, float]:
        values = array("d", (_number(row.text(name)) for name in self._counters))
        return Counters(self._counters, values)


def shapes(cell: str) -> tuple[tuple[int, ...], ...]:
    """One shape a tensor of ``"64,3,11,11;;8"``; an empty one is a scalar. Raises ValueError for other text."""
    return tuple(
        tuple(_size(size) for size in tensor.split(",")) if tensor.strip() else ()
        for tensor in cell.strip('"').split(";")
    )


def words(cell: str | None) -> tuple[str, ...]:
    """One word a tensor, dtypes and formats as one generation of CANN writes them.

    ``DT_BF16`` is BF16 and ``FORMAT_ND`` is ND; ``NC1HWC0:1`` loses the sub-format behind the colon.
    """
    return () if cell is None else tuple(_word(word) for word in cell.split(";"))


def _word(word: str) -> str:
    plain = word.strip().partition(":")[0]
    for prefix in ("FORMAT_", "DT_"):
        if plain.startswith(prefix):
            return plain[len(prefix) :]
    return plain


def _size(text: str) -> int:
    if len(text) > 20:
        raise ValueError("no size has so many digits")
    return int(text)


def _number(text: str | None) -> float:
    try:
        number = math.nan if text is None or len(text) > MAX_NUMBER_TEXT else float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan


class Counters(Mapping[str, float]):
    """Numbers by the name of their column; a column without a number is not there."""

    __slots__ = ("_names", "_values")

    def __init__(self, names: Mapping[str, int], values: array[float]) -> None:
        """Take the position of every name, and the numbers, NaN where there is none."""
        self._names, self._values = names, values

    def __getitem__(self, name: str) -> float:
        value = self._values[self._names[name]]
        if math.isnan(value):
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return (name for name, index in self._names.items() if not math.isnan(self._values[index]))

    def __len__(self) -> int:
        return sum(not math.isnan(value) for value in self._values)

    def __repr__(self) -> str:
        return repr(dict(self))

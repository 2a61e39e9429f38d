"""The table of kernels: kernel_details.csv of torch_npu, op_summary_*.csv of msprof;
and the rates of l2_cache.csv.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.errors import DocumentError
from perfgate.trace.model.arithmetic import (
    NO_NUMBER,
    FloatColumn,
    IntColumn,
    distinct,
    distinct_rows,
    known_number,
)
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.kernel_table import (
    HF32,
    CodedValues,
    KernelTable,
    kernel_table,
)
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.readers.ascend.columns import (
    Kind,
    TableColumns,
    columns_of,
    flag_of,
    shapes_of,
    words_of,
)
from perfgate.trace.readers.ascend.files import (
    Device,
    clean_cell,
    refuse_changed,
    stamp_of,
)

# CANN's GE_OP_MODEL_ID of a kernel that belongs to no graph (msprof constant.py).
EAGER_MODEL_ID = 4294967295
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]*)?")
# Columns by the field names of Kernel.
_NUMBERS = {
    "start_ns": "start time(us)",
    "duration_ns": "duration(us)",
    "wait_ns": "wait time(us)",
    "step": "step id",
    "stream": "stream id",
    "task": "task id",
    "model_id": "model id",
    "blocks": "block dim",
    "mix_blocks": "mix block dim",
}
_TEXTS = {
    "name": "name",
    "type": "type",
    "core": "accelerator core",
    "state": "op state",
}
_SHAPES = {"inputs": "input shapes", "outputs": "output shapes"}
_WORDS = {
    "input_types": "input data types",
    "input_formats": "input formats",
    "output_types": "output data types",
    "output_formats": "output formats",
}
KINDS: dict[str, Kind] = {
    **dict.fromkeys(_NUMBERS.values(), "whole"),
    "start time(us)": "timestamp",
    "duration(us)": "duration",
    "wait time(us)": "time",
    "device_id": "whole",
    **dict.fromkeys((*_TEXTS.values(), *_WORDS.values(), "hf32 eligible"), "text"),
    **dict.fromkeys(_SHAPES.values(), "shapes"),
}
# Every other column is a hardware counter.
_NO_COUNTERS = frozenset(
    (
        *KINDS,
        "model name",
        "infer id",
        "context id",
        "batch id",
        "subtask id",
        "index id",
    )
)


_COLUMNS: dict[str, Kind] = {
    "stream id": "whole",
    "task id": "whole",
    "name": "text",
    "hit rate": "number",
    "victim rate": "number",
}
_RATES = {"l2_hit_rate": "hit rate", "l2_victim_rate": "victim rate"}


def read_kernels(path: Path) -> tuple[dict[Device, KernelTable], int]:
    """The kernels of a table in the order of the file, as ``kernel_rows``.

    Raises DocumentError for any other file.
    """
    counters = _TableCounters(path)
    columns = columns_of(path, KINDS, leave_short=True)
    if columns.names and not {"name", "duration(us)"} <= set(columns.names):
        raise DocumentError(
            "{path}: no columns Name and Duration(us); this is not a table of kernels",
            path=path,
        )
    numbers = list(filter(_NUMBER.fullmatch, columns.names))
    if numbers:
        raise DocumentError(
            "{path}: the first line is damaged: {number!r} stands among the names of columns; analyse the profile again",
            path=path,
            number=numbers[0],
        )
    return kernel_rows(columns, counters.of(columns))


def kernel_rows(
    columns: TableColumns, counters: CounterColumns
) -> tuple[dict[Device, KernelTable], int]:
    """The kernels of a table by device, without rows that lack a duration, and the
    number of damaged rows.
    """
    values = CodedValues()
    codes = {"hf32": columns.coded("hf32 eligible", flag_of, HF32)}
    for name, column in _TEXTS.items():
        codes[name] = columns.coded(column, clean_cell, values.texts)
    for name, column in _SHAPES.items():
        codes[name] = columns.coded(column, shapes_of, values.shapes)
    for name, column in _WORDS.items():
        codes[name] = columns.coded(column, words_of, values.words)
    numbers = {name: columns.wholes(column) for name, column in _NUMBERS.items()}
    numbers["model_id"] = of_graph(numbers["model_id"])
    owner = columns.wholes("device_id")
    # The first row of a further device waits for the last row of the device before it
    # (msprof: op_summary_assembler.cpp).
    _, first = np.unique(owner, return_index=True)
    numbers["wait_ns"] = numbers["wait_ns"].copy()
    numbers["wait_ns"][first[first > 0]] = NO_NUMBER
    every = kernel_table(numbers, codes, values, counters)
    whole = every.duration != NO_NUMBER
    by_device = {}
    for number in distinct(owner[whole]):
        by_device[known_number(number)] = every.select(whole & (owner == number))
    return by_device, columns.rows - int(whole.sum()) + len(
        columns.short
    ) + columns.long


def of_graph(models: IntColumn) -> IntColumn:
    """The ids of models, NO_NUMBER for kernels without one."""
    return np.where(models == EAGER_MODEL_ID, NO_NUMBER, models)


class _TableCounters:
    """The counters of a table's file, each column read on demand."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stamp = stamp_of(path)
        self.names: Sequence[str] = ()

    def of(self, columns: TableColumns) -> CounterColumns:
        self.names = [name for name in columns.names if name not in _NO_COUNTERS]
        if not columns.short:
            return CounterColumns(self)
        every = np.arange(columns.rows + len(columns.short))
        return CounterColumns(self, np.delete(every, columns.short))

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        refuse_changed(self._path, self._stamp)
        columns = columns_of(self._path, dict.fromkeys(names, "counter"))
        return [columns.real(name) for name in names]


def with_cache_rates(kernels: KernelTable, paths: Sequence[Path]) -> KernelTable:
    """Add the rates to the counters of each kernel that matches exactly one row by
    stream, task and name.
    """
    tables = [columns_of(path, _COLUMNS) for path in paths]
    names = Numbering(kernels.texts)
    streams = [kernels.numbers["stream"]]
    tasks = [kernels.numbers["task"]]
    titles = [kernels.codes["name"]]
    for table in tables:
        streams.append(table.wholes("stream id"))
        tasks.append(table.wholes("task id"))
        titles.append(table.coded("name", clean_cell, names))
    first, number = distinct_rows(
        [np.concatenate(parts) for parts in (streams, tasks, titles)]
    )
    of_kernels, of_rows = number[: len(kernels)], number[len(kernels) :]
    place = np.full(first.size, -1)
    place[of_rows] = np.arange(of_rows.size)
    # A task number repeats after 65536 others: the rate cannot be assigned then.
    place[np.bincount(of_rows, minlength=first.size) > 1] = -1
    row = place[of_kernels].astype(np.int32)
    if (row < 0).all():
        return kernels
    rates = {}
    for name, column in _RATES.items():
        rates[name] = np.concatenate([table.real(column) for table in tables])
    source = _Rates(kernels.counters, rates, row)
    return replace(kernels, counters=CounterColumns(source))


class _Rates:
    """Counters, and rates by the row of each kernel, -1 for none."""

    def __init__(
        self,
        counters: CounterColumns,
        rates: Mapping[str, FloatColumn],
        row: npt.NDArray[Any],
    ) -> None:
        self._counters = counters
        self._rates = rates
        self._row = row

    @property
    def names(self) -> Sequence[str]:
        return (*self._counters.names, *self._rates)

    def read(self, names: Sequence[str]) -> list[FloatColumn]:
        columns = self._counters.columns(*names)
        for name in self._rates.keys() & set(names):
            columns[name] = np.append(self._rates[name], np.nan)[
                self._row
            ]  # the last stands for none
        return [columns[name] for name in names]

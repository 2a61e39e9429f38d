"""The rates of l2_cache.csv as counters of their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.trace.model.arithmetic import FloatColumn
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.packed import PackedReals, distinct_rows, joined_columns
from perfgate.trace.readers.ascend.columns import Kind, columns_of
from perfgate.trace.readers.ascend.files import clean_cell

_COLUMNS: dict[str, Kind] = {
    "stream id": "whole",
    "task id": "whole",
    "name": "text",
    "hit rate": "number",
    "victim rate": "number",
}
_RATES = {"l2_hit_rate": "hit rate", "l2_victim_rate": "victim rate"}


def with_cache_rates(kernels: KernelTable, paths: Sequence[Path]) -> KernelTable:
    """Add the rates to the counters of each kernel that matches exactly one row by stream, task and name."""
    tables = [columns_of(path, _COLUMNS) for path in paths]
    names = {text: code for code, text in enumerate(kernels.texts)}
    keys = [[kernels.numbers.packed["stream"], kernels.numbers.packed["task"], kernels.codes.packed["name"]]]
    keys += [
        [table.number("stream id"), table.number("task id"), table.coded("name", clean_cell, names)] for table in tables
    ]
    first, number = distinct_rows([joined_columns(parts) for parts in zip(*keys)])
    of_kernels, of_rows = number[: len(kernels)], number[len(kernels) :]
    place = np.full(first.size, -1)
    place[of_rows] = np.arange(of_rows.size)
    # A task number repeats after 65536 others: the rate cannot be assigned then.
    place[np.bincount(of_rows, minlength=first.size) > 1] = -1
    if (place[of_kernels] < 0).all():
        return kernels
    rates = {name: np.concatenate([table.real(column) for table in tables]) for name, column in _RATES.items()}
    return replace(
        kernels, counters=CounterColumns(_Rates(kernels.counters, rates, place[of_kernels].astype(np.int32)))
    )


class _Rates:
    """Counters, and rates by the row of each kernel, -1 for none."""

    def __init__(self, counters: CounterColumns, rates: Mapping[str, FloatColumn], row: npt.NDArray[Any]) -> None:
        self._counters, self._rates, self._row = counters, rates, row

    @property
    def names(self) -> Sequence[str]:
        return (*self._counters.names, *self._rates)

    def read(self, names: Sequence[str]) -> list[PackedReals]:
        columns = self._counters.columns(*names)
        rates = {name: np.append(rate, np.nan) for name, rate in self._rates.items()}
        return [PackedReals(rates[name][self._row] if name in rates else columns[name]) for name in names]

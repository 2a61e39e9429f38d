"""The rates of l2_cache.csv as counters of their kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from perfgate.trace.model.arithmetic import FloatColumn, distinct_rows
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.numbering import Numbering
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
        self._counters, self._rates, self._row = counters, rates, row

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

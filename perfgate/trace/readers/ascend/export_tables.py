"""The tables of a SQLite export of Ascend's profilers, read column by column, with names as places among its texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfgate.trace.model.arithmetic import NO_NUMBER, CodeColumn, IntColumn, number_of
from perfgate.trace.readers.ascend.columns import NO_TEXT, TableColumns
from perfgate.trace.readers.ascend.database import Database
from perfgate.trace.readers.ascend.files import Device


class ExportTexts:
    """STRING_IDS: texts by id."""

    def __init__(self, database: Database) -> None:
        self.texts: list[str] = []
        self._numbers = np.array([NO_NUMBER])
        self._places = np.array([NO_TEXT])
        texts = {}
        for cell, value in database.rows("STRING_IDS", ("id", "value")):
            number = database.whole(cell)
            if number is not None:
                texts[number] = str(value)
        self._take(texts)

    def places(self, numbers: IntColumn) -> CodeColumn:
        """The places of a column's texts, NO_TEXT for NULL; an id without a text is its own text."""
        at = np.searchsorted(self._numbers, numbers).clip(max=self._numbers.size - 1)
        strange = self._numbers[at] != numbers
        if strange.any():
            self._take(
                {number: str(number) for number in np.unique(numbers[strange]).tolist()}
            )
            return self.places(numbers)
        places: CodeColumn = self._places[at].astype(np.int32)
        return places

    def text(self, place: int) -> str:
        return "" if place == NO_TEXT else self.texts[place]

    def _take(self, texts: Mapping[int, str]) -> None:
        numbers = np.concatenate([self._numbers, np.array(list(texts), dtype=np.int64)])
        places = np.concatenate([self._places, np.arange(len(texts)) + len(self.texts)])
        order = np.argsort(numbers)
        self._numbers = numbers[order]
        self._places = places[order]
        self.texts += texts.values()


class ExportTables:
    """The tables of an export."""

    def __init__(self, database: Database) -> None:
        self.database, self.words = database, ExportTexts(database)

    def read(
        self,
        table: str,
        wholes: Sequence[str],
        *,
        named: Sequence[str] = (),
        reals: Sequence[str] = (),
    ) -> TableColumns:
        """Columns of a table, empty columns if it is missing; ``named`` columns become places among the texts."""
        table_columns = self.database.columns(table, wholes, reals=reals)
        columns: dict[str, Any] = {name: table_columns.real(name) for name in reals}
        for name in wholes:
            if name in table_columns.names:
                columns[name] = table_columns.wholes(name)
                if name in named:
                    columns[name] = self.words.places(columns[name])
        return TableColumns(
            table_columns.names, table_columns.rows, columns, self.words.texts
        )


def owned(columns: TableColumns, device: Device, *, alone: bool) -> TableColumns:
    """The rows of a device; a device that is ``alone`` in the export also owns the rows that name none."""
    owner = columns.wholes("deviceId")
    own = owner == number_of(device)
    if alone:
        own |= owner == NO_NUMBER
    return columns.select(np.flatnonzero(own))

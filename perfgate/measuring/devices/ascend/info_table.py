"""Parse the table of ``npu-smi info``: the chips with their states, and the processes
on them.

Each chip has as many rows as the table has rows of titles, two in every known version.
Seen: a card and its chip in one cell (310P to 910C) and a card without chips (950); no
HBM, no process table (310B), ``Process id in container`` (25.6 and later).
"""

from __future__ import annotations

import re

import msgspec

from perfgate.document.telemetry import DeviceProcess, DeviceState
from perfgate.measuring.devices.ascend.npu_smi import (
    Column,
    column_of,
    refuse_failure,
    unread_output,
)
from perfgate.measuring.devices.cells import (
    MIB,
    MOST_TEXT,
    number,
    scaled,
    share,
    whole,
    word,
)

# A title ends at its unit, or at two spaces: "NPU Util(%) Memory-Usage(MB)
# HBM-Usage(MB)", "NPU Chip".
_TITLE = re.compile(r"(?:[^\s()]+ )*[^\s()]+\([^)]{0,20}\)|[^\s()]+(?: [^\s()]+)*")
# "21784/ 65536" is one value, "0000:C1:00.0" too.
_VALUE = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_USED_OF_TOTAL = re.compile(r"([0-9]{1,12})\s*/\s*([0-9]{1,12})")
_VERSION = re.compile(r"Version:\s*(\S+)")
# Template of a virtual NPU at the end of the chip's name: 310Pvir01, 910B4vir05_1c_8g.
_SLICE = re.compile(r"vir[0-9]{2}")

_Row = dict[Column | None, str]


class TableChip(msgspec.Struct, frozen=True, kw_only=True):
    """``chip_id`` is None if the table does not number the chips of a card.

    The state has memory of the HBM if there is any.
    """

    npu_id: int
    chip_id: int | None
    name: str
    state: DeviceState

    @property
    def is_slice(self) -> bool:
        return _SLICE.search(self.name) is not None


class TableProcess(msgspec.Struct, frozen=True, kw_only=True):
    """``container_pid`` is the process's id in its container, None if there is none or
    the driver does not report it.
    """

    npu_id: int
    chip_id: int | None
    process: DeviceProcess
    container_pid: int | None

    def is_on(self, npu_id: int, chip_id: int | None) -> bool:
        return self.npu_id == npu_id and (
            chip_id is None or self.chip_id in (None, chip_id)
        )


class InfoTable(msgspec.Struct, kw_only=True):
    """``processes`` is None if there is no table of them.

    ``unread`` are titles without a known meaning, and rows of no known shape.
    """

    version: str | None = None
    chips: list[TableChip] = []
    processes: list[TableProcess] | None = None
    unread: list[str] = []

    def chip(self, npu_id: int, chip_id: int | None) -> TableChip | None:
        for chip in self.chips:
            if chip.npu_id == npu_id and chip_id in (None, chip.chip_id):
                return chip
        return None

    def foreign_processes(
        self, npu_id: int, chip_id: int | None, own: frozenset[int]
    ) -> list[DeviceProcess] | None:
        """The processes on a chip except for ``own``; None if the table has no
        processes.
        """
        if self.processes is None:
            return None
        processes = []
        for row in self.processes:
            if (
                row.is_on(npu_id, chip_id)
                and row.process.pid not in own
                and row.container_pid not in own
            ):
                processes.append(row.process)
        return processes


def parse_info(text: str, command: str = "npu-smi info") -> InfoTable:
    """Raises UnmeasuredError for a failure, the help, and a text without a readable
    chip.
    """
    refuse_failure(text, command)
    reader = _Reader()
    for line in text[:MOST_TEXT].splitlines():
        if line.lstrip().startswith("|"):
            reader.read(line.strip().strip("|").split("|"))
    if all(chip.state == DeviceState() for chip in reader.table.chips):
        raise unread_output(text, command)
    return reader.table


class _Reader:
    """Collects the rows of the table, which come one by one."""

    def __init__(self) -> None:
        self.table = InfoTable()
        self._titles: list[list[list[Column | None]]] = []
        self._rows: list[_Row] = []

    def read(self, cells: list[str]) -> None:
        if version := _VERSION.search(cells[0]):
            self.table.version = version[1]
        elif self._read_titles(cells) or len(cells) == 1:
            pass  # one cell: "No running processes found in NPU 0"
        elif self._titles and self.table.processes is not None:
            self._add_process(_values(self._titles[0], cells), cells)
        elif self._titles:
            self._add_chip_row(cells)

    def _read_titles(self, cells: list[str]) -> bool:
        """Whether this is a row of titles: one with Health or Process id begins a
        table, one with Bus-Id continues it.
        """
        if any(map(str.isdigit, "".join(cells))):
            return False
        columns: list[list[Column | None]] = []
        unknown = []
        for cell in cells:
            titles = _TITLE.findall(cell)
            columns.append([column_of(title) for title in titles])
            unknown += [title for title in titles if column_of(title) is None]
        first = ["health"] in columns or ["pid"] in columns
        if not first and ["bus"] not in columns:
            return False
        if ["pid"] in columns:
            self.table.processes = []
        if first:
            self._titles = []
        self._titles = [*self._titles[:1], columns]
        self._rows = []
        self.table.unread += unknown
        return True

    def _add_chip_row(self, cells: list[str]) -> None:
        row = _values(self._titles[len(self._rows)], cells)
        if not self._rows and whole(row.get("npu")) is None:
            self._skip(cells)
            return
        self._rows.append(row)
        if len(self._rows) < len(self._titles):
            return
        merged: _Row = {}
        for part in reversed(self._rows):
            merged.update(part)
        self._rows = []
        self.table.chips.append(_chip(merged))

    def _add_process(self, row: _Row, cells: list[str]) -> None:
        npu_id, pid = whole(row.get("npu")), whole(row.get("pid"))
        if npu_id is None or pid is None or self.table.processes is None:
            self._skip(cells)
            return
        memory = scaled(row.get("process_memory"), MIB)
        process = DeviceProcess(
            pid=pid, name=word(row.get("process")) or "", memory=memory
        )
        chip_id, container_pid = whole(row.get("chip")), whole(row.get("container_pid"))
        entry = TableProcess(
            npu_id=npu_id, chip_id=chip_id, process=process, container_pid=container_pid
        )
        self.table.processes.append(entry)

    def _skip(self, cells: list[str]) -> None:
        self.table.unread.append(" ".join("|".join(cells).split()))


def _values(titles: list[list[Column | None]], cells: list[str]) -> _Row:
    row: _Row = {}
    for columns, cell in zip(titles, cells):
        if len(columns) == 1:
            row[columns[0]] = cell.strip()
            continue
        values = _VALUE.findall(cell)
        if columns and columns[-1] == "name":
            # A name may have spaces: "Ascend 910B4-1".
            values[len(columns) - 1 :] = [" ".join(values[len(columns) - 1 :])]
        if len(values) == len(columns):
            row.update(zip(columns, values))
        elif values and columns:
            row[columns[0]] = values[0]
    return row


def _chip(row: _Row) -> TableChip:
    name = row.get("name", "")
    used, total = _memory(row)
    units = {}
    load = share(row.get("load"))
    if load is not None and not _SLICE.search(
        name
    ):  # npu-smi prints 0 for a virtual NPU, whatever it does (its source)
        units["aicore"] = load
    state = DeviceState(
        temperature=number(row.get("temperature")),
        power=number(row.get("power")),
        units=units,
        memory_used=used,
        memory_total=total,
        health=word(row.get("health")),
    )
    return TableChip(
        npu_id=whole(row.get("npu")) or 0,
        chip_id=whole(row.get("chip")),
        name=name,
        state=state,
    )


def _memory(row: _Row) -> tuple[int | None, int | None]:
    """Bytes used and in total, of the first memory that the chip has."""
    columns: tuple[Column, Column] = ("hbm", "ddr")
    for column in columns:
        pair = _USED_OF_TOTAL.fullmatch(row.get(column, ""))
        if pair and int(pair[2]):
            return int(pair[1]) * MIB, int(pair[2]) * MIB
    return None, None

"""The table of ``npu-smi info``. Pure text in, records out.

Cells are told by the names above them, so a chip with another set of columns (HBM, Phy-ID, Device) is read as well.
"""

from __future__ import annotations

import re

import msgspec

from perfgate.document.telemetry import DeviceProcess
from perfgate.measuring.devices.ascend.blocks import (
    MIB,
    MOST_TEXT,
    no_answer,
    number,
    pair,
    plain,
    refuse,
    scaled,
    share,
    whole,
    word,
)

# "21784/ 65536" is one cell, "0000:C1:00.0" too.
_CELL = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_TITLES = re.compile(r"\s{2,}")
_VERSION = re.compile(r"Version:\s*(\S{1,40})")


class TableChip(msgspec.Struct, frozen=True, kw_only=True):
    """Two lines of the table: one chip. ``aicore`` is a share, memory in bytes, of the HBM where the chip has one."""

    npu_id: int
    chip_id: int | None = None
    phy_id: int | None = None
    name: str = ""
    health: str | None = None
    power: float | None = None
    temperature: float | None = None
    bus_id: str | None = None
    aicore: float | None = None
    memory_used: int | None = None
    memory_total: int | None = None


class TableProcess(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the lower table: a process on a chip."""

    npu_id: int
    chip_id: int | None
    process: DeviceProcess


class InfoTable(msgspec.Struct, frozen=True, kw_only=True):
    """All of ``npu-smi info``. ``version`` is that of npu-smi and the driver, not of CANN.

    ``processes`` is None where the lower table is missing, which is not the same as empty.
    """

    version: str | None = None
    chips: list[TableChip] = []
    processes: list[TableProcess] | None = None

    def chip(self, npu_id: int, chip_id: int | None) -> TableChip | None:
        rows = (row for row in self.chips if row.npu_id == npu_id)
        return next((row for row in rows if chip_id is None or row.chip_id == chip_id), None)

    def processes_on(self, npu_id: int, chip_id: int | None) -> list[DeviceProcess] | None:
        """The processes on a chip, None where the table does not speak of processes."""
        if self.processes is None:
            return None
        rows = (row for row in self.processes if row.npu_id == npu_id)
        return [row.process for row in rows if chip_id is None or row.chip_id is None or row.chip_id == chip_id]


def parse_info(text: str, command: str = "npu-smi info") -> InfoTable:
    """The table. Raises MeasuringError for a failure, the help, and a text without a chip."""
    refuse(text, command)
    reader = _Reader()
    for line in text[:MOST_TEXT].splitlines():
        if line.lstrip().startswith("|"):
            reader.row([cell.strip() for cell in line.strip().strip("|").split("|")])
    version = _VERSION.search(text)
    if not reader.chips:
        raise no_answer(text, command, "row of a chip")
    return InfoTable(version=version[1] if version else None, chips=reader.chips, processes=reader.processes)


class _Reader:
    """Reads the rows one by one: two rows of titles, two rows a chip, then the table of processes."""

    def __init__(self) -> None:
        self.chips: list[TableChip] = []
        self.processes: list[TableProcess] | None = None
        self._titles: list[dict[int, list[str]]] = []
        self._first: tuple[int, dict[str, str]] | None = None

    def row(self, cells: list[str]) -> None:
        titles = [plain(cell) for cell in cells]
        if "processid" in titles:
            self._titles, self._first, self.processes = [_names(cells)], None, []
        elif "health" in titles or "bus-id" in titles:
            # The first row of titles begins a table; the second belongs to it.
            self._titles = [_names(cells)] if "health" in titles else [*self._titles[:1], _names(cells)]
            self._first = None
        elif self.processes is not None:
            self._process(cells)
        elif len(self._titles) == 2:
            self._chip(cells)

    def _chip(self, cells: list[str]) -> None:
        if self._first is None:
            first = _named(self._titles[0], cells)
            npu_id = whole(first.get("npu"))
            # The version line and rulers stand between the rows of chips.
            self._first = None if npu_id is None else (npu_id, first)
            return
        npu_id, first = self._first
        self.chips.append(_chip(npu_id, {**_named(self._titles[1], cells), **first}))
        self._first = None

    def _process(self, cells: list[str]) -> None:
        row = _named(self._titles[0], cells)
        npu_id, pid = whole(row.get("npu")), whole(row.get("processid"))
        if npu_id is None or pid is None or self.processes is None:
            return  # "No running processes found in NPU 0"
        memory = scaled(row.get("processmemory(mb)"), MIB)
        process = DeviceProcess(pid=pid, name=word(row.get("processname")) or "", memory=memory)
        self.processes.append(TableProcess(npu_id=npu_id, chip_id=whole(row.get("chip")), process=process))


def _names(cells: list[str]) -> dict[int, list[str]]:
    """The titles of each cell: ``Process id`` is one title, ``NPU   Name`` are two."""
    return {
        place: [plain(title) for title in _TITLES.split(cell)] if _TITLES.search(cell) else [plain(cell)]
        for place, cell in enumerate(cells)
    }


def _named(titles: dict[int, list[str]], cells: list[str]) -> dict[str, str]:
    row: dict[str, str] = {}
    for place, cell in enumerate(cells):
        names = titles.get(place, [])
        if len(names) == 1:
            row[names[0]] = cell
            continue
        # A name may have spaces ("Ascend 910B4-1"): the last title takes what is left, if it is no number.
        values = _CELL.findall(cell)
        if len(values) > len(names) >= 1 and names[-1] == "name":
            values = [*values[: len(names) - 1], " ".join(values[len(names) - 1 :])]
        if len(values) == len(names):
            row.update(zip(names, values))
        elif names and values and place == 0:
            row[names[0]] = values[0]
    return row


def _chip(npu_id: int, row: dict[str, str]) -> TableChip:
    memory = pair(row.get("hbm-usage(mb)")) or (0, 0)
    if not memory[1]:
        memory = pair(row.get("memory-usage(mb)")) or (0, 0)
    return TableChip(
        npu_id=npu_id,
        chip_id=whole(row.get("chip")),
        phy_id=whole(row.get("phy-id")),
        name=word(row.get("name")) or "",
        health=word(row.get("health")),
        power=number(row.get("power(w)")),
        temperature=number(row.get("temp(c)")),
        bus_id=word(row.get("bus-id")),
        aicore=share(row.get("aicore(%)")),
        memory_used=memory[0] * MIB if memory[1] else None,
        memory_total=memory[1] * MIB if memory[1] else None,
    )

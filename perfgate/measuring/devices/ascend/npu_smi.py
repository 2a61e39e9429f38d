"""Parse the output of ``npu-smi``, one record a chip: its table, and the key and value lines of ``-t …`` and ``-m``. Pure text
in.

Known shapes, recognized by content and never by line number: a block may start with its ``Chip ID`` (``-t common``; ``-t
usages`` of 310B) or end with it (``-t usages`` of 910 and 310P, ``-t proc-mem``), or have none (with ``-c``, ``-t health``,
Ascend 950). The ``mcu`` may follow the chips; its temperature and power are those of the board. Cells of the table are
identified by their column titles, so a chip with other columns (HBM, Phy-ID, Device) is read as well.
"""

from __future__ import annotations

import re

import msgspec

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceProcess, DeviceState
from perfgate.measuring.devices.cells import MIB, MOST_TEXT, number, quoted, scaled, share, whole, word

_COLUMNS = re.compile(r"\t+|\s{2,}")
_PROCESS = re.compile(r"Process id:\s*([0-9]{1,10})\s+Process name:(.*?)\s*Process memory\(MB\):\s*([0-9]{1,12})\s*")
_NO_PROCESS = "no process in device"
# Identifies a chip's output: a quantity with its unit, or one of the words of -t health and -t board. Any text has colons.
_TOLD = re.compile(
    r".{1,60}\((?:%|mb|c|w|mhz|page)\)|healthstatus|softwareversion|firmwareversion|chiptype|chipphysicalid"
)
_CHIP, _NAME, _NPU = "chipid", "chipname", "npuid"
_SKIPPED = frozenset({"chipcount", "totalcount"})
# "21784/ 65536" is one cell, "0000:C1:00.0" too.
_CELL = re.compile(r"[0-9]+\s*/\s*[0-9]+|\S+")
_TITLES = re.compile(r"\s{2,}")
# The recorded outputs have it with and without the first space.
_USED_OF_TOTAL = re.compile(r"([0-9]{1,12})\s*/\s*([0-9]{1,12})")
# Printed texts in lower case, and the message for each. Sources: error_container_-8005 and usage_text_on_wrong_type of the
# recorded outputs, the return values of the DCMI manual (-8005 not ready, -8020 in use), the dynamic linker of glibc.
_REFUSALS = (
    ("ret is -8005", "device.npu-hidden"),
    ("ret is -8020", "device.npu-in-use"),
    ("dcmi module initialize failed", "device.npu-driver-stopped"),
    ("error while loading shared libraries", "device.npu-driver-not-found"),
    ("command not found", "device.npu-smi-not-installed"),
    ("error parameter of", "device.npu-smi-other-version"),
    ("usage:", "device.npu-smi-help"),
    ("usage: npu-smi", "device.npu-smi-help"),
)


# The number of a card (NPU), and of a chip on it; None if its row does not name the chip.
ChipPlace = tuple[int, int | None]


class ChipBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one ``-t`` option for one chip; keys as printed, in lower case and without spaces.

    ``processes`` is None if the output does not mention processes.
    """

    npu_id: int | None = None
    chip_id: int | None = None
    mcu: bool = False
    values: dict[str, str] = {}
    processes: list[DeviceProcess] | None = None

    def get(self, *keys: str) -> str | None:
        """The value of the first key present, None if it is marked as unavailable."""
        return next((value for key in keys if (value := word(self.values.get(_plain(key)))) is not None), None)

    def number(self, *keys: str) -> float | None:
        """The first of these keys that has a number."""
        return next((value for key in keys if (value := number(self.values.get(_plain(key)))) is not None), None)


class MappedChip(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``npu-smi info -m``: how a chip is called by npu-smi, and by the runtime.

    ``logic_id`` is the runtime's number. ``chip_id`` is None if npu-smi has no chips within a card (Ascend 950).
    """

    npu_id: int
    logic_id: int
    chip_id: int | None = None


def parse_blocks(text: str, command: str) -> list[ChipBlock]:
    """The blocks of an ``npu-smi info -t …`` answer, in order, those of the mcu marked.

    Raises UnmeasuredError for a failure, the help, and a text without one key that has a value.
    """
    _refuse(text, command)
    blocks: list[ChipBlock] = []
    npu_id: int | None = None
    entries: list[tuple[str, str]] = []
    for key, value in _entries(text):
        if key == _NPU:
            blocks += _cut(entries, npu_id)
            npu_id, entries = whole(value), []
        elif key not in _SKIPPED:
            entries.append((key, value))
    blocks += _cut(entries, npu_id)
    if not any(block.processes is not None or any(map(_TOLD.fullmatch, block.values)) for block in blocks):
        raise UnmeasuredError(Message("device.npu-smi-no-values", {"command": command, "printed": quoted(text)}))
    return blocks


def find_block(blocks: list[ChipBlock], chip_id: int | None) -> ChipBlock | None:
    """The block of a chip, never that of the mcu; a block without an id if it is the only one."""
    chips = [block for block in blocks if not block.mcu]
    matches = [block for block in chips if block.chip_id == chip_id and chip_id is not None]
    if matches:
        return matches[0]
    nameless = [block for block in chips if block.chip_id is None or chip_id is None]
    return nameless[0] if len(nameless) == 1 else None


def parse_map(text: str, command: str = "npu-smi info -m") -> list[MappedChip]:
    """The chips of ``npu-smi info -m``; without the mcu, and those that npu-smi calls unusable (NPU ID -1).

    Raises UnmeasuredError for a failure, the help, and a text without a chip.
    """
    _refuse(text, command)
    chips: list[MappedChip] = []
    titles: list[str] = []
    for line in text[:MOST_TEXT].splitlines():
        cells = [cell.strip() for cell in _COLUMNS.split(line.strip())]
        if any(_plain(cell) == _NPU for cell in cells):
            titles = [_plain(cell) for cell in cells]
            continue
        row = dict(zip(titles, cells))
        npu_id = whole(row.get(_NPU))
        logic_id = whole(row.get("chiplogicid", row.get("logicid", row.get("npulogicid"))))
        if npu_id is not None and logic_id is not None:
            chips.append(MappedChip(npu_id=npu_id, logic_id=logic_id, chip_id=whole(row.get(_CHIP))))
    if not chips:
        raise UnmeasuredError(Message("device.npu-smi-no-map", {"command": command, "printed": quoted(text)}))
    return chips


def parse_info(text: str, command: str = "npu-smi info") -> InfoTable:
    """The table. Raises UnmeasuredError for a failure, the help, and a text without a chip."""
    _refuse(text, command)
    table = InfoTable()
    for line in text[:MOST_TEXT].splitlines():
        if line.lstrip().startswith("|"):
            table.add_row([cell.strip() for cell in line.strip().strip("|").split("|")])
    if not table.chips:
        raise UnmeasuredError(Message("device.npu-smi-no-row", {"command": command, "printed": quoted(text)}))
    return table


def _plain(key: str) -> str:
    """A key without spaces and case: drivers differ in both (``NPU Temperature (C)``)."""
    return "".join(key.split()).lower()


def _refuse(text: str, command: str) -> None:
    """Raise UnmeasuredError if ``text`` is a failure or the help instead of an answer to ``command``."""
    lower = text[:MOST_TEXT].lower()
    if not lower.strip():
        raise UnmeasuredError(Message("device.tool-silent", {"command": command}))
    for sign, meaning in _REFUSALS:
        if sign in lower:
            printed = quoted(text, sign)
            raise UnmeasuredError(
                Message("device.npu-smi-refuses", {"command": command, "meaning": Message(meaning), "printed": printed})
            )


def _entries(text: str) -> list[tuple[str, str]]:
    entries = []
    for line in map(str.strip, text[:MOST_TEXT].splitlines()):
        key, colon, value = line.partition(":")
        if line.startswith("Process id:") or line.lower().startswith(_NO_PROCESS):
            entries.append(("process", line))
        elif colon and key.strip():
            entries.append((_plain(key), value.strip()))
    return entries


def _cut(entries: list[tuple[str, str]], npu_id: int | None) -> list[ChipBlock]:
    """The blocks of one NPU: a chip's name begins its block if it is the first entry, else it ends it."""
    groups: list[list[tuple[str, str]]] = [[]]
    leading = bool(entries) and _names_chip(*entries[0])
    for entry in entries:
        names_chip = _names_chip(*entry)
        if leading and names_chip:
            groups.append([])
        groups[-1].append(entry)
        if not leading and names_chip:
            groups.append([])
    return [_block(group, npu_id) for group in groups if group]


def _names_chip(key: str, value: str) -> bool:
    # "Chip Name : 910A" stands inside a block of -t board; only the mcu is known by nothing but its name.
    return key == _CHIP or (key == _NAME and value.lower() == "mcu")


def _block(entries: list[tuple[str, str]], npu_id: int | None) -> ChipBlock:
    values: dict[str, str] = {}
    processes: list[DeviceProcess] | None = None
    for key, value in entries:
        if key != "process":
            values.setdefault(key, value)
            continue
        processes = processes or []
        if match := _PROCESS.match(value):
            processes.append(DeviceProcess(pid=int(match[1]), name=match[2].strip(), memory=scaled(match[3], MIB)))
    chip_id = whole(values.pop(_CHIP, None))
    mcu = values.get(_NAME, "").lower() == "mcu"
    return ChipBlock(npu_id=npu_id, chip_id=chip_id, mcu=mcu, values=values, processes=processes)


class InfoTable:
    """All of ``npu-smi info``: the chips with their states, memory that of the HBM if a chip has one, and the processes.

    The rows come one by one: two of titles, two a chip, then the table of processes. ``processes`` is None if that table is
    missing, which differs from an empty one.
    """

    def __init__(self) -> None:
        self.chips: list[tuple[ChipPlace, DeviceState]] = []
        self.processes: list[tuple[ChipPlace, DeviceProcess]] | None = None
        self._titles: list[list[list[str]]] = []
        self._first: dict[str, str] | None = None

    def chip(self, npu_id: int, chip_id: int | None) -> DeviceState | None:
        states = (state for (card, chip), state in self.chips if card == npu_id and chip_id in (None, chip))
        return next(states, None)

    def processes_on(self, npu_id: int, chip_id: int | None) -> list[DeviceProcess] | None:
        """The processes on a chip, None if the table has no processes."""
        if self.processes is None:
            return None
        rows = [(chip, process) for (card, chip), process in self.processes if card == npu_id]
        return [process for chip, process in rows if chip_id is None or chip in (None, chip_id)]

    def add_row(self, cells: list[str]) -> None:
        plain = [_plain(cell) for cell in cells]
        if "processid" in plain:
            self._titles, self._first, self.processes = [_titles(cells)], None, []
        elif "health" in plain or "bus-id" in plain:
            # The first row of titles begins a table; the second belongs to it.
            self._titles = [_titles(cells)] if "health" in plain else [*self._titles[:1], _titles(cells)]
            self._first = None
        elif self.processes is not None:
            self._process(_named(self._titles[0], cells))
        elif len(self._titles) == 2:
            self._chip(cells)

    def _chip(self, cells: list[str]) -> None:
        if self._first is None:
            first = _named(self._titles[0], cells)
            # The version line and rulers stand between the rows of chips.
            self._first = None if whole(first.get("npu")) is None else first
            return
        row = {**_named(self._titles[1], cells), **self._first}
        self.chips.append(((whole(row.get("npu")) or 0, whole(row.get("chip"))), _state(row)))
        self._first = None

    def _process(self, row: dict[str, str]) -> None:
        npu_id, pid = whole(row.get("npu")), whole(row.get("processid"))
        if npu_id is None or pid is None or self.processes is None:
            return  # "No running processes found in NPU 0"
        memory = scaled(row.get("processmemory(mb)"), MIB)
        process = DeviceProcess(pid=pid, name=word(row.get("processname")) or "", memory=memory)
        self.processes.append(((npu_id, whole(row.get("chip"))), process))


def _titles(cells: list[str]) -> list[list[str]]:
    """The titles of each cell: ``Process id`` is one title, ``NPU   Name`` are two."""
    return [[_plain(title) for title in _TITLES.split(cell)] for cell in cells]


def _named(titles: list[list[str]], cells: list[str]) -> dict[str, str]:
    row: dict[str, str] = {}
    for place, (names, cell) in enumerate(zip(titles, cells)):
        if len(names) == 1:
            row[names[0]] = cell
            continue
        # A name may have spaces ("Ascend 910B4-1"): the last title takes the rest, if that is not a number.
        values = _CELL.findall(cell)
        if len(values) > len(names) and names[-1] == "name":
            values = [*values[: len(names) - 1], " ".join(values[len(names) - 1 :])]
        if len(values) == len(names):
            row.update(zip(names, values))
        elif values and place == 0:
            row[names[0]] = values[0]
    return row


def _state(row: dict[str, str]) -> DeviceState:
    memory = (_USED_OF_TOTAL.fullmatch(row.get(name, "")) for name in ("hbm-usage(mb)", "memory-usage(mb)"))
    pair = next((pair for pair in memory if pair and int(pair[2])), None)
    aicore = share(row.get("aicore(%)"))
    return DeviceState(
        temperature=number(row.get("temp(c)")),
        power=number(row.get("power(w)")),
        units={} if aicore is None else {"aicore": aicore},
        memory_used=int(pair[1]) * MIB if pair else None,
        memory_total=int(pair[2]) * MIB if pair else None,
        health=word(row.get("health")),
    )

"""The key and value lines of ``npu-smi info -t …``, ``-m`` and ``-l``, one record a chip. Pure text in, records out.

Shapes, all met by what stands where and never by line number: a block may start with its ``Chip ID`` (``-t common``; ``-t
usages`` of 310B) or end with it (``-t usages`` of 910 and 310P, ``-t proc-mem``), or have none (with ``-c``, ``-t health``,
Ascend 950). Behind the chips may follow the ``mcu``, whose temperature and power are those of the board.
"""

from __future__ import annotations

import re

import msgspec

from perfgate.document.telemetry import DeviceProcess
from perfgate.measuring.devices.ascend.answers import MIB, MOST_TEXT, no_answer, number, refuse, scaled, whole, word

_COLUMNS = re.compile(r"\t+|\s{2,}")
_PROCESS = re.compile(r"Process id:\s*([0-9]{1,10})\s+Process name:(.*?)\s*Process memory\(MB\):\s*([0-9]{1,12})\s*")
_NO_PROCESS = "no process in device"
# What a chip is told by: a quantity with its unit, or one of the words of -t health and -t board. Any text has colons.
_TOLD = re.compile(
    r".{1,60}\((?:%|mb|c|w|mhz|page)\)|healthstatus|softwareversion|firmwareversion|chiptype|chipphysicalid"
)
_CHIP, _NAME, _NPU = "chipid", "chipname", "npuid"
_SKIPPED = frozenset({"chipcount", "totalcount"})


class ChipBlock(msgspec.Struct, frozen=True, kw_only=True):
    """What one ``-t`` says of one chip; keys as printed, in lower case and without spaces.

    ``processes`` is None where the output does not speak of processes.
    """

    npu_id: int | None = None
    chip_id: int | None = None
    mcu: bool = False
    values: dict[str, str] = {}
    processes: list[DeviceProcess] | None = None

    def get(self, *keys: str) -> str | None:
        """The value of the first key that is there, None where it says that there is none."""
        return next((value for key in keys if (value := word(self.values.get(plain(key)))) is not None), None)

    def number(self, *keys: str) -> float | None:
        """The first of these keys that has a number."""
        return next((value for key in keys if (value := number(self.values.get(plain(key)))) is not None), None)


class MappedChip(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``npu-smi info -m``: how a chip is called by npu-smi, and by the runtime.

    ``logic_id`` is what the runtime counts by. ``chip_id`` is None where npu-smi has no chips within a card (Ascend 950).
    """

    npu_id: int
    logic_id: int
    chip_id: int | None = None
    phy_id: int | None = None
    name: str = ""


def plain(key: str) -> str:
    """A key without spaces and case: drivers differ in both (``NPU Temperature (C)``)."""
    return "".join(key.split()).lower()


def parse_blocks(text: str, command: str) -> list[ChipBlock]:
    """The blocks of an ``npu-smi info -t …`` answer, in order, those of the mcu marked.

    Raises MeasuringError for a failure, the help, and a text without one key that has a value.
    """
    refuse(text, command)
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
        raise no_answer(text, command, "values of a chip")
    return blocks


def find_block(blocks: list[ChipBlock], chip_id: int | None) -> ChipBlock | None:
    """The block of a chip, never that of the mcu; one without an id where that is the only one."""
    chips = [block for block in blocks if not block.mcu]
    matches = [block for block in chips if block.chip_id == chip_id and chip_id is not None]
    if matches:
        return matches[0]
    nameless = [block for block in chips if block.chip_id is None or chip_id is None]
    return nameless[0] if len(nameless) == 1 else None


def parse_map(text: str, command: str = "npu-smi info -m") -> list[MappedChip]:
    """The chips of ``npu-smi info -m``; without the mcu, and those that npu-smi calls unusable (NPU ID -1).

    Raises MeasuringError for a failure, the help, and a text without a chip.
    """
    refuse(text, command)
    chips: list[MappedChip] = []
    titles: list[str] = []
    for line in text[:MOST_TEXT].splitlines():
        cells = [cell.strip() for cell in _COLUMNS.split(line.strip())]
        if any(plain(cell) == _NPU for cell in cells):
            titles = [plain(cell) for cell in cells]
            continue
        row = dict(zip(titles, cells))
        npu_id, logic_id = (
            whole(row.get(_NPU)),
            whole(row.get("chiplogicid", row.get("logicid", row.get("npulogicid")))),
        )
        if npu_id is not None and logic_id is not None:
            chips.append(
                MappedChip(
                    npu_id=npu_id,
                    logic_id=logic_id,
                    chip_id=whole(row.get(_CHIP)),
                    phy_id=whole(row.get("chipphy-id", row.get("phy-id"))),
                    name=word(row.get(_NAME)) or "",
                )
            )
    if not chips:
        raise no_answer(text, command, "chip with an NPU ID and a Chip Logic ID")
    return chips


def parse_cards(text: str, command: str = "npu-smi info -l") -> list[ChipBlock]:
    """The cards of ``npu-smi info -l``: NPU ID, and Product Name and Serial Number where it shows them.

    Raises MeasuringError for a failure, the help, and a text without a card.
    """
    refuse(text, command)
    cards: list[ChipBlock] = []
    for key, value in _entries(text):
        if key == _NPU:
            cards.append(ChipBlock(npu_id=whole(value), values={}))
        elif cards:
            cards[-1].values.setdefault(key, value)
    if not cards:
        raise no_answer(text, command, "NPU ID")
    return cards


def _entries(text: str) -> list[tuple[str, str]]:
    entries = []
    for line in map(str.strip, text[:MOST_TEXT].splitlines()):
        if line.startswith("Process id:") or line.lower().startswith(_NO_PROCESS):
            entries.append(("process", line))
            continue
        key, colon, value = line.partition(":")
        if colon and key.strip():
            entries.append((plain(key), value.strip()))
    return entries


def _cut(entries: list[tuple[str, str]], npu_id: int | None) -> list[ChipBlock]:
    if not entries:
        return []
    groups: list[list[tuple[str, str]]] = [[]]
    leading = _names_chip(*entries[0])
    for entry in entries:
        if leading and _names_chip(*entry) and groups[-1]:
            groups.append([])
        groups[-1].append(entry)
        if not leading and _names_chip(*entry):
            groups.append([])
    return [_block(group, npu_id) for group in groups if group]


def _names_chip(key: str, value: str) -> bool:
    # "Chip Name : 910A" stands inside a block of -t board; only the mcu is known by nothing but its name.
    return key == _CHIP or (key == _NAME and value.lower() == "mcu")


def _block(entries: list[tuple[str, str]], npu_id: int | None) -> ChipBlock:
    values: dict[str, str] = {}
    processes: list[DeviceProcess] | None = None
    for key, value in entries:
        if key == "process":
            processes = [*(processes or []), *_process(value)]
        else:
            values.setdefault(key, value)
    chip_id = whole(values.pop(_CHIP, None))
    mcu = values.get(_NAME, "").lower() == "mcu"
    return ChipBlock(npu_id=npu_id, chip_id=chip_id, mcu=mcu, values=values, processes=processes)


def _process(line: str) -> list[DeviceProcess]:
    match = _PROCESS.match(line)
    return [DeviceProcess(pid=int(match[1]), name=match[2].strip(), memory=scaled(match[3], MIB))] if match else []

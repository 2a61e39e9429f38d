"""Parse the lists of ``npu-smi``: which chips there are (``-m``), and the values of one
(``-t …``).

Known blocks of ``-t``, recognized by content and never by line number: a block may
start with its ``Chip ID`` (``-t common``; ``-t usages`` of 310B), end with it
(``-t usages`` of 910 and 310P, ``-t proc-mem``), or have none (``-c``, ``-t health``,
950). The ``mcu`` may follow the chips; its temperature and power are the board's.

Titles of lists and tables are recognized by meaning, because chips and drivers spell
them differently: ``NPU`` and ``NPU ID``, ``AICore(%)`` and ``NPU Util(%)``, ``Phy-ID``
and ``Chip Phy-ID``. Their words hardly change.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from perfgate.document.message import Message, UnmeasuredError
from perfgate.document.telemetry import DeviceProcess
from perfgate.measuring.devices.cells import (
    MIB,
    MOST_TEXT,
    number,
    quoted,
    scaled,
    whole,
    word,
)

_MAP_TITLE = re.compile(r"\S.{0,40}?\b(?:ID|Name)\b", re.IGNORECASE)
_PROCESS = re.compile(
    r"Process id:\s*([0-9]{1,10})\s+Process name:(.*?)\s*Process memory\(MB\):\s*([0-9]{1,12})\s*"
)
_NO_PROCESS = "no process in device"
# A key of a chip's output: a quantity with its unit, or a word of -t health and -t
# board.
_KEY = re.compile(
    r".{1,60}\((?:%|mb|c|w|mhz|page)\)|healthstatus|softwareversion|firmwareversion|chiptype|chipphysicalid"
)
_CHIP, _NAME, _NPU = "chipid", "chipname", "npuid"
_SKIPPED = frozenset({"chipcount", "totalcount"})


class ChipBlock(msgspec.Struct, frozen=True, kw_only=True):
    """The output of one ``-t`` option for one chip; keys as printed, in lower case and
    without spaces.

    ``processes`` is None if the output does not mention processes.
    """

    npu_id: int | None = None
    chip_id: int | None = None
    mcu: bool = False
    values: dict[str, str] = {}
    processes: list[DeviceProcess] | None = None

    def has_values(self) -> bool:
        """Whether the block is a chip's output, and not any text with colons."""
        return self.processes is not None or any(
            _KEY.fullmatch(key) for key in self.values
        )

    def get(self, *keys: str) -> str | None:
        """The value of the first key present, None if it is marked as unavailable."""
        for key in keys:
            value = word(self.values.get(_plain(key)))
            if value is not None:
                return value
        return None

    def number(self, *keys: str) -> float | None:
        """The first of these keys that has a number."""
        for key in keys:
            value = number(self.values.get(_plain(key)))
            if value is not None:
                return value
        return None


class MappedChip(msgspec.Struct, frozen=True, kw_only=True):
    """One row of ``npu-smi info -m``: how a chip is called by npu-smi, and by the
    runtime.

    ``logic_id`` is the runtime's number. ``chip_id`` is None if npu-smi has no chips
    within a card (Ascend 950).
    """

    npu_id: int
    logic_id: int
    chip_id: int | None = None


def parse_blocks(text: str, command: str) -> list[ChipBlock]:
    """The blocks of an ``npu-smi info -t …`` answer, in order; blocks of the mcu are
    marked.

    Raises UnmeasuredError for a failure, the help, and a text without one key that has
    a value.
    """
    refuse_failure(text, command)
    blocks = []
    npu_id: int | None = None
    entries: list[tuple[str, str]] = []
    for key, value in _entries(text):
        if key == _NPU:
            blocks += _cut(entries, npu_id)
            npu_id, entries = whole(value), []
        elif key not in _SKIPPED:
            entries.append((key, value))
    blocks += _cut(entries, npu_id)
    if not any(block.has_values() for block in blocks):
        raise unread_output(text, command)
    return blocks


def find_block(blocks: list[ChipBlock], chip_id: int | None) -> ChipBlock | None:
    """The block of a chip, never of the mcu; a block without an id if there is no
    other.
    """
    nameless = []
    for block in blocks:
        if block.mcu:
            continue
        if block.chip_id is None or chip_id is None:
            nameless.append(block)
        elif block.chip_id == chip_id:
            return block
    if len(nameless) == 1:
        return nameless[0]
    return None


def parse_map(text: str, command: str = "npu-smi info -m") -> list[MappedChip]:
    """The chips of ``npu-smi info -m``, without the mcu and other helpers of a card,
    and unusable cards (NPU ID -1).

    Raises UnmeasuredError for a failure, the help, and a text in which no chip has a
    runtime's number.
    """
    refuse_failure(text, command)
    chips = []
    columns = []
    for line in text[:MOST_TEXT].splitlines():
        titles = [column_of(title) for title in _MAP_TITLE.findall(line)]
        if "npu" in titles:
            columns = titles
            continue
        chip = _mapped_chip(columns, line) if columns else None
        if chip is not None:
            chips.append(chip)
    if not chips or len({chip.logic_id for chip in chips}) < len(chips):
        raise unread_output(text, command)
    return chips


def _mapped_chip(columns: list[Column | None], line: str) -> MappedChip | None:
    row = dict(zip(columns, line.split(maxsplit=len(columns) - 1)))
    npu_id = whole(row.get("npu"))
    if npu_id is None or row.get("name", "").lower() == "mcu":
        return None
    if "logic" not in columns:
        # Ascend 950: its NPU ID is the runtime's number, and npu-smi refuses -c
        # (SwanLab and vllm-ascend on hardware).
        return MappedChip(npu_id=npu_id, logic_id=npu_id)
    logic_id = whole(row.get("logic"))
    if logic_id is None:
        return None
    return MappedChip(npu_id=npu_id, logic_id=logic_id, chip_id=whole(row.get("chip")))


def _plain(key: str) -> str:
    """A key without spaces and case: drivers differ in both (``NPU Temperature (C)``)."""
    return "".join(key.split()).lower()


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
    """The blocks of one NPU: a chip's name begins its block if it is the first entry,
    else it ends it.
    """
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
    # "Chip Name : 910A" stands inside a block of -t board; only the mcu has no other
    # sign than its name.
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
            processes.append(
                DeviceProcess(
                    pid=int(match[1]),
                    name=match[2].strip(),
                    memory=scaled(match[3], MIB),
                )
            )
    chip_id = whole(values.pop(_CHIP, None))
    mcu = values.get(_NAME, "").lower() == "mcu"
    return ChipBlock(
        npu_id=npu_id, chip_id=chip_id, mcu=mcu, values=values, processes=processes
    )


Column = Literal[
    "npu", "chip", "logic", "physical", "slot", "name", "health", "bus", "power", "temperature", "load", "hugepages",
    "hbm", "ddr", "pid", "container_pid", "process", "process_memory",
]  # fmt: skip

# A title has the meaning of the first entry of which it has a word for each beginning.
_MEANINGS: dict[tuple[str, ...], Column] = {
    ("process", "container"): "container_pid",
    ("process", "id"): "pid",
    ("process", "name"): "process",
    ("process", "mem"): "process_memory",
    ("logic",): "logic",
    ("phy",): "physical",
    ("slot",): "slot",
    ("name",): "name",
    ("health",): "health",
    ("bus",): "bus",
    ("power",): "power",
    ("temp",): "temperature",
    ("hugepages",): "hugepages",
    ("hbm",): "hbm",
    ("mem",): "ddr",
    ("aicore",): "load",
    ("util",): "load",
    ("chip",): "chip",
    ("device",): "physical",
    ("npu",): "npu",
    ("card",): "npu",
}


def column_of(title: str) -> Column | None:
    words = re.findall(r"[a-z]+", title.lower())
    for beginnings, column in _MEANINGS.items():
        if all(_has_word(words, beginning) for beginning in beginnings):
            return column
    return None


def _has_word(words: list[str], beginning: str) -> bool:
    return any(word.startswith(beginning) for word in words)


# Printed texts in lower case, and the message for each. Sources: error_container_-8005
# and usage_text_on_wrong_type of the recorded outputs, the return values of the DCMI
# manual (-8005 not ready, -8020 in use), the driver's refusal of a card that has the id
# of another container, the dynamic linker of glibc.
_REFUSALS = (
    ("ret is -8005", "device.npu-hidden"),
    ("ret is -8020", "device.npu-in-use"),
    ("container id verify failed", "device.npu-other-container"),
    ("dcmi module initialize failed", "device.npu-driver-stopped"),
    ("error while loading shared libraries", "device.npu-driver-not-found"),
    ("command not found", "device.npu-smi-not-installed"),
    ("error parameter of", "device.npu-smi-other-version"),
    ("usage:", "device.npu-smi-help"),
)
_MOST_LINES = 4
_LONGEST_LINE = 120


class UnparsedAnswerError(UnmeasuredError):
    """npu-smi answered in a format that perfgate does not know."""


def refuse_failure(text: str, command: str) -> None:
    """Raise UnmeasuredError if ``text`` is a failure or the help instead of an answer
    to ``command``.
    """
    lower = text[:MOST_TEXT].lower()
    if not lower.strip():
        raise UnmeasuredError(Message("device.tool-silent", {"command": command}))
    for sign, meaning in _REFUSALS:
        if sign in lower:
            printed = quoted(text, sign)
            raise UnmeasuredError(
                Message(
                    "device.npu-smi-refuses",
                    {
                        "command": command,
                        "meaning": Message(meaning),
                        "printed": printed,
                    },
                )
            )


def unread_output(text: str, command: str) -> UnparsedAnswerError:
    """The error for an answer without a chip, with its first lines; rulers and the
    version are left out.
    """
    lines = []
    for line in text[:MOST_TEXT].splitlines():
        words = " ".join(line.split())
        if any(map(str.isalnum, words)) and "Version:" not in words:
            lines.append(f'"{words[:_LONGEST_LINE]}"')
    first_lines = "; ".join(lines[:_MOST_LINES])
    return UnparsedAnswerError(
        Message(
            "device.npu-smi-unread",
            {"command": command, "lines": first_lines, "count": len(lines)},
        )
    )

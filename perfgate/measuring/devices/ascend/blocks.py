"""The key and value lines of ``npu-smi info -t …``, ``-m`` and ``-l``, one record a chip. Pure text in, records out.

Shapes, all met by what stands where and never by line number: a block may start with its ``Chip ID`` (``-t common``; ``-t
usages`` of 310B) or end with it (``-t usages`` of 910 and 310P, ``-t proc-mem``), or have none (with ``-c``, ``-t health``,
Ascend 950). Behind the chips may follow the ``mcu``, whose temperature and power are those of the board.
"""

from __future__ import annotations

import re

import msgspec

from perfgate.document.telemetry import DeviceProcess
from perfgate.errors import MeasuringError

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


# "N/A", "NA" and "-" stand in the recorded outputs of 310P3 (power), A3 (power of the second die) and 310B4 (Bus-Id).
_ABSENT = frozenset({"", "-", "--", "na", "n/a", "null", "none"})
_NUMBER = re.compile(r"-?[0-9]{1,15}(?:\.[0-9]{1,15})?")
_PAIR = re.compile(r"([0-9]{1,12})\s*/\s*([0-9]{1,12})")
# npu-smi calls 65536 MB what is 64 GiB.
MIB = 1 << 20
MHZ = 1_000_000


def word(cell: str | None) -> str | None:
    """A cell without the space around it, None where it says that there is nothing."""
    text = (cell or "").strip()
    return None if text.lower() in _ABSENT else text


def number(cell: str | None) -> float | None:
    text = word(cell)
    return float(text) if text is not None and _NUMBER.fullmatch(text) else None


def whole(cell: str | None) -> int | None:
    """A cell as a whole number that is not negative, such as an id or a count."""
    value = number(cell)
    return int(value) if value is not None and value >= 0 and value.is_integer() else None


def share(cell: str | None) -> float | None:
    """Percent as a share; None for what is below 0 or above 100."""
    value = number(cell)
    return value / 100 if value is not None and 0 <= value <= 100 else None


def scaled(cell: str | None, unit: int) -> int | None:
    """A cell in units of ``unit``, such as MB as bytes; None for a negative one."""
    value = number(cell)
    return None if value is None or value < 0 else int(value * unit)


def pair(cell: str | None) -> tuple[int, int] | None:
    """``used / total`` as two numbers; the recorded outputs have it with and without the first space."""
    match = _PAIR.fullmatch((cell or "").strip())
    return (int(match[1]), int(match[2])) if match else None


MOST_TEXT = 1 << 20
_QUOTED = 160
# The text as printed, in lower case, and what it means. Sources: error_container_-8005 and usage_text_on_wrong_type of the
# recorded outputs, the return values of the DCMI manual (-8005 not ready, -8020 in use), the dynamic linker of glibc.
_REFUSALS = (
    (
        "ret is -8005",
        "the driver lets this user see no card (dcmi -8005): run as a member of the group HwHiAiUser; in a container, pass "
        "/dev/davinci0, /dev/davinci_manager, /dev/devmm_svm and /dev/hisi_hdc and mount /usr/local/dcmi",
    ),
    ("ret is -8020", "another container or process holds the card (dcmi -8020): end it, or take a card of your own"),
    (
        "dcmi module initialize failed",
        "the driver's library does not start; look at its return value, and whether /dev/davinci_manager is there",
    ),
    (
        "error while loading shared libraries",
        "it finds no driver library: add /usr/local/Ascend/driver/lib64/driver and /usr/local/dcmi to LD_LIBRARY_PATH",
    ),
    ("command not found", "npu-smi is not installed: install the Ascend driver, or mount npu-smi into the container"),
    ("error parameter of", "this npu-smi does not know what it was asked for; an older or newer driver may"),
    ("usage: npu-smi", "it printed its help instead of an answer: this driver does not know the question"),
    ("usage:", "it printed its help instead of an answer: this driver does not know the question"),
)


def refuse(text: str, command: str) -> None:
    """Raise MeasuringError where ``text`` is no answer to ``asked`` but a failure or the help."""
    lower = text[:MOST_TEXT].lower()
    if not lower.strip():
        raise MeasuringError(f"{command} printed nothing")
    for sign, meaning in _REFUSALS:
        if sign in lower:
            raise MeasuringError(f"{command}: {meaning} (it printed: {quote(text, sign)})")


def no_answer(text: str, command: str, missing: str) -> MeasuringError:
    """The error for a text that fails openly in nothing, but holds no ``missing`` either."""
    return MeasuringError(f"{command} printed no {missing} (it printed: {quote(text)})")


def quote(text: str, sign: str = "") -> str:
    """The line with the sign, or the first that says something, short enough for a message."""
    lines = [line.strip() for line in text[:MOST_TEXT].splitlines() if line.strip()]
    line = next((line for line in lines if sign in line.lower()), lines[0] if lines else "nothing")
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED]}…"

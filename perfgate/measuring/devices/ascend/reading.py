"""Read the state of one chip through ``npu-smi``, and find the chip of a torch device.

Four numberings: the index of torch, the logic id of the runtime, the NPU ID and Chip ID
of npu-smi, and the physical id of ``/dev/davinciN``. Torch counts the logic ids that
ASCEND_RT_VISIBLE_DEVICES shows; ``npu-smi info -m`` has the rest.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

import msgspec

from perfgate.document.message import Message, MessageValue, UnmeasuredError
from perfgate.document.telemetry import DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.info_table import InfoTable, parse_info
from perfgate.measuring.devices.ascend.npu_smi import (
    ChipBlock,
    MappedChip,
    find_block,
    parse_blocks,
    parse_map,
)
from perfgate.measuring.devices.cells import MHZ, MIB, share
from perfgate.measuring.devices.host import Runner, run_tool

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
# "0" or "3, 5": logic ids of at most five digits.
_DEVICE_LIST = re.compile(r"\s*[0-9]{1,5}\s*(,\s*[0-9]{1,5}\s*)*")
# Keys of -t usages and -t common, and the unit that each is the load of. Which of them
# a chip has: facts of the npu-smi manual and of the recorded outputs of 910A, 910B, A3,
# 310P and 310B.
_UNITS = {
    "NPU Utilization(%)": "npu",
    "Aicore Usage Rate(%)": "aicore",
    "Aivector Usage Rate(%)": "aivector",
    "Aicube Usage Rate(%)": "aicube",
    "Aicpu Usage Rate(%)": "aicpu",
    "Ctrlcpu Usage Rate(%)": "ctrlcpu",
    "Vectorcore Usage Rate(%)": "vectorcore",
    "HBM Bandwidth Usage Rate(%)": "hbm_bandwidth",
    "DDR Bandwidth Usage Rate(%)": "ddr_bandwidth",
    "Memory Bandwidth Usage Rate(%)": "memory_bandwidth",
    "DVPP VDEC Usage Rate(%)": "dvpp_vdec",
    "DVPP VPC Usage Rate(%)": "dvpp_vpc",
    "DVPP VENC Usage Rate(%)": "dvpp_venc",
    "DVPP JPEGE Usage Rate(%)": "dvpp_jpege",
    "DVPP JPEGD Usage Rate(%)": "dvpp_jpegd",
}
# The computing units. A newer driver reports their joint load; with an older one the
# load of the busiest is a lower bound.
_COMPUTE = ("aicore", "aicube", "aivector", "vectorcore")
_MEMORIES = ("HBM", "Memory", "DDR")

_T = TypeVar("_T")


def find_chip(
    index: int, runner: Runner = run_tool, environ: Mapping[str, str] = os.environ
) -> MappedChip:
    """The chip that torch calls ``npu:index``.

    Raises UnmeasuredError when npu-smi shows no such chip.
    """
    logic_id = _logic_id(index, environ)
    chips = parse_map(runner(["npu-smi", "info", "-m"]))
    for chip in chips:
        if chip.logic_id == logic_id:
            return chip
    logic_ids = ", ".join(str(chip.logic_id) for chip in chips)
    raise UnmeasuredError(
        Message(
            "device.no-such-npu",
            {"logic_id": logic_id, "index": index, "shown": logic_ids},
        )
    )


def _logic_id(index: int, environ: Mapping[str, str]) -> int:
    """The runtime's id of torch's ``npu:index``.

    Raises UnmeasuredError when it is not visible.
    """
    text = environ.get(VISIBLE, "").strip()
    if not text:
        return index
    if not _DEVICE_LIST.fullmatch(text):
        raise UnmeasuredError(
            Message(
                "device.npu-list-unreadable",
                {"variable": VISIBLE, "value": repr(text[:80])},
            )
        )
    visible = text.split(",")
    count = len(visible)
    if index >= count:
        values: dict[str, MessageValue] = {
            "index": index,
            "variable": VISIBLE,
            "value": text[:80],
        }
        raise UnmeasuredError(
            Message(
                "device.npu-not-visible", {**values, "count": count, "last": count - 1}
            )
        )
    return int(visible[index])


def read_telemetry(
    index: int,
    runner: Runner = run_tool,
    environ: Mapping[str, str] = os.environ,
    own: frozenset[int] = frozenset(),
) -> DeviceState:
    """Everything npu-smi reports about torch's ``npu:index``, in four queries; ``own``
    are the processes that are not foreign.

    An unanswered query leaves None. Raises UnmeasuredError when npu-smi is not there,
    shows no such chip, or does not answer.
    """
    chip = find_chip(index, runner, environ)
    questions = _Questions(chip, runner)
    common, usages = questions.block("common"), questions.block("usages")
    table = questions.ask(["npu-smi", "info"], parse_info) or InfoTable()
    listed = table.chip(chip.npu_id, chip.chip_id)
    if listed is None:
        row = DeviceState(
            health=questions.block("health", with_chip=True).get("Health Status")
        )
    else:
        row = listed.state
    questions.must_have_answered()
    state = _telemetry(common, usages, row)
    processes = table.foreign_processes(chip.npu_id, chip.chip_id, own)
    return msgspec.structs.replace(state, foreign_processes=processes)


def read_state(
    chip: MappedChip, runner: Runner = run_tool, *, usages: bool = False
) -> DeviceState:
    """Clock, temperature, power and AI Core load of a chip in one query, and the load
    of all its units in a second one.

    Both may be asked while it works; while the profiler collects, npu-smi shows a load
    of 0 (the vendor's manual), so sample in a run without it. Raises UnmeasuredError if
    no query is answered.
    """
    questions = _Questions(chip, runner)
    common = questions.block("common")
    loads = ChipBlock()
    if usages:
        loads = questions.block("usages")
    questions.must_have_answered()
    return _telemetry(common, loads, DeviceState())


def read_processes(chip: MappedChip, runner: Runner = run_tool) -> DeviceState:
    """The processes on a chip, in one question. Raises UnmeasuredError if it fails."""
    questions = _Questions(chip, runner)
    block = questions.block("proc-mem")
    questions.must_have_answered()
    return DeviceState(foreign_processes=block.processes)


class _Questions:
    """Asks npu-smi about one chip, and keeps the first failure."""

    def __init__(self, chip: MappedChip, runner: Runner) -> None:
        self._chip = chip
        self._runner = runner
        self._answered = False
        self._failure: MeasuringError | None = None

    def ask(self, command: list[str], parse: Callable[[str, str], _T]) -> _T | None:
        try:
            answer = parse(self._runner(command), " ".join(command))
        except MeasuringError as error:
            self._failure = self._failure or error
            return None
        self._answered = True
        return answer

    def block(self, kind: str, *, with_chip: bool = False) -> ChipBlock:
        """The answer of ``-t`` for the chip; a block without values if there is none."""
        chip_id = self._chip.chip_id
        # If npu-smi has no chips within a card (Ascend 950), -i is the logic id.
        card = self._chip.logic_id if chip_id is None else self._chip.npu_id
        command = ["npu-smi", "info", "-t", kind, "-i", str(card)]
        if with_chip and chip_id is not None:
            command += ["-c", str(chip_id)]
        blocks = self.ask(command, parse_blocks) or []
        return find_block(blocks, chip_id) or ChipBlock()

    def must_have_answered(self) -> None:
        if not self._answered and self._failure is not None:
            raise self._failure


def _telemetry(common: ChipBlock, usages: ChipBlock, row: DeviceState) -> DeviceState:
    """The answers to ``-t`` and the chip's row of the table as one record in base
    units.
    """
    units = {**_loads(common), **_loads(usages)}
    for name, load in row.units.items():
        units.setdefault(name, load)
    compute = [units[name] for name in _COMPUTE if name in units]
    used, total = row.memory_used, row.memory_total
    if total is None:
        used, total = _memory(usages)
    temperature = common.number("Temperature(C)", "NPU Temperature (C)")
    if temperature is None:
        temperature = row.temperature
    power = common.number("NPU Real-time Power(W)")
    if power is None:
        power = row.power
    # A 310B4 at 65 °C shows 0.0 (recorded, driver 23.0.0): a running chip draws some
    # power, so 0 means unknown.
    if power is not None and power <= 0:
        power = None
    return DeviceState(
        temperature=temperature,
        power=power,
        clock=_hertz(common.number("Aicore curFreq(MHZ)")),
        rated_clock=_hertz(common.number("Aicore Freq(MHZ)")),
        utilization=units.get("npu", max(compute, default=None)),
        units=units,
        memory_used=used,
        memory_total=total,
        health=row.health,
    )


def _loads(block: ChipBlock) -> dict[str, float]:
    loads = {}
    for key, name in _UNITS.items():
        load = share(block.get(key))
        if load is not None:
            loads[name] = load
    return loads


def _memory(usages: ChipBlock) -> tuple[int | None, int | None]:
    for kind in _MEMORIES:
        megabytes = usages.number(f"{kind} Capacity(MB)")
        used = share(usages.get(f"{kind} Usage Rate(%)"))
        if megabytes:
            total = int(megabytes * MIB)
            return (
                (None, total) if used is None else (int(megabytes * MIB * used), total)
            )
    return None, None


def _hertz(megahertz: float | None) -> float | None:
    if megahertz is None or megahertz <= 0:
        return None
    return megahertz * MHZ

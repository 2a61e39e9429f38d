"""Read the state of one chip through ``npu-smi``: which chip a device of torch is, and what the tool says of it.

Four numberings: the index of torch, the logic id of the runtime, the NPU ID and Chip ID of npu-smi, and the physical id of
``/dev/davinciN``. Torch counts the logic ids that ASCEND_RT_VISIBLE_DEVICES shows; ``npu-smi info -m`` has the rest.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TypeVar

from perfgate.document.telemetry import DeviceProcess, Telemetry
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.blocks import (
    MHZ,
    MIB,
    ChipBlock,
    MappedChip,
    find_block,
    number,
    parse_blocks,
    parse_map,
    share,
)
from perfgate.measuring.devices.ascend.table import InfoTable, parse_info
from perfgate.measuring.devices.host import Runner, run_tool

VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"
# Keys of -t usages and -t common, and the unit that each is the load of. Which of them a chip has: facts of the npu-smi
# manual and of the recorded outputs of 910A, 910B, A3, 310P and 310B.
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
# What computes. A newer driver says how busy they are together; of an older one, at least as busy as the busiest.
_COMPUTE = ("aicore", "aicube", "aivector", "vectorcore")
_CAPACITY = (
    ("HBM Capacity(MB)", "HBM Usage Rate(%)"),
    ("Memory Capacity(MB)", "Memory Usage Rate(%)"),
    ("DDR Capacity(MB)", "DDR Usage Rate(%)"),
)

_T = TypeVar("_T")


def find_chip(index: int, runner: Runner = run_tool, environ: Mapping[str, str] = os.environ) -> MappedChip:
    """The chip that torch calls ``npu:index``. Raises MeasuringError when npu-smi shows no such chip."""
    logic_id = logic_id_of(index, environ)
    chips = parse_map(runner(["npu-smi", "info", "-m"]))
    for chip in chips:
        if chip.logic_id == logic_id:
            return chip
    numbers = ", ".join(str(chip.logic_id) for chip in chips)
    raise MeasuringError(
        f"npu-smi info -m shows no chip with the logic id {logic_id} of npu:{index}; it shows {numbers}"
    )


def logic_id_of(index: int, environ: Mapping[str, str]) -> int:
    """The runtime's id of torch's ``npu:index``. Raises MeasuringError when it is not among the visible ones."""
    text = environ.get(VISIBLE, "").strip()
    if not text:
        return index
    visible = [entry.strip() for entry in text.split(",")]
    if not all(entry.isascii() and entry.isdigit() and len(entry) < 6 for entry in visible):
        raise MeasuringError(f"{VISIBLE}={text[:80]!r} is no list of numbers; write e.g. {VISIBLE}=0,1")
    if index >= len(visible):
        raise MeasuringError(
            f"npu:{index} is not visible: {VISIBLE}={text[:80]} shows {len(visible)}, so the last is npu:{len(visible) - 1}"
        )
    return int(visible[index])


def read_telemetry(
    index: int, runner: Runner = run_tool, environ: Mapping[str, str] = os.environ, own: frozenset[int] = frozenset()
) -> Telemetry:
    """What npu-smi says of torch's ``npu:index``; ``own`` are the processes that are not foreign.

    Raises MeasuringError when npu-smi is not there, fails, or shows no such chip.
    """
    return read_chip(find_chip(index, runner, environ), runner, own=own)


def read_chip(chip: MappedChip, runner: Runner = run_tool, *, own: frozenset[int] = frozenset()) -> Telemetry:
    """Everything npu-smi says of a chip, in four questions.

    What one of them does not answer stays None. Raises MeasuringError when none answers.
    """
    questions = _Asked(chip, runner)
    common, usages = questions.block("common"), questions.block("usages")
    table = questions.of(["npu-smi", "info"], parse_info)
    health = None
    if table is None or table.chip(chip.npu_id, chip.chip_id) is None:
        health = questions.block("health", with_chip=True)
    questions.must_have_answered()
    return to_telemetry(chip, common=common, usages=usages, health=health, table=table, own=own)


def read_load(chip: MappedChip, runner: Runner = run_tool) -> Telemetry:
    """Clock, temperature, power and load of a chip in two questions: what may be asked while it works.

    While the profiler collects, npu-smi shows a load of 0 (the vendor's manual): sample in a run without it.
    """
    questions = _Asked(chip, runner)
    common, usages = questions.block("common"), questions.block("usages")
    questions.must_have_answered()
    return to_telemetry(chip, common=common, usages=usages)


def read_state(chip: MappedChip, runner: Runner = run_tool) -> Telemetry:
    """Clock, temperature, power and AI Core load of a chip in one question. Raises MeasuringError where it fails."""
    questions = _Asked(chip, runner)
    common = questions.block("common")
    questions.must_have_answered()
    return to_telemetry(chip, common=common)


def read_processes(chip: MappedChip, runner: Runner = run_tool) -> Telemetry:
    """The processes on a chip, in one question. Raises MeasuringError where it fails."""
    questions = _Asked(chip, runner)
    block = questions.block("proc-mem")
    questions.must_have_answered()
    return Telemetry(foreign_processes=block.processes if block else None)


def to_telemetry(
    chip: MappedChip,
    *,
    common: ChipBlock | None = None,
    usages: ChipBlock | None = None,
    health: ChipBlock | None = None,
    table: InfoTable | None = None,
    own: frozenset[int] = frozenset(),
) -> Telemetry:
    """The answers as one record in base units."""
    row = table.chip(chip.npu_id, chip.chip_id) if table else None
    units = {**_units(common), **_units(usages)}
    if row is not None and row.aicore is not None:
        units.setdefault("aicore", row.aicore)
    compute = [units[name] for name in _COMPUTE if name in units]
    used, total = (row.memory_used, row.memory_total) if row else (None, None)
    if total is None:
        used, total = _memory(usages)
    power = _first(_get(common, "NPU Real-time Power(W)"), row.power if row else None)
    return Telemetry(
        temperature=_first(_get(common, "Temperature(C)", "NPU Temperature (C)"), row.temperature if row else None),
        # A 310B4 at 65 °C shows 0.0 (recorded, driver 23.0.0): a chip that runs draws some power, so it tells none.
        power=power if power is not None and power > 0 else None,
        clock=_hertz(_get(common, "Aicore curFreq(MHZ)")),
        rated_clock=_hertz(_get(common, "Aicore Freq(MHZ)")),
        utilization=units.get("npu", max(compute, default=None)),
        units=units,
        memory_used=used,
        memory_total=total,
        health=row.health if row else health.get("Health Status") if health else None,
        foreign_processes=_foreign(table.processes_on(chip.npu_id, chip.chip_id) if table else None, own),
    )


class _Asked:
    """Asks npu-smi about one chip, and keeps the first failure."""

    def __init__(self, chip: MappedChip, runner: Runner) -> None:
        self._chip = chip
        self._runner = runner
        self._answered = False
        self._failure: MeasuringError | None = None

    def of(self, command: list[str], parse: Callable[[str, str], _T]) -> _T | None:
        try:
            answer = parse(self._runner(command), " ".join(command))
        except MeasuringError as error:
            self._failure = self._failure or error
            return None
        self._answered = True
        return answer

    def block(self, kind: str, *, with_chip: bool = False) -> ChipBlock | None:
        # Where npu-smi has no chips within a card (Ascend 950), -i is the logic id.
        card = self._chip.npu_id if self._chip.chip_id is not None else self._chip.logic_id
        command = ["npu-smi", "info", "-t", kind, "-i", str(card)]
        if with_chip and self._chip.chip_id is not None:
            command += ["-c", str(self._chip.chip_id)]
        blocks = self.of(command, parse_blocks)
        return find_block(blocks, self._chip.chip_id) if blocks else None

    def must_have_answered(self) -> None:
        if not self._answered and self._failure is not None:
            raise self._failure


def _units(block: ChipBlock | None) -> dict[str, float]:
    units = {name: share(block.get(key)) for key, name in _UNITS.items()} if block else {}
    return {name: value for name, value in units.items() if value is not None}


def _memory(usages: ChipBlock | None) -> tuple[int | None, int | None]:
    for capacity, rate in _CAPACITY if usages else ():
        total, used = number(usages.get(capacity)), share(usages.get(rate))  # type: ignore[union-attr]
        if total:
            return (None if used is None else int(total * MIB * used)), int(total * MIB)
    return None, None


def _foreign(processes: list[DeviceProcess] | None, own: frozenset[int]) -> list[DeviceProcess] | None:
    return None if processes is None else [process for process in processes if process.pid not in own]


def _get(block: ChipBlock | None, *keys: str) -> float | None:
    return block.number(*keys) if block else None


def _first(first: float | None, second: float | None) -> float | None:
    return second if first is None else first


def _hertz(megahertz: float | None) -> float | None:
    return None if megahertz is None or megahertz <= 0 else megahertz * MHZ

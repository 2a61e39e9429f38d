"""Which chip a device of torch is, and one record from several answers; the tool is a script of answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from perfgate.document.telemetry import DeviceProcess
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.reading import find_chip, read_state, read_telemetry

DATA = Path(__file__).parents[2] / "data" / "npu_smi"
MIB = 1024 * 1024
MAP_910B = "NPU ID  Chip ID  Chip Logic ID  Chip Name\n2  0  0  Ascend 910B3\n5  0  1  Ascend 910B4-1\n"
COMMON_910B = (
    "\tNPU ID : 5\n\tChip Count : 1\n\n\tChip ID : 0\n\tAicore Freq(MHZ) : 1800\n\tAicore curFreq(MHZ) : 1710\n"
    "\tTemperature(C) : 46\n\tNPU Real-time Power(W) : 139.7\n"
)


class Script:
    """Answers commands from a dictionary; what is not there has no answer."""

    def __init__(self, answers: dict[str, str]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def __call__(self, command: Sequence[str]) -> str:
        self.asked.append(" ".join(command))
        return self.answers.get(" ".join(command[1:]), "Error parameter of -t\nUsage: npu-smi info")


def of_910b() -> Script:
    return Script({
        "info -m": MAP_910B,
        "info": (DATA / "info_910b.txt").read_text(),
        "info -t common -i 5": COMMON_910B,
        "info -t usages -i 5": (DATA / "usages_910b.txt").read_text(),
    })  # fmt: skip


def test_read_telemetry__910b__base_units_of_the_right_card() -> None:
    found = read_telemetry(1, of_910b(), {})
    assert (found.temperature, found.power, found.clock, found.rated_clock) == (46.0, 139.7, 1.71e9, 1.8e9)
    assert found.clock_share() == pytest.approx(0.95)
    # Vector and cube run side by side: together at least as busy as the busier. N/A is not there at all.
    assert found.utilization == 0.4
    assert found.units == {"aicore": 0.3, "aivector": 0.4, "hbm_bandwidth": 0.12}
    assert (found.memory_used, found.memory_total) == (21784 * MIB, 65536 * MIB)
    assert found.health == "Warning"
    assert found.foreign_processes == [DeviceProcess(pid=4711, name="python", memory=18429 * MIB)]


def test_read_telemetry__own_process__not_foreign() -> None:
    assert read_telemetry(1, of_910b(), {}, own=frozenset({4711})).foreign_processes == []


@pytest.mark.parametrize(("visible", "index", "npu_id"), [("", 1, 5), ("1", 0, 5), ("1,0", 1, 2), (" 1 , 0 ", 0, 5)])
def test_find_chip__visible_devices__logic_id_and_then_npu_id(visible: str, index: int, npu_id: int) -> None:
    assert find_chip(index, of_910b(), {"ASCEND_RT_VISIBLE_DEVICES": visible}).npu_id == npu_id


@pytest.mark.parametrize(
    ("visible", "index", "words"),
    [("", 7, r"no chip with the logic id 7 of npu:7; it shows 0, 1"), ("0", 1, "the last is npu:0"), ("a-b", 0, "0,1")],
)
def test_find_chip__not_there__says_what_is(visible: str, index: int, words: str) -> None:
    with pytest.raises(MeasuringError, match=words):
        find_chip(index, of_910b(), {"ASCEND_RT_VISIBLE_DEVICES": visible})


def test_read_telemetry__second_die_of_an_a3__no_power_and_its_own_process() -> None:
    script = Script({
        "info -m": (DATA / "map_a3.txt").read_text(),
        "info": (DATA / "info_a3.txt").read_text(),
    })  # fmt: skip
    found = read_telemetry(3, script, {})
    assert (found.power, found.temperature, found.memory_used) == (None, 36.0, 59718 * MIB)
    assert found.foreign_processes == [DeviceProcess(pid=816, name="", memory=55217 * MIB)]
    assert found.clock is None


def test_read_telemetry__310p__power_of_the_mcu_is_not_the_chips() -> None:
    script = Script({
        "info -m": (DATA / "map_310p.txt").read_text(),
        "info -t common -i 4": (DATA / "common_310p.txt").read_text(),
        "info -t health -i 4 -c 0": "\tHealth Status : OK\n",
    })  # fmt: skip
    found = read_telemetry(0, script, {})
    assert (found.power, found.temperature, found.clock, found.rated_clock) == (None, 43.0, 0.96e9, 1.08e9)
    assert (found.health, found.utilization, found.foreign_processes) == ("OK", 0.07, None)


def test_read_telemetry__310b_without_table__memory_from_capacity_and_rate() -> None:
    script = Script({
        "info -m": "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend\n0  1  -  Mcu\n",
        "info -t usages -i 0": (DATA / "usages_310b.txt").read_text(),
    })  # fmt: skip
    found = read_telemetry(0, script, {})
    assert (found.memory_used, found.memory_total) == (5405 * MIB, 10810 * MIB)
    assert found.units == {"aicore": 0.0, "memory_bandwidth": 0.03}


def test_read_telemetry__power_of_nothing__not_told() -> None:
    table = (DATA / "info_310b.txt").read_text().replace("10.5", "0.0 ")
    script = Script({"info -m": "NPU ID  Chip ID  Chip Logic ID  Chip Name\n0  0  0  Ascend\n", "info": table})
    found = read_telemetry(0, script, {})
    assert (found.power, found.temperature, found.health) == (None, 66.0, "Alarm")


STAND_IN = Path(__file__).parents[2] / "softnpu" / "bin" / "npu-smi"


@pytest.mark.parametrize(
    ("chip", "total"),
    [
        ("910A", 32768),
        ("910B", 65536),
        ("A3", 65536),
        ("310P", 44280),
        ("310B", 15609),
        ("950", 131072),
    ],
)
def test_read_telemetry__stand_in_for_each_chip__fourth_device_read(
    monkeypatch: pytest.MonkeyPatch, chip: str, total: int
) -> None:
    """The software NPU's npu-smi was written from the recorded outputs by others than the reader was."""
    # It is run by the python3 on PATH, which may be slow to start where it is a version manager's.
    monkeypatch.setenv("PATH", f"{STAND_IN.parent}:{Path(sys.executable).parent}", prepend=":")
    monkeypatch.setenv("SOFTNPU_SMI_CHIP", chip)
    monkeypatch.setenv("SOFTNPU_DEVICES", "4")
    found = read_telemetry(3, environ={})
    assert found.memory_total == total * MIB
    assert (found.temperature is not None, found.clock is not None, found.health) == (True, True, "OK")
    with pytest.raises(MeasuringError, match="it shows 0, 1, 2, 3"):
        find_chip(4, environ={})


def test_read_telemetry__no_chips_within_cards__asked_by_logic_id() -> None:
    script = Script({
        "info -m": "NPU ID  Chip Logic ID  Chip Name\n8  1  Ascend950\n",
        "info -t common -i 1": "\tNPU ID : 8\n\tTemperature(C) : 40\n",
    })  # fmt: skip
    assert read_telemetry(1, script, {}).temperature == 40.0
    assert "npu-smi info -t health -i 1" in script.asked


def test_read_telemetry__950_without_logic_ids__its_npu_id_everywhere() -> None:
    script = Script({
        "info -m": (DATA / "map_950.txt").read_text(),
        "info": (DATA / "info_950.txt").read_text(),
        "info -t common -i 3": "\tNPU ID : 3\n\tAicore Freq(MHZ) : 1650\n\tAicore curFreq(MHZ) : 100\n\tTemperature(C) : 59\n",
    })  # fmt: skip
    found = read_telemetry(3, script, {})
    assert (found.temperature, found.power, found.clock, found.rated_clock) == (59.0, 195.0, 0.1e9, 1.65e9)
    assert (found.health, found.memory_used, found.foreign_processes) == ("Alarm", 5120 * MIB, [])
    assert not any(" -c " in asked for asked in script.asked)


def test_read__nothing_answers__the_first_reason() -> None:
    chip = find_chip(1, of_910b(), {})
    with pytest.raises(MeasuringError, match="-t common -i 5: this npu-smi does not support"):
        read_telemetry(1, Script({"info -m": MAP_910B}), {})
    with pytest.raises(MeasuringError, match="-t common"):
        read_state(chip, Script({}), usages=True)


def test_read_state__with_usages__two_questions_only() -> None:
    script = of_910b()
    chip = find_chip(1, script, {})
    found = read_state(chip, script, usages=True)
    assert script.asked[1:] == ["npu-smi info -t common -i 5", "npu-smi info -t usages -i 5"]
    assert (found.clock, found.utilization, found.foreign_processes) == (1.71e9, 0.4, None)

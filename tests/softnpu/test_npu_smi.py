"""The fake npu-smi: its layouts are those of recorded outputs, and it shows what is planted. Needs no torch_npu."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.samples import recorded

PROGRAM = Path(__file__).parent / "bin" / "npu-smi"


def ask(*words: str, **switches: str) -> str:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SOFTNPU_")}
    command = [sys.executable, str(PROGRAM), *words]
    result = subprocess.run(command, env={**kept, **switches}, capture_output=True, text=True, timeout=600, check=False)
    assert result.stderr == ""
    return result.stdout


def fields(text: str) -> dict[str, str]:
    """The keys and values of a block, the last of equal keys."""
    return {key.strip(): value for key, value in (line.split(" : ", 1) for line in text.splitlines() if " : " in line)}


def shape(text: str) -> list[str]:
    """The lines without their values: digits and words of a table's cells become as many blanks of one kind."""
    lines = []
    for line in text.splitlines():
        if " : " in line and line.startswith("\t"):
            lines.append(line.split(" : ")[0] + " : ")
        elif line.startswith("|") and re.match(r"\| \d", line):
            lines.append("".join(mark if mark in "|/" else "." for mark in line))
        else:
            lines.append(line.rstrip())
    return lines


def text_of(name: str) -> str:
    return recorded("npu-smi", name).read_text()


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("sample", "words", "chip", "devices"),
    [
        ("usages_910B_64GB.txt", "-t usages -i 0", "910B", "1"),
        ("usages_310P3.txt", "-t usages -i 0", "310P", "1"),
        ("common_910-32GB.txt", "-t common -i 0", "910A", "1"),
        ("common_310P3_with-mcu.txt", "-t common -i 0", "310P", "1"),
        ("info_910B3_driver-25.2.0_cann-8.5.0_one-busy.txt", "", "910B", "8"),
        ("info_910-32GB_driver-25.5.2_cann-9.0.0_ddr-and-hbm.txt", "", "910A", "8"),
        ("info_A3-Ascend910_driver-25.3.rc1_cann-8.2.RC1_two-dies-per-npu.txt", "", "A3", "16"),
    ],
)
def test_npu_smi__chip__layout_of_the_recorded_output(sample: str, words: str, chip: str, devices: str) -> None:
    expected = text_of(sample).split("| NPU     Chip")[0]
    said = ask("info", *words.split(), SOFTNPU_SMI_CHIP=chip, SOFTNPU_DEVICES=devices).split("| NPU     Chip")[0]
    assert shape(said) == shape(expected)


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("sample", "chip"),
    [
        ("info_310P3_driver-24.1.0.1_borders-stripped.txt", "310P"),
        ("info_310B4_driver-23.0.0_alarm_borders-stripped.txt", "310B"),
    ],
)
def test_npu_smi__wide_table__titles_and_bars_of_the_recorded_output(sample: str, chip: str) -> None:
    expected = [line for line in text_of(sample).splitlines() if "|" in line]
    said = [line for line in ask("info", SOFTNPU_SMI_CHIP=chip).splitlines() if line.startswith("|")]
    assert said[:3] == expected[:3]
    bars = [
        [at for at, mark in enumerate(line) if mark == "|"] for line in (said[3], said[4], expected[3], expected[4])
    ]
    assert bars[:2] == bars[2:]


@pytest.mark.recordings
def test_npu_smi__process__lines_of_the_recorded_output() -> None:
    busy = ask("info", "-t", "proc-mem", "-i", "0", SOFTNPU_SMI_PROCESSES="1654497:python:177")
    assert busy == text_of("proc-mem_910B.txt")
    assert ask("info", "-t", "proc-mem", "-i", "0") == text_of("proc-mem_idle.txt")


@pytest.mark.recordings
def test_npu_smi__watch__titles_and_columns_of_the_recorded_output() -> None:
    command = [sys.executable, str(PROGRAM), "info", "watch", "-d", "0.01"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        lines = [process.stdout.readline().rstrip("\n") for _ in range(3)]
        process.kill()
    expected = text_of("watch_i2_910.txt").splitlines()
    assert lines[0] == expected[0]
    assert [match.start() for match in re.finditer(r"\S+", lines[2])] == [
        match.start() for match in re.finditer(r"\S+", expected[2])
    ]


@pytest.mark.recordings
def test_npu_smi__driver_not_reachable__its_two_lines() -> None:
    assert ask("info", SOFTNPU_SMI_FAIL="driver") == text_of("error_container_-8005.txt")


def test_npu_smi__wrong_type__usage_text() -> None:
    for words in (["-t", "utilization,power,temperature"], ["-t", "temperature", "-i", "0"]):
        said = ask("info", *words)
        assert said.startswith("Error parameter of -t\nUsage: npu-smi info <watch|proc|-h|-m|-l|-t type>")
        assert "i2c_check" in said
    assert ask("info", "-i", "0").startswith("Usage: npu-smi")


def test_npu_smi__values_in_the_environment__shown_everywhere() -> None:
    switches = {"SOFTNPU_SMI_TEMPERATURE": "97", "SOFTNPU_SMI_FREQUENCY": "800", "SOFTNPU_SMI_HEALTH": "Alarm"}
    common = fields(ask("info", "-t", "common", "-i", "0", SOFTNPU_SMI_CHIP="910A", **switches))
    assert (common["Aicore Freq(MHZ)"], common["Aicore curFreq(MHZ)"], common["Temperature(C)"]) == (
        "1000",
        "800",
        "97",
    )
    assert fields(ask("info", "-t", "health", "-i", "0", **switches))["Health Status"] == "Alarm"
    assert "| Alarm " in ask("info", **switches)


def test_npu_smi__values_in_a_file__of_one_chip(tmp_path: Path) -> None:
    state = tmp_path / "state.json"
    state.write_text(
        json.dumps({"power": "90.0", "chips": {"1": {"power": "310.5", "processes": [[4242, "other", 2048]]}}})
    )
    switches = {"SOFTNPU_SMI_STATE": str(state), "SOFTNPU_DEVICES": "2"}
    assert fields(ask("info", "-t", "power", "-i", "0", **switches))["NPU Real-time Power(W)"] == "90.0"
    assert fields(ask("info", "-t", "power", "-i", "1", **switches))["NPU Real-time Power(W)"] == "310.5"
    table = ask("info", **switches)
    assert "| No running processes found in NPU 0 " in table
    assert re.search(r"\| 1 +0 +\| 4242 +\| other +\| 2048 +\|", table)


@pytest.mark.parametrize(
    ("chip", "titles"),
    [
        ("910B", ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Name"]),
        ("A3", ["NPU ID", "Chip ID", "Chip Logic ID", "Chip Phy-ID", "Chip Name"]),
    ],
)
def test_npu_smi__mapping__columns_of_the_chip(chip: str, titles: list[str]) -> None:
    first, *rows = ask("info", "-m", SOFTNPU_SMI_CHIP=chip, SOFTNPU_DEVICES="2").splitlines()
    assert re.split(r"\s{2,}", first.strip()) == titles
    logic = titles.index("Chip Logic ID")
    assert [re.split(r"\s{2,}", row.strip())[logic] for row in rows if "Mcu" not in row] == ["0", "1"]


@pytest.mark.recordings
def test_npu_smi__950__titles_and_columns_of_the_recorded_output() -> None:
    def answer(name: str) -> list[str]:
        return recorded("08-npu-smi-of-a-950", name, folder="cases").read_text().splitlines()

    switches = {"SOFTNPU_SMI_CHIP": "950", "SOFTNPU_DEVICES": "2", "SOFTNPU_SMI_PROCESSES": "4711:python:4600"}
    said = [line.split() for line in ask("info", **switches).splitlines() if line.startswith("|")]
    recorded_lines = [line.split() for line in answer("info.txt") if line.startswith("|")]
    assert said[1:3] == recorded_lines[1:3]
    assert [len(line) for line in said[3:5]] == [len(line) for line in recorded_lines[3:5]]
    assert recorded_lines[-2] in said  # the titles of the processes
    assert said[-1] == ["|", "1", "|", *recorded_lines[-1][3:]]

    titles, *rows = ask("info", "-m", **switches).splitlines()
    assert titles.split() == answer("map.txt")[0].split()
    assert [row.split() for row in rows] == [row.split() for row in answer("map.txt")[1:]]

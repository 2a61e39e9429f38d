"""What npu-smi prints, chip by chip: by key, absent never zero, failures told by their content."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.telemetry import DeviceProcess, DeviceState
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.ascend.info_table import TableChip, parse_info
from perfgate.measuring.devices.ascend.npu_smi import (
    MappedChip,
    UnparsedAnswerError,
    find_block,
    parse_blocks,
    parse_map,
)
from tests.samples import recorded

DATA = Path(__file__).parents[2] / "data" / "npu_smi"
MIB = 1024 * 1024
NOBODY: frozenset[int] = frozenset()
PARSERS: list[Callable[[str], object]] = [
    parse_map,
    lambda answer: parse_blocks(answer, "npu-smi info -t usages"),
]


def text(name: str) -> str:
    return (DATA / name).read_text()


def sample(name: str) -> str:
    return recorded("npu-smi", name).read_text()


def test_parse_info__910b__hbm_health_and_the_process_on_its_card() -> None:
    table = parse_info(text("info_910b.txt"))
    assert table.chips[1] == TableChip(npu_id=5, chip_id=0, name="910B4-1", state=DeviceState(
        health="Warning", power=140.0, temperature=45.0,
        units={"aicore": 0.25}, memory_used=21784 * MIB, memory_total=65536 * MIB,
    ))  # fmt: skip
    assert table.foreign_processes(2, 0, NOBODY) == []
    assert table.foreign_processes(5, 0, NOBODY) == [DeviceProcess(pid=4711, name="python", memory=18429 * MIB)]


def test_parse_info__a3__two_dies_and_no_power_for_the_second() -> None:
    table = parse_info(text("info_a3.txt"))
    assert [(chip.npu_id, chip.chip_id, chip.state.power) for chip in table.chips] == [(1, 0, 166.5), (1, 1, None)]
    assert table.foreign_processes(1, 1, NOBODY) == [DeviceProcess(pid=816, name="", memory=55217 * MIB)]


def test_parse_info__310b__memory_of_the_only_pair_and_nothing_known_of_processes() -> None:
    table = parse_info(text("info_310b.txt"))
    state = DeviceState(
        health="Alarm",
        power=10.5,
        temperature=66.0,
        units={"aicore": 0.0},
        memory_used=957 * MIB,
        memory_total=10810 * MIB,
    )
    assert [(chip.npu_id, chip.chip_id, chip.state) for chip in table.chips] == [(0, 0, state)]
    assert table.foreign_processes(0, 0, NOBODY) is None


def test_parse_info__950__card_without_chips_by_its_id() -> None:
    table = parse_info(text("info_950.txt"))
    assert (table.version, table.unread) == ("25.7.rc1", [])
    busy, alarmed = table.chips
    assert busy == TableChip(npu_id=0, chip_id=None, name="Ascend950PR", state=DeviceState(
        health="OK", power=201.5, temperature=61.0,
        units={"aicore": 0.42}, memory_used=90112 * MIB, memory_total=131072 * MIB,
    ))  # fmt: skip
    assert (alarmed.npu_id, alarmed.state.health, alarmed.state.memory_total) == (3, "Alarm", 114688 * MIB)
    # A process may be called like a title.
    assert table.foreign_processes(0, None, NOBODY) == [DeviceProcess(pid=4711, name="health", memory=84992 * MIB)]
    assert table.foreign_processes(3, None, NOBODY) == []


def test_parse_info__ids_in_the_container__ours_by_either_id() -> None:
    table = parse_info(text("info_26_container.txt"))
    both = table.foreign_processes(6, 0, NOBODY)
    assert both is not None
    assert [process.pid for process in both] == [1732754, 1732755]
    assert table.foreign_processes(6, 0, frozenset({101, 1732755})) == []
    assert table.foreign_processes(6, 0, frozenset({101})) == [both[1]]


def test_parse_info__virtual_npu__its_memory_and_no_load() -> None:
    (chip,) = parse_info(text("info_310p_vnpu.txt")).chips
    assert (chip.is_slice, chip.state.units, chip.state.memory_total) == (True, {}, 5381 * MIB)
    assert not parse_info(text("info_950.txt")).chips[0].is_slice


def test_parse_info__title_of_a_later_driver__the_rest_is_read_and_the_title_named() -> None:
    later = text("info_950.txt").replace("Hugepages-Usage(page)", "Liquid-Flow(l/min)   ")
    table = parse_info(later)
    assert table.unread == ["Liquid-Flow(l/min)"]
    assert table.chips[0].state.temperature == 61.0


def test_parse_info__titles_spelled_otherwise__same_chips() -> None:
    other = text("info_950.txt").replace("NPU ID |", "Card ID|").replace("Temp(C)       ", "Temperature(C)")
    assert parse_info(other).chips == parse_info(text("info_950.txt")).chips


def test_parse__format_of_nobody__refused_with_its_lines() -> None:
    words = r'in 2 lines: "\| Unit \| Mood \|"; "\| 0 \| fine \|"'
    for parse in PARSERS:
        with pytest.raises(UnparsedAnswerError, match=words):
            parse("+----+\n| npu-smi 99.0   Version: 99.0 |\n| Unit |  Mood |\n| 0    | fine  |\n")


def test_parse_map__mcu_and_phy_id__chips_only() -> None:
    assert parse_map(text("map_310p.txt")) == [MappedChip(npu_id=4, chip_id=0, logic_id=0)]
    assert [(chip.chip_id, chip.logic_id) for chip in parse_map(text("map_a3.txt"))] == [
        (0, 2),
        (1, 3),
    ]


def test_parse_map__950__npu_id_is_the_logic_id() -> None:
    assert parse_map(text("map_950.txt")) == [MappedChip(npu_id=0, logic_id=0), MappedChip(npu_id=3, logic_id=3)]


def test_parse_map__two_chips_of_a_card_without_logic_ids__refused() -> None:
    with pytest.raises(UnparsedAnswerError, match="Chip Phy-ID"):
        parse_map("NPU ID  Chip ID  Chip Phy-ID  Chip Name\n0  0  0  Ascend\n0  1  1  Ascend\n")


def test_parse_map__titles_one_space_apart__same_chips() -> None:
    spaced = "\n".join(" ".join(line.split()) for line in text("map_a3.txt").splitlines())
    assert parse_map(spaced) == parse_map(text("map_a3.txt"))


def test_parse_map__no_chips_within_cards__the_logic_id_alone() -> None:
    # Ascend 950 counts cards by logic id and has no Chip ID (npu-smi manual, V2).
    found = parse_map("NPU ID  Chip Logic ID  Chip Name\n8       0              Ascend950\n")
    assert found == [MappedChip(npu_id=8, logic_id=0)]


def test_parse_blocks__mcu_behind_the_chip__does_not_overwrite_it() -> None:
    blocks = parse_blocks(text("common_310p.txt"), "npu-smi info -t common -i 4")
    chip = find_block(blocks, 0)
    assert chip is not None
    assert chip.number("Temperature(C)") == 43.0
    assert chip.number("NPU Real-time Power(W)") is None
    assert [block.mcu for block in blocks] == [False, True]


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [("usages_910b.txt", "HBM Usage Rate(%)", 25.0), ("usages_310b.txt", "Memory Usage Rate(%)", 50.0)],
)
def test_parse_blocks__chip_id_last_or_first__same_chip(name: str, key: str, value: float) -> None:
    (block,) = parse_blocks(text(name), "npu-smi info -t usages")
    assert (block.chip_id, block.number(key)) == (0, value)


def test_parse_blocks__two_chips_closed_by_their_ids__each_its_own() -> None:
    blocks = parse_blocks(
        "\tNPU ID : 1\n\tChip Count : 2\n\n\tNPU Temperature (C) : 40\n\tChip ID : 0\n\n"
        "\tNPU Temperature (C) : 50\n\tChip ID : 1\n",
        "npu-smi info -t temp -i 1",
    )
    assert [(block.npu_id, block.chip_id, block.number("NPU Temperature (C)")) for block in blocks] == [
        (1, 0, 40.0),
        (1, 1, 50.0),
    ]


@pytest.mark.parametrize("absent", ["N/A", "NA", "-", "", "not 5"])
def test_block_number__no_number__none_and_never_zero(absent: str) -> None:
    (block,) = parse_blocks(f"\tTemperature(C) : {absent}\n\tChip ID : 0\n", "npu-smi info -t temp")
    assert block.number("Temperature(C)") is None


def test_parse_blocks__processes__none_is_not_unknown() -> None:
    idle = "\tNo process in device.\n\tChip ID                        : 0\n"
    assert parse_blocks(idle, "npu-smi info -t proc-mem")[0].processes == []
    assert parse_blocks("\tHealth Status : OK\n", "npu-smi info -t health")[0].processes is None


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("dcmi module initialize failed. ret is -8005", "HwHiAiUser"),
        (
            "DrvMngGetConsoleLogLevel failed.\ndcmi module initialize failed. ret is -8020",
            "another container or process",
        ),
        ("Container ID verify failed (session ct_id=0; device ct_id=12)", "belongs to another container"),
        ("dcmi module initialize failed. ret is -1", "driver's library does not start"),
        ("npu-smi: error while loading shared libraries: libdrvdsmi_host.so", "LD_LIBRARY_PATH"),
        ("bash: npu-smi: command not found", "install the Ascend driver"),
        ("", "printed nothing"),
        ("all is well: really", 'in 1 lines: "all is well: really"'),
    ],
)
def test_parse__failure__what_it_means_and_what_to_do(answer: str, words: str) -> None:
    for parse in PARSERS:
        with pytest.raises(MeasuringError, match=words):
            parse(answer)


def test_parse__help_text__no_temperature_of_i2c() -> None:
    with pytest.raises(MeasuringError, match="does not support the query"):
        parse_blocks(text("help.txt"), "npu-smi info -t temperature")


ANSWERS = sorted(path.read_text() for path in DATA.glob("*.txt"))


@settings(deadline=1000, max_examples=200)
@given(st.data())
def test_parsers__any_change_of_an_answer__records_or_measuring_error(data: st.DataObject) -> None:
    answer = data.draw(st.sampled_from(ANSWERS))
    at = data.draw(st.integers(0, len(answer)))
    until = data.draw(st.integers(at, min(len(answer), at + 80)))
    changed = answer[:at] + data.draw(st.text(max_size=40)) * data.draw(st.integers(0, 50)) + answer[until:]
    read_all(changed)


@settings(deadline=1000, max_examples=200)
@given(st.text(max_size=300) | st.text(alphabet="|:-/ \t\n0123456789NPUChipIDHealth(%)", max_size=2000))
def test_parsers__any_text__records_or_measuring_error(anything: str) -> None:
    read_all(anything)


def read_all(answer: str) -> None:
    for parse in PARSERS:
        with suppress(MeasuringError):
            parse(answer)


@pytest.mark.recordings
def test_recorded__usages_and_common__golden_values() -> None:
    chip = find_block(parse_blocks(sample("usages_910B_64GB.txt"), "usages"), 0)
    assert chip is not None
    assert (chip.number("HBM Capacity(MB)"), chip.number("Ctrlcpu Usage Rate(%)")) == (65536.0, 2.0)
    chip = find_block(parse_blocks(sample("usages_310P3.txt"), "usages"), 0)
    assert chip is not None
    assert chip.number("DDR Bandwidth Usage Rate(%)") == 51.0
    chip = find_block(parse_blocks(sample("common_910-32GB.txt"), "common"), 0)
    assert chip is not None
    assert (chip.number("Aicore Count"), chip.number("NPU Real-time Power(W)")) == (32.0, 69.0)
    chip = find_block(parse_blocks(sample("common_310P3_with-mcu.txt"), "common"), 0)
    assert chip is not None
    assert (chip.number("Temperature(C)"), chip.get("NPU Real-time Power(W)")) == (43.0, None)


@pytest.mark.recordings
def test_recorded__processes__golden_values() -> None:
    assert parse_blocks(sample("proc-mem_910B.txt"), "proc-mem")[0].processes == [
        DeviceProcess(pid=1654497, name="python", memory=177 * MIB)
    ]
    assert parse_blocks(sample("proc-mem_idle.txt"), "proc-mem")[0].processes == []


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("name", "chips", "processes", "place", "last"),
    [
        ("info_310B4_driver-23.0.0_alarm_borders-stripped.txt", 1, None, (0, 0),
         DeviceState(health="Alarm", power=0.0, temperature=65.0, units={"aicore": 0.0},
                     memory_used=3628 * MIB, memory_total=15609 * MIB)),
        ("info_310P3_driver-24.1.0.1_borders-stripped.txt", 4, 4, (2, 1),
         DeviceState(health="OK", temperature=61.0, units={"aicore": 0.0},
                     memory_used=35204 * MIB, memory_total=43693 * MIB)),
        ("info_910-32GB_driver-25.5.2_cann-9.0.0_ddr-and-hbm.txt", 8, 0, (7, 0),
         DeviceState(health="OK", power=68.5, temperature=36.0, units={"aicore": 0.0},
                     memory_used=0, memory_total=32768 * MIB)),
        ("info_910B3_driver-25.2.0_cann-8.5.0_one-busy.txt", 8, 1, (7, 0),
         DeviceState(health="OK", power=90.8, temperature=39.0, units={"aicore": 0.0},
                     memory_used=3413 * MIB, memory_total=65536 * MIB)),
        ("info_A3-Ascend910_driver-25.3.rc1_cann-8.2.RC1_two-dies-per-npu.txt", 16, 10, (7, 1),
         DeviceState(health="OK", temperature=39.0, units={"aicore": 0.0},
                     memory_used=57132 * MIB, memory_total=65536 * MIB)),
    ],
)  # fmt: skip
def test_recorded__info__golden_values(
    name: str, chips: int, processes: int, place: tuple[int, int], last: DeviceState
) -> None:
    table = parse_info(sample(name))
    assert (len(table.chips), table.unread) == (chips, [])
    assert (None if table.processes is None else len(table.processes)) == processes
    chip = table.chips[-1]
    assert ((chip.npu_id, chip.chip_id), chip.state) == (place, last)


@pytest.mark.recordings
def test_recorded__950__golden_values() -> None:
    def answer(name: str) -> str:
        return recorded("08-npu-smi-of-a-950", name, folder="cases").read_text()

    assert parse_map(answer("map.txt")) == [MappedChip(npu_id=0, logic_id=0), MappedChip(npu_id=1, logic_id=1)]
    table = parse_info(answer("info.txt"))
    assert [(chip.npu_id, chip.state) for chip in table.chips] == [
        (0, DeviceState(health="OK", power=203.3, temperature=62.0, units={"aicore": 0.37},
                        memory_used=4765 * MIB, memory_total=131072 * MIB)),
        (1, DeviceState(health="Warning", power=199.0, temperature=60.0, units={"aicore": 0.0},
                        memory_used=120 * MIB, memory_total=131072 * MIB)),
    ]  # fmt: skip
    assert table.foreign_processes(0, None, NOBODY) == [DeviceProcess(pid=4711, name="python", memory=4600 * MIB)]


@pytest.mark.recordings
def test_recorded__maps_and_failures__golden_values() -> None:
    assert [chip.logic_id for chip in parse_map(sample("map_m_A3_phy-id-column.txt"))] == [2, 3]
    assert [chip.npu_id for chip in parse_map(sample("map_m_310P3_with-mcu.txt"))] == [4]
    with pytest.raises(MeasuringError, match="-8005"):
        parse_info(sample("error_container_-8005.txt"))
    with pytest.raises(MeasuringError, match="does not support"):
        parse_blocks(sample("usage_text_on_wrong_type.txt"), "npu-smi info -t temperature")


@pytest.mark.recordings
def test_recorded__910a_session__each_answer_in_it() -> None:
    # One file of many answers (mind-cluster's fault diagnosis): cut it as it was recorded, at the commands.
    answers: dict[str, str] = {}
    command = ""
    for line in sample("mindcluster_910A_npu_info_before.txt").splitlines():
        if line.startswith("/"):
            command = line.strip()
        else:
            answers[command] = answers.get(command, "") + line + "\n"
    assert len(parse_map(answers["/usr/local/bin/npu-smi info -m"])) == 8
    (usages,) = parse_blocks(answers["/usr/local/bin/npu-smi info -i 0 -t usages"], "usages")
    assert (usages.chip_id, usages.number("HBM Capacity(MB)")) == (0, 31129.0)
    (board,) = parse_blocks(answers["/usr/local/bin/npu-smi info -i 0 -t board"], "board")
    assert (board.npu_id, board.get("Software Version"), board.get("PCI Vendor ID")) == (0, "23.0.5", "0x19E5")
    (health,) = parse_blocks(answers["/usr/local/bin/npu-smi info -i 0 -c 0 -t health"], "health")
    assert (health.get("Health Status"), health.get("Error Code")) == ("OK", None)
    with pytest.raises(MeasuringError, match="printed nothing"):
        parse_info(answers["/usr/local/bin/npu-smi info"])

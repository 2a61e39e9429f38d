"""nvidia-smi in the shape its manual gives (--query-gpu, --format=csv,noheader,nounits); no recorded output is here."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.document.telemetry import DeviceProcess
from perfgate.errors import MeasuringError
from perfgate.measuring.devices.monitors.cuda import (
    APP_FIELDS,
    FIELDS,
    choose_row,
    parse_apps,
    parse_rows,
    read_gpu,
    throttled_by,
    to_telemetry,
)

MIB = 1024 * 1024
UUID = "GPU-1a2b3c4d-0000-0000-0000-000000000001"
ROW = f"0, {UUID}, NVIDIA H100 80GB HBM3, 550.54.15, 41, 119.50, 1980, 1980, 3, 1, 4096, 81559, 0x0000000000000000, 0\n"
OLD = "1, GPU-ffff, Tesla P4, 470.1, 60, [N/A], 1100, 1531, 97, 40, 100, 7611, 0x0000000000000008, [N/A]\n"
BOTH = parse_rows(ROW + OLD, FIELDS, "nvidia-smi")
BY_BUS = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
APPS = f"{UUID}, 815, python, 2048\nGPU-ffff, 816, /usr/bin/a, b, 10\n".replace("/usr/bin/a, b", '"/usr/bin/a, b"')


def test_read_gpu__one_gpu__base_units() -> None:
    found = read_gpu(0, lambda command: APPS if "compute-apps" in command[1] else ROW, {}, own=frozenset({1}))
    assert (found.temperature, found.power, found.clock, found.rated_clock) == (41.0, 119.5, 1.98e9, 1.98e9)
    assert (found.utilization, found.units) == (0.03, {"gpu": 0.03, "memory_bandwidth": 0.01})
    assert (found.memory_used, found.memory_total) == (4096 * MIB, 81559 * MIB)
    assert (found.health, found.throttled) == ("OK", False)
    assert found.foreign_processes == [DeviceProcess(pid=815, name="python", memory=2048 * MIB)]


def test_to_telemetry__what_an_old_gpu_does_not_say__none() -> None:
    (row,) = parse_rows(OLD, FIELDS, "nvidia-smi")
    found = to_telemetry(row, None)
    assert (found.power, found.health, found.foreign_processes, found.throttled) == (None, None, None, True)


@pytest.mark.parametrize(
    ("mask", "words", "throttled", "capped"),
    [
        ("0x0000000000000000", [], False, False),
        ("0x0000000000000001", [], False, False),
        ("0x0000000000000102", [], False, False),
        ("0x0000000000000004", [], False, True),
        ("0x0000000000000024", ["heat (software)"], True, True),
        ("0x0000000000000088", ["hardware slowdown", "power brake"], True, False),
        ("Not Active", [], None, None),
        ("[N/A]", [], None, None),
    ],
)
def test_clock_reasons__mask__power_limit_is_no_throttling(
    mask: str, words: object, throttled: bool | None, capped: bool | None
) -> None:
    (row,) = parse_rows(ROW.replace("0x0000000000000000", mask), FIELDS, "nvidia-smi")
    state = to_telemetry(row, None)
    assert throttled_by(mask) == words
    assert (state.throttled, state.power_capped) == (throttled, capped)


@pytest.mark.parametrize(
    ("visible", "index", "chosen"), [("", 1, "1"), ("1", 0, "1"), ("1,0", 1, "0"), ("GPU-1a2b", 0, "0")]
)
def test_choose_row__visible_devices__by_number_or_uuid(visible: str, index: int, chosen: str) -> None:
    assert (
        choose_row(parse_rows(ROW + OLD, FIELDS, "nvidia-smi"), index, {"CUDA_VISIBLE_DEVICES": visible, **BY_BUS}, "")[
            "index"
        ]
        == chosen
    )


@pytest.mark.parametrize(("visible", "index"), [("", 2), ("0", 1), ("GPU-none", 0)])
def test_choose_row__not_there__refused(visible: str, index: int) -> None:
    with pytest.raises(MeasuringError, match=r"cuda|no GPU"):
        choose_row(BOTH, index, {"CUDA_VISIBLE_DEVICES": visible, **BY_BUS}, "")


def test_choose_row__uuid_that_torch_told__that_one_whatever_its_number() -> None:
    # CUDA calls the H100 cuda:0 as the faster one, wherever it stands on the bus.
    turned = parse_rows(OLD.replace("1,", "0,", 1) + ROW.replace("0,", "1,", 1), FIELDS, "nvidia-smi")
    assert choose_row(turned, 0, {}, UUID)["name"] == "NVIDIA H100 80GB HBM3"


def test_choose_row__different_gpus_in_an_order_nobody_set__refused_with_the_variable() -> None:
    with pytest.raises(MeasuringError, match="CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        choose_row(BOTH, 0, {}, "")


def test_choose_row__equal_gpus__their_number() -> None:
    twins = parse_rows(ROW + ROW.replace("0,", "1,", 1).replace(UUID, "GPU-2"), FIELDS, "nvidia-smi")
    assert choose_row(twins, 1, {}, "")["uuid"] == "GPU-2"


@pytest.mark.parametrize(
    "answer",
    [
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        'Field "clocks.max.smm" is not a valid field to query.\n',
        "No devices were found\n",
        "0, GPU-1\n",
        "",
    ],
)
def test_parse_rows__failure__refused_by_content(answer: str) -> None:
    with pytest.raises(MeasuringError, match="nvidia-smi"):
        parse_rows(answer, FIELDS, "nvidia-smi --query-gpu")


def test_parse_apps__comma_in_a_name_and_nothing__rows() -> None:
    assert [app["process_name"] for app in parse_apps(APPS)] == ["python", "/usr/bin/a, b"]
    assert parse_apps("\n") == []


@settings(deadline=1000)
@given(st.text(max_size=300) | st.text(alphabet=',"0x1 \n[]N/A.', max_size=400))
def test_parse_rows__any_text__rows_or_measuring_error(text: str) -> None:
    for fields in (FIELDS, APP_FIELDS):
        try:
            rows = parse_rows(text, fields, "nvidia-smi")
        except MeasuringError:
            continue
        assert all(tuple(row) == fields for row in rows)

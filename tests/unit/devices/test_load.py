"""A device's clock while it computes: scripted readings, a virtual clock, and a recorded 910A that throttled."""

from __future__ import annotations

import csv
import threading

import msgspec
import pytest

from perfgate.document.telemetry import DeviceState
from perfgate.measuring.devices.card import judge_load, read_under_load
from tests.samples import recorded


def reading(
    megahertz: float | None, *, busy: float | None = 0.9, throttled: bool | None = None, heat: float = 60
) -> DeviceState:
    clock = None if megahertz is None else megahertz * 1e6
    return DeviceState(
        clock=clock, rated_clock=1800e6, utilization=busy, throttled=throttled, temperature=heat, power=300.0
    )


def judged(*readings: DeviceState) -> list[tuple[str, str, str]]:
    return [(check.name, check.status, check.seen) for check in judge_load("npu", list(readings))]


def test_judge_load__full_clock__ok() -> None:
    assert judged(reading(1800), reading(1800), reading(1790)) == [
        ("npu clock under load", "ok", "100 % of 1800 MHz, from 99 to 100 % in 3 readings"),
        ("npu throttling under load", "ok", "the clock stayed within 0.6 %; at most 60 °C, 300 W"),
    ]


def test_judge_load__clock_lower_than_rated_all_the_time__attention() -> None:
    clock, throttling = judge_load("npu", [reading(1500)] * 3)
    assert (clock.status, throttling.status) == ("attention", "ok")
    assert clock.remedy is not None


def test_judge_load__clock_falls__throttling() -> None:
    clock, throttling = judge_load("npu", [reading(1800)] * 4 + [reading(1440, heat=95)])
    assert (clock.status, throttling.status) == ("ok", "attention")
    assert throttling.seen == "the clock fell by 20 % of its highest while the load ran; at most 95 °C, 300 W"


def test_judge_load__driver_says_it_throttles__believed() -> None:
    _, throttling = judge_load("cuda", [reading(1800, throttled=False), reading(1800, throttled=True)])
    assert (throttling.status, throttling.seen[:18]) == ("attention", "in 1 of 2 readings")


def test_judge_load__clock_held_by_the_power_limit__a_state_and_no_fault() -> None:
    capped = msgspec.structs.replace(reading(1500, throttled=False), power_capped=True)
    clock, throttling = judge_load("cuda", [capped] * 3)
    assert (clock.status, throttling.status) == ("ok", "ok")
    assert str(clock.seen).endswith("; at the power limit in 3 of 3 readings")


@pytest.mark.parametrize(
    ("readings", "words"),
    [
        ([], "0 times under load"),
        ([reading(1800)], "1 times under load"),
        ([reading(800, busy=0.0), reading(800, busy=0.02)], "that of a device at rest"),
    ],
)
def test_judge_load__nothing_to_judge__unavailable_and_why(readings: list[DeviceState], words: str) -> None:
    found = judge_load("npu", readings)
    assert {check.status for check in found} == {"unavailable"}
    assert all(words in check.seen for check in found)


def test_judge_load__no_clock__unavailable() -> None:
    assert [check.status for check in judge_load("npu", [reading(None)] * 2)] == ["unavailable", "unavailable"]


@pytest.mark.recordings
def test_judge_load__recorded_910a_at_work__its_clock_fell_to_800_of_1000() -> None:
    with recorded("npu-smi", "mindcluster_npu_smi_0_details.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["dev_id"] == "0"]
    # From the first reading above 100 W on, while the card works (at rest it draws 70 W).
    at_work = [row for row in rows if float(row["power"]) > 100]
    readings = [
        DeviceState(
            clock=float(row["freq"]) * 1e6,
            rated_clock=1000e6,
            power=float(row["power"]),
            temperature=float(row["temp"]),
        )
        for row in at_work[:10]
    ]
    clock, throttling = judge_load("npu", readings)
    assert (clock.status, throttling.status) == ("attention", "attention")
    assert clock.seen == "80 % of 1000 MHz, from 80 to 100 % in 10 readings"
    assert "fell by 20 %" in throttling.seen


def test_read_under_load__load_runs_until_enough_was_read__judged() -> None:
    taken: list[DeviceState] = []
    enough = threading.Event()
    now = [0.0]

    def sample() -> DeviceState:
        taken.append(reading(1800))
        if len(taken) > 4:
            enough.set()
        return taken[-1]

    def load() -> None:
        # The virtual clock stands still until the reader has read; a reader that never reads is a failure, not a hang.
        if now[0] == 0.0:
            now[0] = 1.0
            return
        assert enough.wait(600)
        now[0] += 5.0

    readings = read_under_load(sample, load, 8.0, clock=lambda: now[0])
    assert [check.status for check in judge_load("npu", readings)] == ["ok", "ok"]
    assert now[0] == 11.0


def test_read_under_load__nobody_tells__no_load_at_all() -> None:
    def load() -> None:
        raise AssertionError("a device of which nobody tells anything is not loaded")

    readings = read_under_load(lambda: None, load, 8.0)
    assert {check.status for check in judge_load("npu", readings)} == {"unavailable"}


def test_read_under_load__load_raises__no_reader_is_left() -> None:
    calls = iter([None])

    def load() -> None:
        if next(calls, 1) is not None:
            raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        read_under_load(lambda: reading(1800), load, 8.0)
    for thread in threading.enumerate():
        if thread.name == "perfgate-telemetry":
            thread.join(60)
            assert not thread.is_alive()

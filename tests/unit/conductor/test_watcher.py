"""What readings of a device beside the pairs make of their blocks: by time, on both sides, and never our own workers' doing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate import sampling
from perfgate.conductor.machine.watcher import Watcher, namespace_ids, watching
from perfgate.document.decision import DecisionDocument, PowerCap
from perfgate.document.run import RunDocument
from perfgate.document.samples import BlockColumns, Replicate
from perfgate.document.telemetry import DeviceProcess, DeviceState, TelemetryReading
from perfgate.errors import MeasuringError
from tests.fakes.device import FakeDevice
from tests.fakes.records import changed
from tests.traps.virtual import VirtualGate, documents_of, judged, works
from tests.unit.gate.builders import SHAPE, sides

replace = msgspec.structs.replace
MS = 1_000_000
BLOCKS = 4
SEEN_MS, TURN_MS, PAIR_MS = 20, 50, 2000
SAME = [1.0 + 0.0005 * (-1) ** pair for pair in range(12)]
SMI = Path(__file__).parents[2] / "softnpu" / "bin"


@dataclass
class Told:
    """Readings that a sampler's process might have handed over."""

    told: Sequence[TelemetryReading]

    def readings(self) -> list[TelemetryReading]:
        return list(self.told)

    def end(self) -> None: ...


def reading(began_ms: float, ended_ms: float, **fields: Any) -> TelemetryReading:
    return TelemetryReading(
        began_ns=round(began_ms * MS), ended_ns=round(ended_ms * MS), telemetry=DeviceState(**fields)
    )


def watcher(*told: TelemetryReading, own: frozenset[int] = frozenset(), host_ids: bool = True) -> Watcher:
    return Watcher(Told(told), own=own, host_ids=host_ids)  # type: ignore[arg-type]


def timed(replicate: Replicate) -> Replicate:
    """The replicate with blocks every 50 ms from two seconds a pair on, the second side 25 ms behind the first."""
    begin = replicate.pair * PAIR_MS + (25 if replicate.member == "second" else 0)
    columns = replicate.shapes[SHAPE]
    asked = [(begin + block * TURN_MS) * MS for block in range(len(columns.calls))]
    seen = [SEEN_MS * MS for _ in asked]
    return replace(
        replicate, shapes={SHAPE: replace(columns, conductor=replace(columns.conductor, asked_ns=asked, seen_ns=seen))}
    )


def documents() -> tuple[RunDocument, RunDocument]:
    base, head = sides(SAME, call=0.0009)
    return tuple(  # type: ignore[return-value]
        changed(run, replicates=[timed(replicate) for replicate in run.pairs.replicates]) for run in (base, head)
    )


def watched(by: Watcher) -> tuple[RunDocument, RunDocument]:
    base, head = documents()
    lists = list(base.pairs.replicates), list(head.pairs.replicates)
    by.put_into(*lists)
    return changed(base, replicates=lists[0]), changed(head, replicates=lists[1])


def decided(*told: TelemetryReading, **fields: Any) -> DecisionDocument:
    return judged(*watched(watcher(*told, **fields)))


def columns_of(run: RunDocument, pair: int = 0) -> BlockColumns:
    return next(replicate for replicate in run.pairs.replicates if replicate.pair == pair).shapes[SHAPE]


def kinds(decision: DecisionDocument) -> set[str]:
    return {entry.kind for entry in decision.gaps.invalid}


WHOLE_JOB = (-10, 12 * PAIR_MS)


def test_put_into__throttled_for_a_moment__the_blocks_of_that_moment_on_both_sides() -> None:
    base, head = watched(watcher(reading(-5, 22, throttled=False), reading(60, 90, throttled=True)))

    assert columns_of(base).device.throttled == [False, True, None, None]
    assert columns_of(head).device.throttled == [None, True, None, None]
    assert columns_of(base, pair=1).device.throttled == [None] * BLOCKS
    assert [found.began_ns for found in base.pairs.replicates[0].readings] == [-5 * MS, 60 * MS]


def test_decide__throttled_all_the_time__inconclusive_and_says_so() -> None:
    decision = decided(reading(*WHOLE_JOB, throttled=True))

    assert decision.verdict == "INCONCLUSIVE"
    assert kinds(decision) == {"throttled"}


def test_decide__never_throttled__as_without_a_watcher() -> None:
    decision = decided(reading(*WHOLE_JOB, throttled=False, temperature=60.0))

    assert (decision.verdict, kinds(decision)) == ("PASS", set())


@pytest.mark.parametrize(
    ("slowed", "kind", "verdict"), [(0.8, {"throttled"}, "INCONCLUSIVE"), (0.2, set(), "PASS"), (0.0, set(), "PASS")]
)
def test_measure_pairs__device_throttled_for_a_share_of_the_job__invalid_where_too_little_is_left(
    slowed: float, kind: set[str], verdict: str
) -> None:
    measured, machine = VirtualGate(works(MS), works(MS)).measure()
    begin, end = machine.blocks[0].began_ns / MS, machine.blocks[-1].began_ns / MS + 100
    border = begin + slowed * (end - begin)
    found = watcher(reading(begin, border, throttled=True), reading(border, end, throttled=False))
    found.put_into(measured.base, measured.head)

    decision = judged(*documents_of(measured))
    assert (kinds(decision), decision.verdict) == (kind, verdict)


def clocks(share: float, **fields: Any) -> list[TelemetryReading]:
    """A reading within the blocks of every pair."""
    told = {"clock": share * 1.8e9, "rated_clock": 1.8e9, "utilization": 0.9, **fields}
    return [reading(pair * PAIR_MS + 30, pair * PAIR_MS + 160, **told) for pair in range(12)]


def test_decide__clock_below_its_rate_while_blocks_run__slow_clock() -> None:
    assert kinds(decided(*clocks(0.66))) == {"slow_clock"}


def test_decide__clock_at_its_rate__nothing() -> None:
    assert kinds(decided(*clocks(1.0))) == set()


@pytest.mark.parametrize(
    "told",
    [
        clocks(0.44, utilization=0.0),
        # asked before the blocks began: the clock may be that of a device at rest
        [reading(pair * PAIR_MS - 500, pair * PAIR_MS + 200, clock=0.8e9, rated_clock=1.8e9) for pair in range(12)],
        # the driver says that nothing slows it: somebody asked for this clock
        clocks(0.75, throttled=False),
    ],
)
def test_decide__low_clock_that_is_no_fault__nothing(told: list[TelemetryReading]) -> None:
    assert kinds(decided(*told)) == set()


def test_decide__power_limit_in_every_block__a_state_of_both_sides_and_a_verdict() -> None:
    state = {"throttled": False, "power_capped": True, "utilization": 0.98}
    decision = decided(reading(*WHOLE_JOB, **state))

    assert (decision.verdict, kinds(decision)) == ("PASS", set())
    assert decision.measured.power_cap == PowerCap(base=1.0, head=1.0)
    assert decided(reading(*WHOLE_JOB, throttled=False, power_capped=False)).measured.power_cap is None


def device_at_its_power_limit() -> FakeDevice:
    device = FakeDevice()
    state = DeviceState(throttled=False, power_capped=True, clock=0.8e9, rated_clock=1e9, foreign_processes=[])
    device.conditions = [state] * 1000
    return device


def test_decide__fake_device_at_its_power_limit__equal_code_passes_and_a_slower_call_fails() -> None:
    same = VirtualGate(works(MS), works(MS), device=device_at_its_power_limit).decide()
    assert (same.verdict, kinds(same), same.measured.power_cap) == ("PASS", set(), PowerCap(base=1.0, head=1.0))
    slower = VirtualGate(works(MS), works(1_100_000), device=device_at_its_power_limit).decide()
    assert (slower.verdict, kinds(slower)) == ("FAIL", set())


def clocks_by_side(base: float, head: float) -> list[TelemetryReading]:
    """Short readings in the first block of each side of every pair, at the power limit."""
    readings = []
    for pair in range(12):
        for begin, share in ((0, base), (25, head)):
            at = pair * PAIR_MS + begin + TURN_MS + 5
            state = {"clock": share * 2e9, "rated_clock": 2e9, "throttled": False, "power_capped": True}
            readings.append(reading(at, at + 10, utilization=0.98, **state))
    return readings


def test_decide__clocks_of_the_sides_differ__invalid_and_by_how_much() -> None:
    decision = decided(*clocks_by_side(base=0.80, head=0.72))
    assert (decision.verdict, kinds(decision)) == ("INCONCLUSIVE", {"clocks_differ"})
    assert decision.gaps.invalid[0].message.values["change"] == pytest.approx(-0.1)


@pytest.mark.parametrize("head", [0.80, 0.79])
def test_decide__one_clock_for_both_sides__nothing(head: float) -> None:
    assert kinds(decided(*clocks_by_side(base=0.80, head=head))) == set()


def processes(*pids: int) -> TelemetryReading:
    return reading(*WHOLE_JOB, foreign_processes=[DeviceProcess(pid=pid, name="secret-job") for pid in pids])


def test_decide__process_of_another__foreign_process() -> None:
    assert kinds(decided(processes(7, 99), own=frozenset({7}))) == {"foreign_process"}


def test_decide__our_own_workers__nothing() -> None:
    assert kinds(decided(processes(7, 8), own=frozenset({7, 8, 9}))) == set()


def listed(at_ms: float, *pids: int) -> TelemetryReading:
    return reading(at_ms, at_ms + 5, foreign_processes=[DeviceProcess(pid=pid) for pid in pids])


def test_decide__process_listed_between_the_pairs_and_never_beside_one__was_there_all_the_time() -> None:
    assert kinds(decided(*(listed(pair * PAIR_MS - 1000, 99) for pair in range(13)))) == {"foreign_process"}


def test_put_into__process_that_came_or_went_between_two_readings__not_counted_to_the_block() -> None:
    base, _ = watched(watcher(listed(-50, 7, 98), listed(400, 99, 98), listed(3000), listed(5000, 99)))
    assert columns_of(base).device.foreign_processes == [1] * BLOCKS  # 98 alone was there before and after
    assert columns_of(base, pair=1).device.foreign_processes == [0] * BLOCKS
    assert columns_of(base, pair=3).device.foreign_processes == [None] * BLOCKS


def test_put_into__throttled_before_and_after__throttled_between__one_of_both__unknown() -> None:
    told = [
        reading(at, at + 5, throttled=slow) for at, slow in ((-50, True), (400, True), (3000, False), (5000, False))
    ]
    base, _ = watched(watcher(*told))
    states = [set(columns_of(base, pair=pair).device.throttled) for pair in range(4)]
    assert states == [{True}, {None}, {False}, {None}]


def test_put_into__ids_of_the_host_seen_from_a_container__unknown_and_not_foreign() -> None:
    base, _ = watched(watcher(processes(1_601_114, 1_601_200), own=frozenset({7}), host_ids=False))
    assert columns_of(base).device.foreign_processes == [None] * BLOCKS


def test_put_into__container_whose_driver_lists_our_worker__the_other_is_foreign() -> None:
    base, _ = watched(watcher(processes(7, 99), own=frozenset({7}), host_ids=False))
    assert columns_of(base).device.foreign_processes == [1] * BLOCKS
    told = base.pairs.replicates[0].readings[0].telemetry.foreign_processes
    assert told == [DeviceProcess(pid=99)]  # what other jobs are called is nobody's business


def test_put_into__nobody_lists_processes__unknown() -> None:
    base, _ = watched(watcher(reading(*WHOLE_JOB, temperature=60.0)))
    assert columns_of(base).device.foreign_processes == [None] * BLOCKS


def test_put_into__no_watcher__what_the_workers_said_stays() -> None:
    base, _ = watched(Watcher(None, own=()))
    assert columns_of(base).device.throttled == []


def test_namespace_ids__this_process__its_own_number() -> None:
    assert os.getpid() in namespace_ids(os.getpid())


# Beside a process that works, through the real sampler and a stand-in for the vendor's tool.


def sampled(device: str, folder: Path, *, identity: str = "", **variables: str) -> list[Replicate]:
    """Watch until there are readings of state and of processes, with one long block beside them."""
    environment = {"PATH": f"{folder}:{SMI}:{Path(sys.executable).parent}:/usr/bin:/bin", **variables}
    began = time.perf_counter_ns()
    with watching(device, identity, own={os.getpid()}, environment=environment, folder=folder) as found:
        sampler = found.sampler
        assert sampler is not None
        while len(sampler.readings()) < 5:
            assert sampler.failure() is None
            time.sleep(0.05)
        found.end()
        columns = documents()[0].pairs.replicates[0].shapes[SHAPE]
        beside = [replace(documents()[0].pairs.replicates[0], shapes={SHAPE: long_blocks(columns, began)})]
        found.put_into(beside)
    return beside


def long_blocks(columns: BlockColumns, began: int) -> BlockColumns:
    lasted = time.perf_counter_ns() - began
    return replace(columns, conductor=replace(columns.conductor, asked_ns=[began] * BLOCKS, seen_ns=[lasted] * BLOCKS))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_END_SECONDS", 60.0)


@pytest.mark.usefixtures("patient")
def test_watching__npu_below_its_clock_and_a_neighbour_on_it__both_seen(tmp_path: Path) -> None:
    state = {"SOFTNPU_SMI_FREQUENCY": "1200", "SOFTNPU_SMI_UTILIZATION": "95", "SOFTNPU_SMI_TEMPERATURE": "93"}
    (found,) = sampled("npu:0", tmp_path, **state, SOFTNPU_SMI_PROCESSES=f"4242:python:177,{os.getpid()}:python:20")
    columns = found.shapes[SHAPE]

    assert columns.device.clock_share == [pytest.approx(1200 / 1800)] * BLOCKS
    assert columns.device.foreign_processes == [1] * BLOCKS
    assert {told.telemetry.temperature for told in found.readings} == {93.0, None}
    assert all(told.began_ns < told.ended_ns for told in found.readings)


@pytest.mark.usefixtures("patient")
def test_watching__module_of_the_change_in_the_folder_it_starts_in__not_imported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "msgspec.py").write_text("raise SystemExit(3)")
    monkeypatch.chdir(tmp_path)
    (found,) = sampled("npu:0", tmp_path, SOFTNPU_SMI_UTILIZATION="95")
    assert found.shapes[SHAPE].device.clock_share == [1.0] * BLOCKS


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("chip", ["910A", "A3", "310P", "950"])
def test_watching__second_npu_of_other_layouts__its_own_clock(chip: str, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('{"utilization": 90, "chips": {"0": {"frequency": 100}}}')
    variables = {"SOFTNPU_SMI_CHIP": chip, "SOFTNPU_DEVICES": "4", "ASCEND_RT_VISIBLE_DEVICES": "2,3"}
    (found,) = sampled("npu:1", tmp_path, SOFTNPU_SMI_STATE=str(tmp_path / "state.json"), **variables)

    assert found.shapes[SHAPE].device.clock_share == [1.0] * BLOCKS
    assert found.shapes[SHAPE].device.foreign_processes == [0] * BLOCKS


@pytest.mark.usefixtures("patient")
def test_watching__npu_smi_without_rights__says_so(tmp_path: Path) -> None:
    with pytest.raises(MeasuringError, match="npu-smi"):
        sampled("npu:0", tmp_path, SOFTNPU_SMI_FAIL="driver")


UUIDS = ["GPU-1a2b3c4d-0000-0000-0000-000000000001", "GPU-ffff"]
NVIDIA_SMI = f"""#!/bin/sh
case "$1" in
*compute-apps*) echo "{UUIDS[0]}, 815, python, 2048"; echo "{UUIDS[1]}, 816, python, 10";;
*) echo "0, {UUIDS[1]}, Tesla P4, 470.1, 60, [N/A], 1100, 1531, 97, 40, 100, 7611, 0x0000000000000008, [N/A]"
   echo "1, {UUIDS[0]}, NVIDIA H100 80GB HBM3, 550.54.15, 41, 119.50, 1755, 1980, 93, 1, 4096, 81559, $MASK, 0";;
esac
"""


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(
    ("mask", "throttled"), [("0x0000000000000002", False), ("0x0000000000000004", False), ("0x0000000000000028", True)]
)
def test_watching__gpu_by_its_uuid__its_own_reasons_and_processes(mask: str, throttled: bool, tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(NVIDIA_SMI)
    program.chmod(0o755)
    (found,) = sampled("cuda:0", tmp_path, identity=UUIDS[0], MASK=mask)
    columns = found.shapes[SHAPE]

    assert columns.device.throttled == [throttled] * BLOCKS
    assert columns.device.power_capped == [mask == "0x0000000000000004"] * BLOCKS
    assert set(columns.device.clock_share) <= {None, 1755 / 1980}
    assert columns.device.foreign_processes == [1] * BLOCKS
    pids = [process.pid for told in found.readings for process in told.telemetry.foreign_processes or ()]
    assert set(pids) == {815}


@pytest.mark.parametrize("device", ["cpu", "cpu:0"])
def test_watching__cpu__no_process_beside_what_is_measured(device: str, tmp_path: Path) -> None:
    with watching(device, "", own=(), environment={}, folder=tmp_path) as found:
        children: str | None = subprocess.run(
            ["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True, check=False
        ).stdout
        assert "perfgate.measuring.devices.sampler" not in (children or "")
        found.end()

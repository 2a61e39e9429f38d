"""Counters of trace files: their series, units and devices, and what holds no number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.trace.model.readings import MEMORY_ALLOCATED, MEMORY_RESERVED
from perfgate.trace.model.recording import Timeline
from tests.samples import recorded, unpacked
from tests.wording import text_of


def counter(name: str, time: float, process: Any = 0, **values: Any) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": process, "ts": time, "args": values}


def kernel(device: int, start: float) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": "mm", "pid": device, "tid": 7, "ts": start, "dur": 2,
            "args": {"device": device}}  # fmt: skip


def allocation(time: float, allocated: int, reserved: int, kind: int, device: int) -> dict[str, Any]:
    held = {"Total Allocated": allocated, "Total Reserved": reserved, "Device Type": kind, "Device Id": device}
    return {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "pid": 5, "tid": 5, "ts": time, "args": held}


def read(folder: Path, *events: dict[str, Any], **members: Any) -> trace.Recording:
    (folder / "trace.json").write_text(json.dumps({**members, "traceEvents": events}))
    return trace.read(folder / "trace.json")


def series(timeline: Timeline) -> dict[str, tuple[list[int], list[float], str]]:
    return {name: (own.time.tolist(), own.value.tolist(), own.unit) for name, own in timeline.readings.items()}


def test_kineto__counters_and_allocations__of_their_device_and_of_all(tmp_path: Path) -> None:
    recording = read(
        tmp_path,
        *(kernel(0, 1), kernel(1, 1)),
        *(counter("GPU Utilization", 2, 0, **{"%": 40}), counter("GPU Utilization", 1, 0, **{"%": "35.5"})),
        *(counter("Power", 3, 1, W=300), counter("queue", 3, 4711, waiting=2, running=1)),
        *(allocation(1, 512, 2048, 1, 0), allocation(2, 0, 2048, 1, 0), allocation(2, 64, 0, 0, -1)),
        schemaVersion=1,
    )
    first, second = recording.timelines
    of_all = {
        "queue waiting": ([3000], [2.0], ""),
        "queue running": ([3000], [1.0], ""),
        f"host {MEMORY_ALLOCATED}": ([2000], [64.0], "B"),
    }
    assert series(first) == {
        "GPU Utilization": ([1000, 2000], [35.5, 40.0], "%"),
        MEMORY_ALLOCATED: ([1000, 2000], [512.0, 0.0], "B"),
        MEMORY_RESERVED: ([1000, 2000], [2048.0, 2048.0], "B"),
        **of_all,
    }
    assert series(second) == {"Power": ([3000], [300.0], "W"), **of_all}
    assert recording.notes == ()


@pytest.mark.parametrize("arguments", [{"value": "fast"}, {"value": 1e300}, {"value": True}, {"value": [1]}, {}])
def test_kineto__counter_without_a_number__counted(tmp_path: Path, arguments: dict[str, Any]) -> None:
    recording = read(tmp_path, kernel(0, 1), counter("c", 1, **arguments), counter("d", 1, value=1), schemaVersion=1)
    assert set(recording.timelines[0].readings) == {"d"}
    assert ["1 counters (C)" in text_of(note) for note in recording.notes] == [True]


def test_chrome__counters__named_processes_are_devices(tmp_path: Path) -> None:
    recording = read(
        tmp_path,
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "NPU 0"}},
        {"ph": "X", "name": "MatMul", "pid": 3, "tid": 1, "ts": 1, "dur": 2},
        *(counter("read_ost", 1, 3, value=7 + number, acc_id=number) for number in (0, 1)),
        counter("LLC 0/Hit Rate", 1, 3, **{"Hit Rate(%)": 97.5}),
        counter("QoS", 1, 9, **{"OTHERS(MB/s)": 4, "DVPP(MB/s)": 5}),
    )
    assert series(recording.timelines[0]) == {
        "read_ost 0": ([1000], [7.0], ""),
        "read_ost 1": ([1000], [8.0], ""),
        "LLC 0/Hit Rate": ([1000], [97.5], "%"),
        "QoS OTHERS": ([1000], [4.0], "MB/s"),
        "QoS DVPP": ([1000], [5.0], "MB/s"),
    }


@pytest.mark.recordings
def test_recorded_alexnet__counters_of_all_tables__in_their_units() -> None:
    folder = recorded("msinsight-910B-alexnet-2501/text/level1")
    readings = trace.read(folder / "rank0_ascend_pt").timelines[0].readings
    units = {name: own.unit for name, own in readings.items()}
    hits = readings["LLC 0 Read/Hit Rate"]
    assert (hits.unit, round(float(hits.value.max()), 1)) == ("%", 92.7)
    assert {"core clock": "Hz", "memory read": "B/s", MEMORY_ALLOCATED: "B"}.items() <= units.items()


@pytest.mark.recordings
def test_recorded_alexnet__counters_of_the_database__named_as_in_a_timeline(tmp_path: Path) -> None:
    folder = unpacked(tmp_path / "db", "msinsight-910B-alexnet-2501/db/level1/rank0_ascend_pt")
    readings = trace.read(folder).timelines[0].readings
    highest = {name: (float(own.value.max()), own.unit) for name, own in readings.items()}
    assert highest["LLC 0 read/Hit Rate"] == (88.5, "%")
    assert highest["LLC 0 read/Throughput"] == (18858773577, "B/s")
    assert highest["app/HBM"] == (2216402944, "B")
    assert highest[MEMORY_ALLOCATED] == (1245688832, "B")

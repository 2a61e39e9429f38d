"""Folders to which msprof exported more than once, or with a timeline in slices.

Names as msprof makes them (analysis/common_func/file_slice_helper.py); events and tables as in msprof-910B-20cores-2608.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.trace.model.recording import Timeline
from perfgate.trace.readers.contradictions import contradictions

_HEAD = "Device_id,Stream ID,Task ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us)"
_TRACKS = [
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "CANN"}},
    {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "Ascend Hardware"}},
    {"ph": "M", "name": "process_labels", "pid": 9, "tid": 0, "args": {"labels": "NPU 0"}},
    {"ph": "M", "name": "thread_name", "pid": 9, "tid": 2, "args": {"name": "Stream 2"}},
]


def output(folder: Path) -> Path:
    path = folder / "PROF_1" / "mindstudio_profiler_output"
    path.mkdir(parents=True)
    return path


def table(path: Path, kernels: int) -> None:
    rows = [f"0,2,{place},mm{place},MatMul,AI_CORE,{1000 + 100 * place}\t,50,0" for place in range(kernels)]
    path.write_text("\n".join([_HEAD, *rows, ""]))


def launched(place: int) -> list[dict[str, Any]]:
    """A launch, its arrow and its kernel."""
    begin = 1000 + 100 * place
    arrow = {"cat": "HostToDevice", "name": f"HostToDevice{place}", "id": place}
    kernel = {"Task Type": "AI_CORE", "Stream Id": 2, "Task Id": place}
    return [
        {"ph": "X", "name": "Node@launch", "pid": 7, "tid": 7, "ts": f"{begin - 30}.000", "dur": 5, "args": {}},
        {"ph": "s", **arrow, "pid": 7, "tid": 7, "ts": f"{begin - 30}.000"},
        {"ph": "f", "bp": "e", **arrow, "pid": 9, "tid": 2, "ts": f"{begin}.000"},
        {"ph": "X", "name": f"mm{place}", "pid": 9, "tid": 2, "ts": f"{begin}.000", "dur": 50, "args": kernel},
    ]


def work(timeline: Timeline) -> dict[str, int]:
    rows = trace.top(timeline, by="name", host=False).rows
    return {row.name: row.count for row in rows}


def test_read__exported_twice__the_newest_tables_alone(tmp_path: Path) -> None:
    folder = output(tmp_path)
    table(folder / "op_summary_20260823165254.csv", 2)
    table(folder / "op_summary_20260823170101.csv", 3)
    table(folder / "op_summary_slice_1_20260823170102.csv", 0)

    (timeline,) = trace.read(tmp_path / "PROF_1").timelines

    assert timeline.kernels is not None
    assert [kernel.name for kernel in timeline.kernels] == ["mm0", "mm1", "mm2"]
    assert contradictions(timeline) == []
    run = run_from_profile(tmp_path, tmp_path / "PROF_1", tmp_path / "run", lambda text: None, keep_files=False)
    assert run.checklist.counters[0].values["counters.kernels"] == 3


def test_read__timeline_in_slices__all_of_them_with_arrows_from_one_to_another(tmp_path: Path) -> None:
    folder = output(tmp_path)
    events = [event for place in range(4) for event in launched(place)]
    for number in range(2):
        # The first slice ends with a launch, whose kernel is in the second.
        part = events[:13] if number == 0 else events[13:]
        path = folder / f"msprof_slice_{number}_2026082316525{number}.json"
        path.write_text(json.dumps([*_TRACKS, *part]))
    table(folder / "op_summary_20260823165254.csv", 4)

    (timeline,) = trace.read(tmp_path / "PROF_1").timelines

    assert work(timeline) == {"mm0": 1, "mm1": 1, "mm2": 1, "mm3": 1}
    of_device = timeline.events.of_kind("compute")
    assert (of_device.start - timeline.events.of_kind("runtime").start).tolist() == [30_000] * 4
    assert contradictions(timeline) == []


@pytest.mark.parametrize("text", ["", "[", '[{"ph": "M"', '{"status": 1}'])
def test_read__slice_that_is_no_whole_list__refused_by_its_name(tmp_path: Path, text: str) -> None:
    folder = output(tmp_path)
    (folder / "msprof_slice_0_20260823165254.json").write_text(json.dumps([*_TRACKS, *launched(0)]))
    (folder / "msprof_slice_1_20260823165254.json").write_text(text)
    table(folder / "op_summary_20260823165254.csv", 1)

    with pytest.raises(DocumentError, match=r"mindstudio_profiler_output/msprof_slice_1_20260823165254\.json"):
        trace.read(tmp_path / "PROF_1")


def test_read__export_of_an_older_msprof__its_whole_timeline_is_named(tmp_path: Path) -> None:
    """Modelled on MindInsight's PROF_000001_20230818142704322_COJGGGCANRMICFBC of CANN 6."""
    timelines = tmp_path / "PROF_1" / "device_0" / "timeline"
    timelines.mkdir(parents=True)
    for name in ("hccl_0_2_1.json", "msprof_0_2_1.json", "task_time_0_2_1.json"):
        (timelines / name).write_text("[]")

    with pytest.raises(DocumentError, match=r"name one of them, such as \S+/msprof_0_2_1\.json, or export it again"):
        trace.read(tmp_path / "PROF_1")

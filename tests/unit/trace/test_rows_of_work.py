"""Which rows of a device are work: of XLA, MTIA, and of task types that nobody knows."""

from __future__ import annotations

import gzip
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from perfgate import trace
from perfgate.flows.trace.trace import Choice, trace_top
from perfgate.trace.model.communication import kernel_kind
from perfgate.trace.readers.ascend.kinds import is_unknown_task, task_kind
from tests.each import each

from .job import kernel, recorded, step_mark

_ROWS = ("Steps", "XLA Modules", "XLA Ops", "Framework Name Scope", "Framework Ops", "Source code")


def xla(rows: tuple[str, ...]) -> list[dict[str, Any]]:
    """Three steps of one millisecond: a product of 300 us and an all-reduce of 200 us, on every row."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 3, "args": {"name": "/device:GPU:0"}},
        *(
            {"ph": "M", "name": "thread_name", "pid": 3, "tid": tid, "args": {"name": row}}
            for tid, row in enumerate(rows)
        ),
    ]
    for step in range(3):
        for tid, row in enumerate(rows):
            begin = {"ph": "X", "pid": 3, "tid": tid, "ts": 1000 * step}
            if row in ("Steps", "XLA Modules", "Source code", "Framework Name Scope"):
                events.append({**begin, "dur": 900, "name": str(step)})
            else:
                events.append({**begin, "dur": 300, "name": "fusion.1"})
                events.append({**begin, "ts": 1000 * step + 400, "dur": 200, "name": "all-reduce.2"})
    return events


@each("rows", [(*_ROWS, "Stream #13(Compute)"), _ROWS])
def test_top__rows_of_xla__the_work_counts_once(tmp_path: Path, rows: tuple[str, ...]) -> None:
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"traceEvents": xla(rows)}))
    (timeline,) = trace_top(path, Choice(), by="type", host=False, longer=None).timelines
    assert [(row.name, row.kind, row.count) for row in timeline.rows] == [
        ("fusion.1", "compute", 3),
        ("all-reduce.2", "comm", 3),
    ]
    assert timeline.base == 1.5e-3


@each(
    "name",
    ["all-reduce.2", "all-gather-start", "all-reduce_2.kd", "reduce-scatter", "collective-permute-done.7", "send.1"],
)
def test_kernel_kind__collectives_of_xla__communicate(name: str) -> None:
    assert kernel_kind(name) == "comm"


@each("name", ["send_to_cpu", "sender", "fusion.3", "all-reduced"])
def test_kernel_kind__names_like_them__compute(name: str) -> None:
    assert kernel_kind(name) == "compute"


def test_read__waits_of_mtia__no_work(tmp_path: Path) -> None:
    events = [step_mark(0, 0), kernel(10, 5, 1, name="fc"), kernel(20, 500, 2, name="event_wait")]
    for event in events[1:]:
        event["cat"] = "mtia_ccp_events"
    (timeline,) = trace_top(
        recorded(tmp_path / "trace.json", events), Choice(), by="type", host=False, longer=None
    ).timelines
    assert [row.name for row in timeline.rows] == ["fc"]


@each(
    "task_type, kind, unknown",
    [
        ("AI_CORE", "compute", False),
        ("KERNEL_AIVEC", "compute", False),
        ("CCU_LAUNCH", "comm", False),
        ("DAVID_EVENT_WAIT", "other", False),
        ("EVENT_RECORD_SQE", "other", False),
        ("Write Value", "other", False),
        ("Notify Wait", "other", False),
        ("SDMA", "other", False),
        ("SDMA_SQE", "copy", False),
        ("TASK_TIMEOUT_SET", "other", False),
        ("QUANTUM_UNIT", "compute", True),
        ("", "compute", False),
    ],
)
def test_task_kind__types_of_all_chips(task_type: str, kind: str, unknown: bool) -> None:
    assert (task_kind(task_type, "a_kernel"), is_unknown_task(task_type)) == (kind, unknown)


def test_top__task_of_unknown_type__counted_and_named_with_its_share(tmp_path: Path) -> None:
    task = {"ph": "X", "pid": 9, "tid": 2}
    events = [
        {"ph": "M", "name": "process_name", "pid": 9, "args": {"name": "Ascend Hardware"}},
        {"ph": "M", "name": "process_labels", "pid": 9, "args": {"labels": "NPU 0"}},
        {**task, "name": "MatMul_a", "ts": "1000.0", "dur": 30, "args": {"Task Type": "AI_CORE"}},
        {**task, "name": "thing", "ts": "2000.0", "dur": 10, "args": {"Task Type": "QUANTUM_UNIT"}},
    ]
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    document = trace_top(path, Choice(), by="type", host=False, longer=None)
    assert [(row.name, row.kind) for row in document.timelines[0].rows] == [
        ("MatMul_a", "compute"),
        ("task of unknown type QUANTUM_UNIT", "compute"),
    ]
    (note,) = document.notes
    assert (note.code, note.values["count"], note.values["share"]) == ("notes.unknown-tasks", 1, 0.25)
    assert trace.read(path).timelines[0].device == 0


def test_top__task_of_unknown_type_in_a_database__named_beside_the_table_of_kernels(tmp_path: Path) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE STRING_IDS (id INTEGER, value TEXT)")
        names = enumerate(("MatMul_a", "MatMul", "AI_CORE", "QUANTUM_UNIT", "NOTIFY_WAIT"))
        database.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", names)
        database.execute("CREATE TABLE TASK (startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId)")
        tasks = [(1000, 31000, 0, 1, 1, 2, 2), (50000, 60000, 0, 2, 2, 3, 2), (70000, 80000, 0, 3, 3, 4, 2)]
        database.executemany("INSERT INTO TASK VALUES (?, ?, ?, ?, ?, ?, ?)", tasks)
        database.execute("CREATE TABLE COMPUTE_TASK_INFO (name, globalTaskId, opType, taskType)")
        database.execute("INSERT INTO COMPUTE_TASK_INFO VALUES (0, 1, 1, 2)")
        database.commit()

    document = trace_top(path, Choice(), by="type", host=False, longer=None)

    assert [(row.name, row.total) for row in document.timelines[0].rows] == [
        ("MatMul", 3e-5),
        ("task of unknown type QUANTUM_UNIT", 1e-5),
    ]
    assert [(note.code, note.values["count"], note.values["share"]) for note in document.notes] == [
        ("notes.unknown-tasks", 1, 0.25)
    ]


def test_read__folder_of_jax__its_traces(tmp_path: Path) -> None:
    folder = tmp_path / "plugins" / "profile" / "2026_11_29"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(b"\x0a\x04")
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(json.dumps({"traceEvents": xla(_ROWS)}).encode()))
    recording = trace.read(folder)
    assert (recording.format, [timeline.device for timeline in recording.timelines]) == ("chrome", [0])

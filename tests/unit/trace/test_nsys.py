"""The SQLite export of Nsight Systems."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.flows.trace.trace import Choice, trace_gaps, trace_steps, trace_top
from perfgate.trace.readers.contradictions import contradictions

_TABLES = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, contextId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, bytes INTEGER, copyKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT);
INSERT INTO StringIds VALUES (1, 'void gemm<float>(int)'), (2, 'gemm'), (3, 'cudaLaunchKernel_v7000'),
  (4, 'ncclDevKernel_AllReduce'), (5, 'aten::mm, seq = 7');
INSERT INTO TARGET_INFO_GPU VALUES (0, 'Accelerator');
"""


def exported(path: Path, *, processes: int = 1) -> Path:
    """Three steps, each with a product, a collective and a copy; every process counts correlations from 1."""
    connection = sqlite3.connect(path)
    connection.executescript(_TABLES)
    for process in range(1, processes + 1):
        owner = process << 24
        for step in range(3):
            at, first = 1_000_000 * step, 10 * step + 1
            connection.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, ?, NULL, ?)",
                (at, at + 990_000, f"ProfilerStep#{step}", owner + 7),
            )
            connection.execute(
                "INSERT INTO NVTX_EVENTS VALUES (?, ?, 59, NULL, 5, ?)", (at + 1000, at + 90_000, owner + 7)
            )
            for place in range(3):
                begin = at + 10_000 + 1000 * place
                connection.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (?, ?, ?, ?, 3)",
                    (begin, begin + 500, owner + 7, first + place),
                )
            for place, name in enumerate((1, 4)):
                begin = at + 100_000 + 200_000 * place
                connection.execute(
                    "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, ?, 1, 7, ?, ?, ?, ?)",
                    (begin, begin + 150_000, process - 1, first + place, owner, name, 2 if name == 1 else 4),
                )
            connection.execute(
                "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (?, ?, ?, 7, ?, ?, 64, 1)",
                (at + 600_000, at + 610_000, process - 1, first + 2, owner),
            )
    connection.commit()
    connection.close()
    return path


def test_read__export__work_launches_and_steps(tmp_path: Path) -> None:
    path = exported(tmp_path / "report.sqlite")
    document = trace_top(path, Choice(), by="type", host=False, longer=None)
    assert document.format == "nsys"
    assert [(row.name, row.kind, row.count, row.total) for row in document.timelines[0].rows] == [
        ("ncclDevKernel_AllReduce", "comm", 3, 4.5e-4),
        ("void gemm<float>(int)", "compute", 3, 4.5e-4),
        ("Memcpy HtoD", "copy", 3, 3e-5),
    ]
    assert document.notes == []
    steps = trace_steps(path, Choice(), step_by=None).timelines[0].steps
    assert [(step.number, step.computing) for step in steps] == [(0, 1.5e-4), (1, 1.5e-4), (2, 1.5e-4)]
    gaps = trace_gaps(path, Choice(), exposed=False, shortest=0.0).timelines[0]
    assert {cause.cause for cause in gaps.causes} == {"host", "queue"}
    assert trace.read(path).settings == {"device.0": "Accelerator"}


def test_read__two_processes__a_device_each_and_its_own_launches(tmp_path: Path) -> None:
    recording = trace.read(exported(tmp_path / "report.sqlite", processes=2))
    assert [timeline.device for timeline in recording.timelines] == [0, 1]
    for process, timeline in enumerate(recording.timelines, start=1):
        events = timeline.events
        launches = {events.tracks[events.track[row]][0] for row in events.launch.tolist() if row >= 0}
        assert launches == {str(process)}
        # Launches of the other device have their kernels there.
        assert contradictions(timeline) == []


def test_read__folder_with_reports_and_their_exports__the_exports_by_rank(tmp_path: Path) -> None:
    for rank in (1, 0):
        exported(tmp_path / f"report_rank{rank}.sqlite")
        (tmp_path / f"report_rank{rank}.nsys-rep").write_bytes(b"\x00\x01")

    recording = trace.read(tmp_path)

    assert [(timeline.rank, timeline.device) for timeline in recording.timelines] == [(0, 0), (1, 0)]


@pytest.mark.parametrize("end", ["NULL", "-5", "'soon'"])
def test_read__row_without_a_time__refused(tmp_path: Path, end: str) -> None:
    path = exported(tmp_path / "report.sqlite")
    connection = sqlite3.connect(path)
    connection.execute(f"UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET end = {end} WHERE rowid = 2")
    connection.commit()
    connection.close()
    with pytest.raises(DocumentError, match=r"report\.sqlite"):
        trace.read(path)


def test_read__cut_off__refused(tmp_path: Path) -> None:
    path = exported(tmp_path / "report.sqlite")
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(DocumentError):
        trace.read(path)


def with_graphs(path: Path) -> Path:
    """The export of the same program with its kernels in a CUDA graph, as nsys records it unless told otherwise."""
    connection = sqlite3.connect(exported(path))
    connection.executescript(
        """
        CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, end INTEGER, deviceId INTEGER, graphId INTEGER,
          graphExecId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER);
        INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE SELECT start, start + 350000, deviceId, 1, 2, 1, streamId,
          correlationId, globalPid FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName = 1;
        DELETE FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId IN
          (SELECT correlationId FROM CUPTI_ACTIVITY_KIND_KERNEL WHERE demangledName = 4);
        DELETE FROM CUPTI_ACTIVITY_KIND_KERNEL;
        """
    )
    connection.commit()
    connection.close()
    return path


def test_top__kernels_within_graphs__the_graphs_count_and_the_remedy_is_said(tmp_path: Path) -> None:
    document = trace_top(with_graphs(tmp_path / "report.sqlite"), Choice(), by="type", host=False, longer=None)
    (timeline,) = document.timelines
    assert [(row.name, row.kind, row.count, row.total) for row in timeline.rows] == [
        ("CUDA graph", "compute", 3, 1.05e-3),
        ("Memcpy HtoD", "copy", 3, 3e-5),
    ]
    (note,) = document.notes
    assert (note.code, note.values) == ("notes.graphs-whole", {"count": 3})


def test_gate__kernels_of_one_side_within_graphs__no_count_is_better(tmp_path: Path) -> None:
    runs = []
    for side, path in (("base", exported(tmp_path / "a.sqlite")), ("head", with_graphs(tmp_path / "b.sqlite"))):
        runs.append(run_from_profile(tmp_path, path, tmp_path / side, lambda text: None, keep_files=False))
    base, head = runs
    assert base.checklist.counters[0].values["counters.kernels"] == 1
    assert head.checklist.counters == []


def changed(path: Path, script: str) -> Path:
    connection = sqlite3.connect(path)
    connection.executescript(script)
    connection.commit()
    connection.close()
    return path


# As nsys 2025.3 writes it: the GPU of each process and number.
_GPUS = """
CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER);
DELETE FROM TARGET_INFO_GPU;
INSERT INTO TARGET_INFO_GPU VALUES (0, 'Display'), (2, 'Accelerator'), (5, 'Accelerator');
"""


def test_read__processes_that_see_one_gpu_each__a_device_each(tmp_path: Path) -> None:
    """Each has its own CUDA_VISIBLE_DEVICES, and counts its only GPU as 0."""
    path = changed(exported(tmp_path / "report.sqlite", processes=2), _GPUS)
    changed(
        path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0; UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET deviceId = 0"
    )
    changed(path, "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 1), (5, 0, 2)")

    recording = trace.read(path)

    assert [timeline.device for timeline in recording.timelines] == [2, 5]
    assert recording.settings == {"device.2": "Accelerator", "device.5": "Accelerator"}
    for timeline in recording.timelines:
        assert int(timeline.events.is_work.sum()) == 9


def test_steps__ranks_of_one_report__each_by_its_own_marks(tmp_path: Path) -> None:
    path = exported(tmp_path / "report.sqlite", processes=2)
    for table, owner in (("KERNEL", "globalPid"), ("MEMCPY", "globalPid"), ("RUNTIME", "globalTid")):
        moved = f"UPDATE CUPTI_ACTIVITY_KIND_{table} SET start = start + 400000, end = end + 400000"
        changed(path, f"{moved} WHERE {owner} >> 24 = 2")
    changed(path, "UPDATE NVTX_EVENTS SET start = start + 400000, end = end + 400000 WHERE globalTid >> 24 = 2")

    first, second = trace.read(path).timelines

    assert [(step.start_ns, step.computing_ns) for step in first.steps or ()][:1] == [(0, 150_000)]
    assert [(step.start_ns, step.computing_ns) for step in second.steps or ()][:1] == [(400_000, 150_000)]
    assert contradictions(first) == contradictions(second) == []


def test_read__processes_that_share_a_gpu__streams_of_each(tmp_path: Path) -> None:
    path = changed(exported(tmp_path / "report.sqlite", processes=2), _GPUS)
    changed(
        path, "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = 0; UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET deviceId = 0"
    )
    changed(path, "INSERT INTO TARGET_INFO_CUDA_DEVICE VALUES (2, 0, 1), (2, 0, 2)")

    recording = trace.read(path)

    (timeline,) = recording.timelines
    assert (timeline.device, recording.settings) == (0, {"device.0": "Accelerator"})
    tracks = {timeline.events.tracks[track] for track in timeline.events.track[timeline.events.is_work].tolist()}
    assert tracks == {("device 0", "process 1, stream 7"), ("device 0", "process 2, stream 7")}
    assert contradictions(timeline) == []


def test_from_profile__report_of_nsys__is_of_a_gpu(tmp_path: Path) -> None:
    run = run_from_profile(
        tmp_path, exported(tmp_path / "report.sqlite"), tmp_path / "out", lambda text: None, keep_files=False
    )
    assert (run.testbed.device_kind, run.testbed.comparable["device.name"]) == ("cuda", "Accelerator")


# As nsys 2025.3 wrote it of a program that outlived its recording; the columns of its exports since 2020.
_DIAGNOSTICS = """
CREATE TABLE DIAGNOSTIC_EVENT (timestamp INTEGER NOT NULL, timestampType INTEGER NOT NULL, source INTEGER NOT NULL,
  severity INTEGER NOT NULL, text TEXT NOT NULL, globalPid INTEGER);
INSERT INTO DIAGNOSTIC_EVENT VALUES (0, 1, 3, 1, 'Profiling has started.', -144115188075855872),
  (1, 2, 3, 2, 'Not all NVTX events might have been collected.', 16777216),
  (2, 2, 3, 2, 'No CUDA events collected. Does the process use CUDA?', 50331648);
"""


def test_read__events_missing_by_nsys_itself__said_of_the_devices_of_that_process_and_nothing_counted(
    tmp_path: Path,
) -> None:
    path = changed(exported(tmp_path / "report.sqlite", processes=2), _DIAGNOSTICS)
    assert [timeline.losses for timeline in trace.read(path).timelines] == [(), ()]
    changed(
        path,
        "INSERT INTO DIAGNOSTIC_EVENT VALUES (3, 2, 3, 2, 'Not all CUDA events might have been collected.', 33554432)",
    )
    first, second = trace.read(path).timelines
    assert first.losses == ()
    assert [loss.code for loss in second.losses] == ["notes.nsys-incomplete"]
    assert (
        run_from_profile(tmp_path, path, tmp_path / "out", lambda text: None, keep_files=False).checklist.counters == []
    )


def test_top__pages_of_unified_memory__by_their_way(tmp_path: Path) -> None:
    path = exported(tmp_path / "report.sqlite")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 11 WHERE rowid = 1")
    changed(path, "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 12 WHERE rowid = 2")
    rows = trace_top(path, Choice(), by="name", host=False, longer=None).timelines[0].rows
    copies = [(row.name, row.count) for row in rows if row.kind == "copy"]
    assert sorted(copies) == [("Memcpy HtoD", 1), ("Memcpy Unified DtoH", 1), ("Memcpy Unified HtoD", 1)]


@pytest.mark.parametrize(
    ("recorded", "name", "kind"),
    [
        ("aten::mm, seq = 3, op_id = 12, sizes = [[4, 8], [8, 16]]", "aten::mm", "host_op"),
        ("forward, op_id = 12", "forward", "annotation"),
        ("batch 4, tokens 128", "batch 4, tokens 128", "annotation"),
    ],
)
def test_read__range_of_nvtx__without_what_torch_adds_to_its_name(
    tmp_path: Path, recorded: str, name: str, kind: str
) -> None:
    path = exported(tmp_path / "report.sqlite")
    changed(path, f"UPDATE StringIds SET value = '{recorded}' WHERE id = 5")
    events = trace.read(path).timelines[0].events
    assert len(events.of_kind(kind).named(name)) == 3

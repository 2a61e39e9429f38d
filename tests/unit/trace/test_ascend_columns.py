"""Tables besides those of kernels: the compiled scanner and the csv module tell the same, and what both say is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.model.events import EventTable
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.model.recording import AllocationTotal, Kernel, Launch, NamedTotal
from perfgate.trace.readers.ascend import columns, tables
from perfgate.trace.readers.ascend.kernels import with_cache_rates
from perfgate.trace.scanner import library

from .ascend import sample

needs_library = pytest.mark.skipif(library.load() is None, reason="the scanner is not built (python hatch_build.py)")
OUTPUT = "host_1_20250109150000123_ascend_pt/ASCEND_PROFILER_OUTPUT"
MSPROF = "PROF_1/mindstudio_profiler_output"
_name = st.sampled_from(["aten::add", "aten::mm", ' "x" ', "", "N/A", "a;b"])
_time = st.sampled_from(["0", "1.5", "-0.25", "12\t", "N/A", "1736408883704801.250\t", "1.7E+15", "x"])
_size = st.sampled_from(["512", "-512", "0.5", "N/A", "", "1e3", "x"])
_owner = st.sampled_from(["NPU:0", "NPU:3", "CPU", "N/A", ""])
_whole = st.sampled_from(["0", "1", "77", "N/A", "1.0", "1.5"])
_stack = st.sampled_from(["N/A", '"a.py(1): f;\nb.py(2): <built-in ""g"">"', '"one"', '"torn'])
# The columns of each table, and what its cells may be.
TABLES: dict[str, tuple[Callable[[Path], Any], dict[str, st.SearchStrategy[str]]]] = {
    "operator_details.csv": (
        tables.read_operators,
        {
            "Name": _name,
            "Call Stack": _stack,
            **dict.fromkeys(
                (
                    "Host Self Duration(us)",
                    "Host Total Duration(us)",
                    "Device Self Duration(us)",
                    "Device Total Duration(us)",
                ),
                _time,
            ),
        },
    ),
    "operator_memory.csv": (
        tables.read_allocations,
        {
            "Name": _name,
            "Size(KB)": _size,
            "Allocation Time(us)": _time,
            "Release Time(us)": _time,
            "Device Type": _owner,
        },
    ),
    "memory_record.csv": (
        tables.read_peaks,
        {
            "Component": st.sampled_from(["PTA", "APP", "N/A"]),
            "Timestamp(us)": _time,
            "Total Allocated(MB)": _size,
            "Total Reserved(MB)": _size,
            "Device Type": _owner,
        },
    ),
    "data_preprocess.csv": (
        tables.read_cpu_nodes,
        {"Device_id": _whole, "Node": _name, "Total_time(us)": _time, "Compute_time(us)": _time},
    ),
    "task_time.csv": (
        tables.read_tasks,
        {
            "Device_id": _whole,
            "kernel_name": _name,
            "kernel_type": st.sampled_from(["AI_CORE", "EVENT_RECORD", "N/A"]),
            "stream_id": _whole,
            "task_id": _whole,
            "task_time(us)": _time,
            "task_start(us)": _time,
        },
    ),
}
ALEXNET = "msinsight-910B-alexnet-2501/text/level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT"
SAMPLES = [
    f"{ALEXNET}/operator_details.csv.gz",
    f"{ALEXNET}/operator_memory.csv",
    f"{ALEXNET}/memory_record.csv",
    "msprof-910B-20cores-2608/PROF_Memory/mindstudio_profiler_output/task_time.csv",
]


def told(name: str, path: Path) -> object:
    """All that a reader says of a table; of one that is damaged the error."""
    try:
        found = TABLES[name][0](path)
        rows = list(found.items() if isinstance(found, dict) else found)
    except DocumentError as error:
        return str(error)
    return [(device, described(row) if isinstance(row, EventTable) else row) for device, row in rows]


def described(events: EventTable) -> object:
    fields = (getattr(events, name).tolist() for name in ("start", "duration", "kind", "group", "track"))
    return list(zip(*fields)), events.names, events.tracks


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all examples of a test: a folder for each takes longer than to read it."""
    return tmp_path_factory.mktemp("examples")


def written(folder: Path, name: str, rows: list[tuple[str, ...]]) -> Path:
    path = folder / name
    lines = [",".join(TABLES[name][1]), *map(",".join, rows)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def both_ways(name: str, path: Path) -> tuple[object, object]:
    scanned = told(name, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "scan_columns", lambda *_: None)
        return scanned, told(name, path)


@needs_library
@pytest.mark.parametrize("name", TABLES)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_readers__any_rows__the_same_with_and_without_the_library(name: str, folder: Path, data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.tuples(*TABLES[name][1].values()), max_size=5))
    scanned, read = both_ways(name, written(folder, name, rows))

    assert scanned == read


@pytest.mark.recordings
@needs_library
@pytest.mark.parametrize("recording", SAMPLES)
def test_readers__recorded_table__scanned_and_the_same_without_the_library(recording: str, tmp_path: Path) -> None:
    path = sample(recording, tmp_path)
    assert columns.scan_columns(path, {}) is not None
    scanned, read = both_ways(path.name, path)

    assert isinstance(scanned, list)
    assert scanned
    assert scanned == read


def test_operators__calls_with_stacks__added_up_by_name(tmp_path: Path) -> None:
    rows = [
        ("aten::mm", '"a.py(1): f;\nb.py(2): g"', "1.5", "2", "3", "4"),
        ("aten::add", "N/A", "0.25", "N/A", "0", "1"),
        ("aten::mm", "N/A", "-0.5", "1", "0", "0"),
    ]
    path = written(tmp_path, "operator_details.csv", rows)

    assert list(tables.read_operators(path)) == [
        (None, NamedTotal("aten::mm", 2, 1000)),
        (None, NamedTotal("aten::add", 1, 250)),
    ]


def test_allocations__two_devices_and_a_release__each_with_its_own_peak(tmp_path: Path) -> None:
    rows = [
        ("aten::mm", "4", "10", "20", "NPU:0"),
        ("aten::mm", "2", "", "N/A", "NPU:0"),
        ("aten::mm", "-4", "20", "N/A", "NPU:0"),
        ("aten::add", "1", "30", "40", "NPU:0"),
        ("aten::add", "8", "30", "N/A", "NPU:3"),
    ]
    path = written(tmp_path, "operator_memory.csv", rows)

    assert list(tables.read_allocations(path)) == [
        (0, AllocationTotal("aten::mm", 2, 6144.0, 4096.0, 6144.0)),
        (0, AllocationTotal("aten::add", 1, 1024.0, 1024.0, 0.0)),
        (3, AllocationTotal("aten::add", 1, 8192.0, 8192.0, 8192.0)),
    ]


def test_cache_rates__task_number_that_came_again__belongs_to_nobody(tmp_path: Path) -> None:
    path = tmp_path / "l2_cache.csv"
    path.write_text(
        "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n"
        "0,2,7,0.5,0.25,Add1\n0,2,8,0.75,N/A,Add2\n0,2,9,0.1,0.1,Add3\n0,2,9,0.2,0.2,Add3\n"
    )
    kernels = KernelTable.of(
        [
            Kernel(
                f"Add{number}", "Add", None, number, 1, launch=Launch(stream=2, task=6 + number), counters={"x": 1.0}
            )
            for number in (1, 2, 3)
        ]
    )

    assert [dict(kernel.counters) for kernel in with_cache_rates(kernels, [path])] == [
        {"x": 1.0, "l2_hit_rate": 0.5, "l2_victim_rate": 0.25},
        {"x": 1.0, "l2_hit_rate": 0.75},
        {"x": 1.0},
    ]
    # Rates in the table of another stream are of other kernels.
    others = KernelTable.of([Kernel("Add1", "Add", None, 1, 1, launch=Launch(stream=3, task=7))])
    assert dict(with_cache_rates(others, [path])[0].counters) == {}


def test_op_summary__written_in_parts__one_table_with_the_counters_of_all(tmp_path: Path) -> None:
    output = tmp_path / MSPROF
    output.mkdir(parents=True)
    head = "Device_id,Stream ID,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us)"
    (output / "op_summary_20250109150000.csv").write_text(f"{head},aic_mac_ratio\n0,2,mm1,MatMul,AI_CORE,10\t,1,0.5\n")
    (output / "op_summary_slice_1_20250109150000.csv").write_text(
        f"{head},aiv_vec_ratio\n0,2,add1,Add,AI_VECTOR_CORE,20\t,2,0.25\n"
    )
    (timeline,) = trace.read(tmp_path / "PROF_1").timelines
    assert timeline.kernels is not None

    assert sorted((kernel.name, kernel.start_ns, dict(kernel.counters)) for kernel in timeline.kernels) == [
        ("add1", 20_000, {"aiv_vec_ratio": 0.25}),
        ("mm1", 10_000, {"aic_mac_ratio": 0.5}),
    ]


def test_columns_of__more_rows_than_a_table_may_have__refused_both_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "MAX_ROWS", 3)
    path = tmp_path / "task_time.csv"
    path.write_text("stream_id\n" + "1\n" * 4)

    with pytest.raises(DocumentError, match="more than 3 rows"):
        columns.columns_of(path, {"stream_id": "whole"})
    path.write_text("stream_id\n" + "1\n" * 3)
    assert np.array_equal(columns.columns_of(path, {"stream_id": "whole"}).wholes("stream_id"), [1, 1, 1])

"""Whatever stands in a file, a reader returns a recording or raises DocumentError, soon and in bounded memory."""

import contextlib
import ctypes
import re
import sqlite3
import time
import tracemalloc
import zipfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfgate import trace
from perfgate.errors import DocumentError

from .test_ascend_view import arrow, hardware, process, span

# A busy machine draws slowly; what a reader takes is checked by the CPU's time.
CHECKED = settings(
    max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
KERNELS = (
    b"Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
    b"Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,aic_mac_ratio\n"
    b'50,0,4294967295,11052,2,trans_TransData_1,TransData,AI_VECTOR_CORE,1736408883704801.156\t,6.54,104.202,8,NO,"""64,3"""'
    b",FLOAT,NCHW,0.5\n50,0,4294967295,N/A,N/A,hcom_allReduce__1_0_1,hcom_allReduce_,HCCL,1736408883704901.1\t,6,1,0,N/A\n"
)
COLLECTIVES = (
    b'{"step50": {"p2p": {}, "collective": {"hcom_allReduce__586_0_1@17": {"Communication Time Info": {"Start Timestamp(us)": '
    b'1736408883732241.5, "Elapse Time(ms)": 79.1}, "Communication Bandwidth Info": {"HCCS": {"Transit Size(MB)": 28.6, '
    b'"Transit Time(ms)": 1.8, "Bandwidth(GB/s)": 15.7}}}}}}'
)
TABLES = {
    "kernel_details.csv": KERNELS,
    "communication.json": COLLECTIVES,
    "communication_matrix.json": b'{"step1": {"p2p": {"a@1": {"0-1": {"Transport Type": "HCCS", "Transit Size(MB)": 1}}}}}',
    "profiler_info_0.json": b'{"config": {"common_config": {"record_shapes": true}}, "rank_id": "0"}',
    "profiler_metadata.json": b'{"ENV_VARIABLES": {"A": "1"}, "distributed_args": {"world_size": 4}}',
    "step_trace_time.csv": b"Device_id,Step,Computing,Communication,Free\n0,50,8873.756000000001,1.5,2\n",
    "op_statistic.csv": b"Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Ratio(%)\n0,A,B,1,2,3,5\n",
    "operator_details.csv": b'Name,Input Shapes,Call Stack,Host Self Duration(us)\naten::add,"1;\n2","a;\nb",5.5\n',
    "api_statistic.csv": b"Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us)\nhost,acl,x,1,1,1,1,1\n",
    "memory_record.csv": b"Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Device Type\nPTA,1.6E+15,1,2,NPU:0\n",
    "operator_memory.csv": b"Name,Size(KB),Allocation Time(us),Device Type\naten::empty,0.5,1\t,NPU:0\n",
    "l2_cache.csv": b"Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n2,11052,N/A,0.2,trans_TransData_1\n",
    "task_time.csv": b"kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us)\nN/A,EVENT,1,1,1,1\t\n",
    "data_preprocess.csv": b"Device_id,Timestamp(us),Node,Total_time(us)\n0,1\t,Unique,3\n",
}


@cache  # a strategy is checked once, and that takes longer than to draw from it
def changed(original):
    """Return texts near an original: cut, with a piece put in, taken out or doubled, or with bits turned."""
    pieces = st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b'"', b",", b"\n", b"\0", b"N/A", b"-1", b"1e999999999", b"9" * 5000, b"NaN", b"{", b"[" * 3000,
                         b"Infinity", "²".encode(), b"null", b'"\\ud800"', b"0.5", b"18446744073709551616", b"\xff"]),
    )  # fmt: skip
    place = st.integers(0, len(original))
    return st.one_of(
        place.map(lambda end: original[:end]),
        st.builds(lambda at, end, piece: original[:at] + piece + original[max(at, end) :], place, place, pieces),
        st.builds(lambda at, piece: original[:at] + piece + original[at:], place, pieces),
        st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=20).map(
            lambda turned: flipped(original, turned)
        ),
    )


def flipped(original, turned):
    found = bytearray(original)
    for at, value in turned:
        found[at % len(found)] ^= value
    return bytes(found)


def read(path):
    """Read within bounds; nothing but DocumentError may be raised."""
    started = time.process_time()
    with bounded_memory(), contextlib.suppress(DocumentError):
        recording = trace.read(path)
        for timeline in recording.timelines:
            assert timeline.events.duration.min(initial=0) >= 0
            assert all(isinstance(dict(kernel.counters), dict) for kernel in timeline.kernels or ())
    assert time.process_time() - started < 20


_give_back_memory = getattr(ctypes.CDLL(None), "malloc_trim", lambda _: 0)  # of glibc


@contextlib.contextmanager
def bounded_memory():
    """Allow a peak of 128 MiB, by the kernel's own record of it: tracemalloc, needed elsewhere, takes twice as long as to read.

    That record has the memory of C too. What earlier tests have freed goes back to the kernel first, so that it counts again.
    """
    _give_back_memory(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew (proc(5))
    except OSError:
        tracemalloc.start()
        try:
            yield
            assert tracemalloc.get_traced_memory()[1] < 128 << 20
        finally:
            tracemalloc.stop()
        return
    before = peak_memory()
    yield
    assert peak_memory() - before < 64 << 20


def peak_memory():
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) << 10


def test_bounded_memory__128_mebibytes_taken_for_a_moment__fails() -> None:
    with pytest.raises(AssertionError), bounded_memory():
        bytearray(b"x") * (128 << 20)


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for name, text in TABLES.items():
        (tmp_path / name).write_bytes(text)
    return tmp_path


@pytest.mark.parametrize("name", sorted(TABLES))
@CHECKED
@given(data=st.data())
def test_folder__one_damaged_file__recording_or_document_error(name: str, data: st.DataObject, tables: Path) -> None:
    (tables / name).write_bytes(data.draw(changed(TABLES[name])))

    read(tables)


def timeline():
    events = [
        *process(7, "Python"), span("aten::add", 7, 7, "1736408883704643.212", 1.5, "cpu_op"), *process(9, "CANN"),
        span("Node@launch", 9, 3, "110.000", 10), arrow("s", "5046586572799", 9, 3, "115.000"),
        *hardware(1, "NPU 0", start="130.000", number="5046586572799"),
        {"ph": "C", "name": "AI Core Freq", "pid": 4, "tid": 0, "ts": "1.0", "args": {"MHz": 1800}},
    ]  # fmt: skip
    return repr(events).replace("'", '"').encode()


@settings(CHECKED, max_examples=40)
@given(content=changed(timeline()))
def test_view__damaged__recording_or_document_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace_view.json").write_bytes(content)

    read(tmp_path / "trace_view.json")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("export") / "a.db"
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA page_size = 512")
        for table, columns, rows in (
            (
                "STRING_IDS",
                "id INTEGER PRIMARY KEY, value TEXT",
                [(1, "Add1"), (2, "Add"), (3, "KERNEL_AIVEC"), (4, '"8;2,2"')],
            ),
            (
                "TASK",
                "startNs, endNs, deviceId, connectionId, globalTaskId, taskType, streamId",
                [(100, 150, 0, 9, 7, 3, 2)] * 20,
            ),
            ("COMPUTE_TASK_INFO", "name, globalTaskId, blockDim, opType, inputShapes", [(1, 7, 40, 2, 4)]),
            ("CANN_API", "startNs, endNs, type, globalTid, connectionId, name", [(90, 95, 10000, 1 << 40, 9, 1)] * 20),
            ("PYTORCH_API", "startNs TEXT, endNs TEXT, globalTid, name, type", [("80", "99", 1 << 40, 1, 50001)]),
            ("TASK_PMU_INFO", "globalTaskId, name, value", [(7, 1, 0.5)]),
            ("MEMORY_RECORD", "component, totalAllocated, totalReserved, deviceId", [(1, 5, 6, 0)]),
            ("STEP_TIME", "id, startNs, endNs", [(1, 50, 200)]),
        ):
            connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    assert len(trace.read(path).timelines[0].kernels) == 20
    return path.read_bytes()


@settings(CHECKED, max_examples=40)
@given(data=st.data())
def test_database__damaged_bytes__recording_or_document_error(
    data: st.DataObject, export: bytes, tmp_path: Path
) -> None:
    (tmp_path / "ascend_pytorch_profiler.db").write_bytes(data.draw(changed(export)))

    read(tmp_path / "ascend_pytorch_profiler.db")


VALUES = st.one_of(
    st.none(),
    st.integers(-(1 << 63), (1 << 63) - 1),
    st.floats(allow_nan=True),
    st.text(max_size=8),
    st.binary(max_size=8),
)


@settings(CHECKED, max_examples=40)
@given(rows=st.lists(st.tuples(*[VALUES] * 7), max_size=4), strings=st.lists(st.tuples(VALUES, VALUES), max_size=4))
def test_database__any_type_in_any_column__recording_or_document_error(
    rows: list[tuple[object, ...]], strings: list[tuple[object, ...]], tmp_path: Path
) -> None:
    path = tmp_path / "a.db"
    path.unlink(missing_ok=True)
    with contextlib.closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE STRING_IDS (id, value)")
        connection.executemany("INSERT INTO STRING_IDS VALUES (?, ?)", strings)
        for table, columns in (
            ("TASK", "startNs, endNs, deviceId, connectionId, globalTaskId, taskType, modelId"),
            ("COMPUTE_TASK_INFO", "globalTaskId, name, blockDim, opType, inputShapes, waitNs, taskType"),
            ("CANN_API", "startNs, endNs, type, globalTid, connectionId, name, depth"),
            ("PYTORCH_API", "startNs, endNs, globalTid, name, type, inputShapes, connectionId"),
            ("TASK_PMU_INFO", "globalTaskId, name, value, a, b, c, d"),
            ("COMMUNICATION_OP", "opName, startNs, endNs, connectionId, deviceId, opType, count"),
            ("MEMORY_RECORD", "component, totalAllocated, totalReserved, deviceId, a, b, c"),
            ("NPU_MEM", "type, ddr, hbm, deviceId, a, b, c"),
            ("NPU_MODULE_MEM", "moduleId, totalReserved, deviceId, a, b, c, d"),
            ("OP_MEMORY", "deviceId, name, size, a, b, c, d"),
            ("AICORE_FREQ", "deviceId, freq, a, b, c, d, e"),
            ("STEP_TIME", "id, startNs, endNs, a, b, c, d"),
            ("META_DATA", "name, value, a, b, c, d, e"),
            ("RANK_DEVICE_MAP", "rankId, deviceId, a, b, c, d, e"),
        ):
            connection.execute(f"CREATE TABLE {table} ({columns})")
            connection.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?, ?, ?, ?)", rows)

    read(path)


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("archived") / "trace.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv", KERNELS)
        archive.writestr("a_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json", timeline())
    return path.read_bytes()


@settings(CHECKED, max_examples=40)
@given(data=st.data())
def test_archive__damaged_bytes__recording_or_document_error(
    data: st.DataObject, archived: bytes, tmp_path: Path
) -> None:
    (tmp_path / "trace.zip").write_bytes(data.draw(changed(archived)))

    read(tmp_path / "trace.zip")


@CHECKED
@given(content=changed(KERNELS.replace(b"Name,Type", b"Op Name,OP Type")))
def test_msprof__damaged_table__recording_or_document_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "op_summary_1.csv").write_bytes(content)

    read(tmp_path / "op_summary_1.csv")

"""What is fuzzed: every reader of somebody else's file or text, with seeds in the shapes of our own fixtures.

A target must either answer or raise the error it documents; anything else is a finding.
"""

from __future__ import annotations

import gzip
import importlib
import io
import json
import os
import sqlite3
import sys
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfgate import trace
from perfgate.document.trace import TopKey
from perfgate.errors import PerfgateError, UsageError
from perfgate.flows.trace.trace import Choice, trace_steps
from perfgate.measuring.devices.ascend.info_table import parse_info
from perfgate.measuring.devices.ascend.npu_smi import parse_blocks, parse_map
from perfgate.measuring.devices.ascend.reading import read_state, read_telemetry
from perfgate.measuring.devices.monitors.cuda import APP_FIELDS, FIELDS, parse_apps, parse_rows, read_gpu
from perfgate.plugins import load_members
from perfgate.trace import readers
from perfgate.trace.analysis.gaps import device_gaps
from perfgate.trace.analysis.rows import top
from perfgate.trace.model.kernel_table import KernelTable

zstd: Any = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")
DATA = Path(__file__).parents[1] / "data"
_KEYS: tuple[TopKey, ...] = ("type", "name", "shape")
_OUTPUT = "ASCEND_PROFILER_OUTPUT"

# One row each, in the shapes that facts of the recorded samples msinsight-910B-alexnet-2501 (Level1) and
# msinsight-gpt3-cann7-2309 have; the numbers are made up.
TABLES: dict[str, str] = {
    "kernel_details.csv": (
        "Step Id,Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),"
        "Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,Input Shapes,Input Data Types,Input Formats,Output Shapes,"
        "Output Data Types,Output Formats,Context ID,aicore_time(us),aic_total_cycles,cube_utilization(%)\n"
        "7,0,4294967295,11,2,aclnnMm_MatMulCommon_MatMulV2,MatMulV2,dynamic,AI_CORE,1736408883704801.156\t,6.54,104.202,8,0,"
        'NO,"""64,3;3,11""",FLOAT;FLOAT,ND;ND,"""64,11""",FLOAT,ND,N/A,6.1,9000,87.384\n'
        '7,0,4294967295,N/A,N/A,hcom_allReduce__586_0_1,hcom_allReduce_,N/A,HCCL,1736408883704901.0\t,60.5,0,0,0,N/A,N/A,'
        "N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\n"
    ),
    "op_statistic.csv": (
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
        "0,MatMulV2,AI_CORE,3,18.5,5.9,6.17,6.54,88.1\n"
    ),
    "step_trace_time.csv": (
        "Device_id,Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,"
        "Communication(Not Overlapped and Exclude Receive),Preparing\n"
        "0,7,8873.756000000001,101963.203,3.5,101966.703,25744.05,136581.009,0.0,101963.203,12.5\n"
    ),
    "task_time.csv": (
        "Device_id,kernel_name,kernel_type,stream_id,task_id,task_time(us),task_start(us),task_stop(us)\n"
        "0,MEMCPY_ASYNC,PCIE_DMA_SQE,2,9,3.5,1736408883704801.156\t,1736408883704804.656\t\n"
    ),
    "operator_details.csv": (
        "Name,Input Shapes,Call Stack,Host Self Duration(us),Host Total Duration(us),Device Self Duration(us),"
        "Device Total Duration(us),Device Self Duration With AICore(us),Device Total Duration With AICore(us)\n"
        'aten::mm,"64,3;\n3,11","model.py(7): forward;\nmain.py(3)",50.1,60.2,6.54,6.54,6.54,6.54\n'
    ),
    "api_statistic.csv": (
        "Device_id,Level,API Name,Time(us),Count,Avg(us),Min(us),Max(us),Variance\nhost,acl,aclnnMm,91.5,3,30.5,20,41,9.5\n"
    ),
    "memory_record.csv": (
        "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Total Active(MB),Stream Ptr,Device Type\n"
        "PTA,1736408883704801.156\t,118.5,145.0,118.5,187651,NPU:0\nAPP,1.73640E+15,,3000.5,,,NPU:0\n"
    ),
    "operator_memory.csv": (
        "Name,Size(KB),Allocation Time(us),Release Time(us),Duration(us),Device Type\n"
        "aten::mm,512.0,1736408883704801.156\t,N/A,N/A,NPU:0\naten::mm,-512.0,1736408883704805.156\t,,,NPU:0\n"
    ),
    "data_preprocess.csv": "Device_id,SerialID,StreamID,TaskID,Total_time(us),Node,Thread ID\n0,1,2,3,12.5,Range,7\n",
    "l2_cache.csv": "Device_id,Stream Id,Task Id,Hit Rate,Victim Rate,Op Name\n0,2,11,N/A,1.25,MatMulV2\n",
    "communication.json": json.dumps(
        {"step7": {"p2p": {}, "collective": {"hcom_allReduce__586_0_1@1234": {
            "Communication Time Info": {"Start Timestamp(us)": 1736408883704901.0, "Elapse Time(ms)": 79.08,
                                        "Transit Time(ms)": 1.5, "Wait Time(ms)": 77.0, "Synchronization Time(ms)": 76.0,
                                        "Idle Time(ms)": 0.5, "Wait Time Ratio": 0.98},
            "Communication Bandwidth Info": {"HCCS": {"Transit Size(MB)": 20.5, "Transit Time(ms)": 1.3,
                                                      "Bandwidth(GB/s)": 15.7, "Large Packet Ratio": 1.0,
                                                      "Size Distribution": {"20.5": [1, 1.3]}}}}}}}
    ),
    "profiler_info.json": json.dumps(
        {"config": {"common_config": {"activities": ["ProfilerActivity.NPU"], "record_shapes": True},
                    "experimental_config": {"_profiler_level": "Level1", "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION"}},
         "torch_npu_version": "2.7.1", "cann_version": "8.3.RC1", "rank_id": 0}
    ),
    "profiler_metadata.json": json.dumps({"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "0"}, "distributed_args": {"rank": 1}}),
}  # fmt: skip

TRACE_VIEW = [
    {"name": "process_name", "pid": 7, "tid": 0, "ph": "M", "args": {"name": "Python"}},
    {"name": "process_name", "pid": 8, "tid": 0, "ph": "M", "args": {"name": "CANN"}},
    {"name": "process_name", "pid": 9, "tid": 0, "ph": "M", "args": {"name": "Ascend Hardware"}},
    {"name": "process_labels", "pid": 9, "tid": 0, "ph": "M", "args": {"labels": "NPU 0"}},
    {"name": "thread_name", "pid": 9, "tid": 2, "ph": "M", "args": {"name": "Stream 2"}},
    {"ph": "X", "name": "ProfilerStep#7", "pid": 7, "tid": 1, "ts": "1736408883704700.500", "dur": 400, "cat": "cpu_op"},
    {"ph": "X", "name": "aten::mm", "pid": 7, "tid": 1, "ts": "1736408883704750.500", "dur": 30.5, "cat": "cpu_op",
     "args": {"Input Dims": "64,3;\r\n3,11", "Call stack": "model.py(7): forward;\r\nmain.py(3)"}},
    {"ph": "X", "name": "Node@launch", "pid": 8, "tid": 1, "ts": "1736408883704760.000", "dur": 5,
     "args": {"connection_id": 77, "item_id": "aclnnMm_MatMulCommon_MatMulV2"}},
    {"ph": "s", "name": "HostToDevice330712481792", "cat": "HostToDevice", "id": "330712481792", "pid": 8, "tid": 1,
     "ts": "1736408883704761.000"},
    {"ph": "X", "name": "aclnnMm_MatMulCommon_MatMulV2", "pid": 9, "tid": 2, "ts": "1736408883704801.156", "dur": 6.54,
     "args": {"Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": 11, "connection_id": 77, "request_id": "r-1"}},
    {"ph": "f", "name": "HostToDevice330712481792", "cat": "HostToDevice", "id": "330712481792", "bp": "e", "pid": 9,
     "tid": 2, "ts": "1736408883704801.156"},
    {"ph": "C", "name": "AI Core Freq", "pid": 10, "tid": 0, "ts": "1736408883704700.000", "args": {"MHz": 1800}},
]  # fmt: skip

# The native profiler on an NPU: launches and kernels joined by flows alone (shape of torch-native-privateuse1).
NATIVE_NPU = {
    "schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "x"}], "distributedInfo": {"rank": 3, "world_size": 8},
    "cuda_runtime_version": 12040,
    "traceEvents": [
        {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#2", "pid": 5, "tid": 5, "ts": 100.25, "dur": 90},
        {"ph": "X", "cat": "privateuse1_runtime", "name": "Cast_39", "pid": 5, "tid": 6, "ts": 110.5, "dur": 1},
        {"ph": "s", "id": 535, "pid": 5, "tid": 6, "ts": 110.5, "cat": "ac2g", "name": "ac2g"},
        {"ph": "X", "cat": "kernel", "name": "Cast_39_high_performance_2", "pid": 0, "tid": 47, "ts": 120.125, "dur": 1.1,
         "args": {"streamId": 47, "type": "KERNEL_AIVEC"}},
        {"ph": "f", "id": 535, "pid": 0, "tid": 47, "ts": 120.125, "cat": "ac2g", "name": "ac2g", "bp": "e"},
    ],
}  # fmt: skip

CHROME = [
    {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "NPU 3"}},
    {
        "name": "MatMul",
        "ph": "X",
        "ts": 1742490378358140.950,
        "dur": 3,
        "pid": 1,
        "tid": 5,
        "args": {"request_id": "r-17"},
    },
    {"name": "outer", "ph": "B", "ts": 1, "pid": 2, "tid": 5, "args": {"request_id": 4}},
    {"name": "inner", "ph": "B", "ts": 2, "pid": 2, "tid": 5},
    {"ph": "E", "ts": 3, "pid": 2, "tid": 5},
    {"ph": "E", "ts": "9.5", "pid": 2, "tid": 5},
]


# As nvidia-smi --query-gpu prints its fields (perfgate.measuring.devices.monitors.cuda.FIELDS).
_GPU = b"0, GPU-aa, NVIDIA H200, 550.1, 41, 119.50, 1980, 1980, 3, 1, 4096, 81559, 0x0000000000000008, [N/A]\n"


@dataclass(frozen=True)
class Target:
    """One reader: seeds, and what feeds it bytes. ``run`` raises what is documented, or what is a finding."""

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes, Path], object]

    def survives(self, data: bytes, folder: Path) -> bool:
        """Feed it; return whether it answered, False where it refused as documented."""
        try:
            self.run(data, folder)
        except PerfgateError:
            return False
        return True


def targets() -> dict[str, Target]:
    """Return every target by name."""
    found = [
        Target("kineto", (*_files("trace/cpu.json", "trace/device.json"), _json(NATIVE_NPU)), _file("t.pt.trace.json")),
        Target("kineto-gz", tuple(gzip.compress(seed) for seed in _files("trace/device.json")), _file("t.json.gz")),
        Target("kineto-zst", tuple(zstd.compress(seed) for seed in _files("trace/device.json")), _file("t.json.zst")),
        Target("chrome", (_json(CHROME), *_files("trace/old.json")), _file("events.json")),
        Target("trace-view", (_json(TRACE_VIEW),), _file("trace_view.json")),
        Target("folder", tuple(_numbered(name) for name in TABLES), _table),
        Target("database", (_database(),), _in_output("ascend_pytorch_profiler_0.db")),
        Target("nsys", (_database(_NSYS),), _file("report.sqlite")),
        Target("zip", (_zip(),), _file("profile.zip")),
        Target("msprof", tuple(_numbered_msprof()), _msprof),
        Target(
            "npu-smi", _files(*sorted(f"npu_smi/{file.name}" for file in (DATA / "npu_smi").glob("*.txt"))), _npu_smi
        ),
        Target("nvidia-smi", (_GPU, b"GPU-aa, 77, python, 512\n"), _nvidia),
    ]
    return {target.name: target for target in found}


def import_readers() -> None:
    """Import what else is imported at the first reading, so that a fuzzer can instrument it."""
    load_members(readers)


def scratch() -> tempfile.TemporaryDirectory[str]:
    """Return a folder in memory where there is one: a fuzzer writes thousands of files a second."""
    memory = "/dev/shm"
    return tempfile.TemporaryDirectory(prefix="perfgate-fuzz-", dir=memory if os.access(memory, os.W_OK) else None)


def _analyse(path: Path) -> None:
    """Read a recording, ask it everything, and hold the answers against what must be true of any."""
    recording = trace.read(path)
    for timeline in recording.timelines:
        assert timeline.label
        assert bool((timeline.events.duration >= 0).all())
        positions, counters = KernelTable.of(timeline.kernels or ()).counters.every
        assert counters.shape == (len(timeline.kernels or ()) if positions else 0, len(positions))
        found = device_gaps(timeline.events, exposed=True)
        idle = [gap for gap in found.gaps if gap.cause not in ("copy", "communication")] if found else []
        assert found is None or found.busy_ns + sum(gap.duration_ns for gap in idle) == found.end_ns - found.start_ns
        for by in _KEYS:
            for host in (False, True):
                with suppress(UsageError):  # no shapes
                    rows = top(timeline, by=by, host=host).rows
                    assert all(row.count > 0 and row.total_ns >= 0 for row in rows)
    trace_steps(path, Choice(), step_by=None)


def _file(name: str) -> Callable[[bytes, Path], object]:
    def run(data: bytes, folder: Path) -> None:
        (folder / name).write_bytes(data)
        _analyse(folder / name)

    return run


def _in_output(name: str) -> Callable[[bytes, Path], object]:
    """Return a run that puts the data into a complete profiler folder as one file of it."""

    def run(data: bytes, folder: Path) -> None:
        output = folder / "host_1_20250109074803704_ascend_pt" / _OUTPUT
        output.mkdir(parents=True, exist_ok=True)
        for other, text in TABLES.items():
            (output.parent if other.startswith("profiler_") else output).joinpath(other).write_text(text)
        target = output.parent / name if name.startswith("profiler_") else output / name
        target.write_bytes(data)
        _analyse(output.parent)

    return run


def _table(data: bytes, folder: Path) -> None:
    """Take the first byte for which file of a profiler folder the rest is."""
    names = list(TABLES)
    _in_output(names[data[0] % len(names) if data else 0])(data[1:], folder)


def _numbered(name: str) -> bytes:
    return bytes([list(TABLES).index(name)]) + TABLES[name].encode()


_MSPROF = ("op_summary_20260823.csv", "op_statistic_20260823.csv", "api_statistic_20260823.csv", "task_time_20260823.csv",
           "msprof_20260823.json")  # fmt: skip


def _msprof(data: bytes, folder: Path) -> None:
    output = folder / "PROF_000001_20260823165254_X" / "mindstudio_profiler_output"
    output.mkdir(parents=True, exist_ok=True)
    for seed in _numbered_msprof():
        (output / _MSPROF[seed[0]]).write_bytes(seed[1:])
    (output / _MSPROF[data[0] % len(_MSPROF) if data else 0]).write_bytes(data[1:])
    _analyse(output.parent)


def _numbered_msprof() -> list[bytes]:
    summary = (
        TABLES["kernel_details.csv"]
        .replace("Step Id,", "")
        .replace("\n7,", "\n")
        .replace(",Name,Type,", ",Op Name,OP Type,")
        .replace(
            "Accelerator Core,Start Time(us),Duration(us),Wait",
            "Task Type,Task Start Time(us),Task Duration(us),Task Wait",
        )
        .replace("Block Dim", "Block Num")
    )
    texts = [
        summary,
        TABLES["op_statistic.csv"],
        TABLES["api_statistic.csv"],
        TABLES["task_time.csv"],
        json.dumps(TRACE_VIEW),
    ]
    return [bytes([number]) + text.encode() for number, text in enumerate(texts)]


def _npu_smi(data: bytes, folder: Path) -> None:
    """Answer every question to npu-smi with the same text, as a broken driver does."""
    text = data.decode("utf-8", "replace")
    chip = parse_map((DATA / "npu_smi" / "map_a3.txt").read_text())[0]
    _each(
        lambda: parse_info(text),
        lambda: parse_blocks(text, "npu-smi info -t usages"),
        lambda: parse_map(text),
        lambda: read_state(chip, lambda command: text, usages=True),
        lambda: read_telemetry(0, lambda command: text, {}),
    )


def _nvidia(data: bytes, folder: Path) -> None:
    text = data.decode("utf-8", "replace")
    _each(
        lambda: parse_rows(text, FIELDS, "nvidia-smi"),
        lambda: parse_rows(text, APP_FIELDS, "nvidia-smi"),
        lambda: parse_apps(text),
        lambda: read_gpu(0, lambda command: text, {}),
    )


def _each(*runs: Callable[[], object]) -> None:
    """Make every run, and raise a documented error of any of them only when all were made."""
    refused: list[PerfgateError] = []
    for run in runs:
        try:
            run()
        except PerfgateError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _files(*names: str) -> tuple[bytes, ...]:
    return tuple((DATA / name).read_bytes() for name in names)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _zip() -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, text in TABLES.items():
            archive.writestr(f"a_1_20250109074803704_ascend_pt/{_OUTPUT}/{name}", text)
        archive.writestr(f"a_1_20250109074803704_ascend_pt/{_OUTPUT}/trace_view.json", json.dumps(TRACE_VIEW))
    return stream.getvalue()


def _database(schema: str | None = None) -> bytes:
    """Return a small export, by default in the tables of schema 1.0.0 (facts of the sample msinsight-910B-alexnet-2501/db)."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "export.db"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA page_size = 512")
            connection.executescript(schema or _SCHEMA)
            connection.commit()
        return path.read_bytes()


_NSYS = """
CREATE TABLE StringIds (id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO StringIds VALUES (1, 'gemm'), (2, 'cudaLaunchKernel_v7000');
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, shortName INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (2000, 2500, 0, 7, 5, 16777216, 1, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, end INTEGER, deviceId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER, copyKind INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (2600, 2700, 0, 7, 6, 16777216, 1);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, end INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER);
INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1900, 1950, 16777223, 5, 2);
CREATE TABLE NVTX_EVENTS (start INTEGER, end INTEGER, eventType INTEGER, text TEXT, textId INTEGER, globalTid INTEGER);
INSERT INTO NVTX_EVENTS VALUES (1000, 3000, 59, 'ProfilerStep#1', NULL, 16777223);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT); INSERT INTO TARGET_INFO_GPU VALUES (0, 'Accelerator');
"""
_SCHEMA = """
CREATE TABLE META_DATA (name TEXT, value TEXT); INSERT INTO META_DATA VALUES ('SCHEMA_VERSION', '1.0.0');
CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT);
INSERT INTO STRING_IDS VALUES (1, 'aclnnMm_MatMulV2'), (2, 'MatMulV2'), (3, 'AI_CORE'), (4, '64,3;3,11'), (5, 'FLOAT;FLOAT'),
  (6, 'ND;ND'), (7, 'KERNEL_AICORE'), (8, 'aten::mm'), (9, 'Node@launch'), (10, 'hcom_allReduce__586_0_1');
CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,
  globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER);
INSERT INTO TASK VALUES (1736408883704801156, 1736408883704807696, 0, 77, 1, 9, 7, 4294967295, 2, 11, 4294967295);
CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockDim INTEGER, mixBlockDim INTEGER,
  taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,
  outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER);
INSERT INTO COMPUTE_TASK_INFO VALUES (1, 1, 8, 0, 3, 2, 6, 5, 4, 6, 5, 4);
CREATE TABLE COMMUNICATION_OP (opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER,
  opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count INTEGER, opType INTEGER);
INSERT INTO COMMUNICATION_OP VALUES (10, 1736408883704901000, 1736408883704961500, 78, 10, 1, 0, 0, 4, 4, 1024, 10);
CREATE TABLE CANN_API (startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER, name INTEGER);
INSERT INTO CANN_API VALUES (1736408883704760000, 1736408883704765000, 10000, 9, 77, 9);
CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,
  sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER);
INSERT INTO PYTORCH_API VALUES ('1736408883704750500', '1736408883704781000', 9, 1, 8, 0, 0, 5, 4, NULL);
CREATE TABLE STEP_TIME (id INTEGER, startNs INTEGER, endNs INTEGER);
INSERT INTO STEP_TIME VALUES (7, 1736408883704700500, 1736408883705100500);
CREATE TABLE RANK_DEVICE_MAP (rankId INTEGER, deviceId INTEGER); INSERT INTO RANK_DEVICE_MAP VALUES (0, 0);
CREATE TABLE NPU_INFO (id INTEGER, name TEXT); INSERT INTO NPU_INFO VALUES (0, 'Ascend910B');
CREATE TABLE MEMORY_RECORD (component INTEGER, timestamp INTEGER, totalAllocated INTEGER, totalReserved INTEGER,
  totalActive INTEGER, streamPtr INTEGER, deviceId INTEGER);
INSERT INTO MEMORY_RECORD VALUES (8, 1736408883704801156, 1000, 2000, 1000, 1, 0);
CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, deviceId INTEGER);
INSERT INTO OP_MEMORY VALUES (8, 512, 1736408883704801156, NULL, 0);
CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC); INSERT INTO TASK_PMU_INFO VALUES (1, 3, 0.5);
CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs NUMERIC, freq INTEGER);
INSERT INTO AICORE_FREQ VALUES (0, 1736408883704801156, 1800);
CREATE TABLE HBM (deviceId INTEGER, timestampNs NUMERIC, bandwidth NUMERIC, hbmId INTEGER, type INTEGER);
INSERT INTO HBM VALUES (0, 1736408883704801156, 1000.5, 0, 8);
"""

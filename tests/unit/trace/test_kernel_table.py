"""Tables of kernels: the compiled scanner and the csv module read the same kernels, and columns say what rows say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.errors import DocumentError
from perfgate.trace.model.counters import CounterColumns
from perfgate.trace.model.events import NO_TEXT
from perfgate.trace.model.kernel_table import KernelTable, joined_tables
from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.recording import Kernel, Launch, Tensors
from perfgate.trace.readers.ascend.columns import Kind, TableColumns, read_columns, scan_columns
from perfgate.trace.readers.ascend.kernels import KINDS, kernel_rows, read_kernels
from perfgate.trace.scanner import library
from perfgate.trace.scanner import table as scanned_table
from tests.samples import recorded

needs_library = pytest.mark.skipif(library.load() is None, reason="the scanner is not built (python hatch_build.py)")
HEADER = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,HF32 Eligible,Stream ID,"
    "Input Shapes,Input Data Types,Device_id,aic_mac_time(us),cube_utilization(%)"
)
_numbers = st.sampled_from(
    [
        "0",
        "12",
        "1.5",
        "2.0005",
        "2.0015",
        "-3.25",
        "1e3",
        "",
        "N/A",
        "NA",
        "-",
        "7\t",
        ' "8" ',
        "x",
        "1.2e-05",
        "nan",
        "é",
    ]
) | st.integers(0, 1 << 64).map(str)
_times = st.sampled_from(["1736408883704801.250", "1736408883704801.2505\t", "1.7E+15", "N/A"]) | _numbers
_words = st.sampled_from(["MatMulV2", "MatMulV2\t", "hcom_allReduce_", "HCCL", "AI_CORE", "N/A", "", 'a"b', "é", " x "])
_shapes = st.sampled_from(['"""8,4;2"""', '"8,4"', '""', '";"', "8", "N/A", "NA", '"""x"""', '"1\n2"', '"8"9'])
_row = st.tuples(
    *(_numbers, _words, _words, _words, _times, _times, _times, _numbers, st.sampled_from(["YES", "NO", "N/A"])),
    *(_numbers, _shapes, st.sampled_from(["FLOAT;INT64", "DT_BF16", '"FLOAT;FLOAT"', "N/A"]), st.sampled_from("0101 ")),
    *(_numbers, _numbers),
)
_whole = st.sampled_from(["0", "12", "N/A", "-", "7\t", ' "8" ']) | st.integers(0, 10**18 - 1).map(str)
_plain_times = st.sampled_from(["1736408883704801.250", "1736408883704801.2505\t", "0", "N/A", "2.0005", "2.0015"])
_counters = st.floats(allow_nan=False, min_value=0).map(repr) | st.sampled_from(
    ["0.5", "N/A", "", "x", "nan", "1.2e-05"]
)
_plain_row = st.tuples(
    *(
        _whole,
        _words,
        _words,
        _words,
        _plain_times,
        _plain_times,
        _plain_times,
        _whole,
        st.sampled_from(["YES", "N/A"]),
    ),
    *(
        _whole,
        st.sampled_from(['"""8,4;2"""', '"8,4"', '""', '";"', "8", "N/A"]),
        st.sampled_from(["FLOAT;INT64", "N/A"]),
    ),
    *(st.sampled_from("01"), _counters, _counters),
)
_plain_rows = st.lists(_plain_row.map(",".join) | st.just(""), max_size=6)
_rows = st.lists(_row.map(",".join) | st.sampled_from(["", "1,short", "\0", ",".join("x" * 20)]), max_size=4)


COUNTERS: dict[str, Kind] = {"aic_mac_time(us)": "counter", "cube_utilization(%)": "counter"}


def described(columns: TableColumns) -> object:
    """All that is known of the kernels of each device, and of the hardware's counters."""
    by_device, incomplete = kernel_rows(columns, CounterColumns())
    kernels = {device: tuple(kernels) for device, kernels in by_device.items()}
    counters = [[None if math.isnan(cell) else cell for cell in columns.real(name).tolist()] for name in COUNTERS]
    return kernels, list(kernels), incomplete, counters


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all examples of a test: a folder for each takes longer than to read it."""
    return tmp_path_factory.mktemp("examples")


def table(folder: Path, text: bytes) -> Path:
    path = folder / "kernel_details.csv"
    path.write_bytes(text)
    return path


@needs_library
@settings(max_examples=150, deadline=None)
@given(rows=_rows | _plain_rows, end=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_scan_columns__any_rows__as_the_csv_module_reads_them(
    folder: Path, rows: list[str], end: str, last: bool
) -> None:
    text = end.join([HEADER, *rows]) + (end if last else "")
    path = table(folder, text.encode())
    scanned = scan_columns(path, {**KINDS, **COUNTERS})
    try:
        read = read_columns(path, {**KINDS, **COUNTERS}, leave_short=False)
    except DocumentError:
        assert scanned is None
    else:
        assert scanned is None or described(scanned) == described(read)


@needs_library
@settings(max_examples=100, deadline=None)
@given(rows=_plain_rows)
def test_scan_columns__plain_rows__scanned(folder: Path, rows: list[str]) -> None:
    path = table(folder, "".join(f"{line}\n" for line in [HEADER, *rows]).encode())
    scanned = scan_columns(path, {**KINDS, **COUNTERS})
    assert scanned is not None
    assert described(scanned) == described(read_columns(path, {**KINDS, **COUNTERS}, leave_short=False))


@needs_library
@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(_numbers, _numbers, st.sampled_from(['"a,\n""b"";"', '"', "x", '"\0"']), _words), max_size=4
    ),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_scan_columns__skipped_cell_over_several_lines_and_numbers__as_the_csv_module_reads_them(
    folder: Path, rows: list[tuple[str, ...]], end: str
) -> None:
    wanted: dict[str, Kind] = {"size(kb)": "number", "host self duration(us)": "time", "name": "text"}
    lines = ["Size(KB),Host Self Duration(us),Call Stack,Name", *map(",".join, rows)]
    path = table(folder, "".join(line + end for line in lines).encode())
    scanned = scan_columns(path, wanted)
    try:
        read = read_columns(path, wanted, leave_short=False)
    except DocumentError:
        assert scanned is None
        return
    if scanned is not None:
        assert np.array_equal(scanned.real("size(kb)"), read.real("size(kb)"), equal_nan=True)
        times, names = "host self duration(us)", [Numbering[str](), Numbering[str]()]
        assert scanned.wholes(times).tolist() == read.wholes(times).tolist()
        codes = [own.coded("name", str.strip, numbers) for own, numbers in zip((scanned, read), names)]
        assert codes[0].tolist() == codes[1].tolist()
        assert list(names[0]) == list(names[1])


RECORDED = [
    "msinsight-910B-alexnet-2501/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "msinsight-910B-alexnet-2501/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
    "msprof-910B-20cores-2608/PROF_PipeUtilization/mindstudio_profiler_output/op_summary.csv",
    "mstt-advisor/compute_advice/kernel_details.csv",
]


@pytest.mark.recordings
@needs_library
@pytest.mark.parametrize("sample", RECORDED)
def test_read_kernels__recorded_table__the_same_with_and_without_the_library(
    sample: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recorded(sample)
    assert scan_columns(path, KINDS) is not None
    scanned, incomplete = read_kernels(path)
    found = {
        device: [kernel._replace(counters=dict(kernel.counters)) for kernel in own] for device, own in scanned.items()
    }
    monkeypatch.setattr(scanned_table, "load", lambda: None)
    assert scan_columns(path, KINDS) is None
    read, incomplete_of_module = read_kernels(path)
    assert {device: list(own) for device, own in read.items()} == found
    assert incomplete_of_module == incomplete


@needs_library
def test_read_kernels__longer_than_a_window__every_row(tmp_path: Path) -> None:
    row = '1,MatMulV2,MatMul,AI_CORE,1736408883704801.250,1.5,0,8,NO,2,"""8,4""",FLOAT,0,0.5,99\n'
    last = '2,Add,Add,AI_VECTOR_CORE,1736408883704902.250,2.5,N/A,40,NO,N/A,"""8""",FLOAT,0,N/A,1\n'
    path = table(tmp_path, (HEADER + "\n" + row * 60_000 + last).encode())
    assert path.stat().st_size > 4 << 20
    (kernels,) = read_kernels(path)[0].values()
    assert len(kernels) == 60_001
    assert kernels[59_999] == kernels[0] == next(iter(kernels))
    assert (kernels[0].duration_ns, kernels[0].counters["aic_mac_time(us)"]) == (1500, 0.5)
    assert (kernels[-1].name, kernels[-1].launch.stream, kernels[-1].wait_ns, kernels[-1].step) == (
        "Add",
        None,
        None,
        2,
    )
    assert dict(kernels[-1].counters) == {"cube_utilization(%)": 1.0}


@needs_library
@pytest.mark.parametrize("text", ["0.1", "123456789.123456", "2.2250738585072014e-308", "1e400", "0.30000000000000004"])
def test_read_kernels__counter__the_nearest_number(tmp_path: Path, text: str) -> None:
    path = table(tmp_path, f"Name,Duration(us),some_counter\nAdd,1,{text}\n".encode())
    (kernel,) = read_kernels(path)[0][None]
    number = float(text)
    assert kernel.counters.get("some_counter") == (number if math.isfinite(number) else None)


def test_read_kernels__table_written_again_before_its_counters_are_asked_for__refused(tmp_path: Path) -> None:
    path = table(tmp_path, b"Name,Duration(us),some_counter\nAdd,1,2\nMul,2,3\n")
    kernels = read_kernels(path)[0][None]
    table(tmp_path, b"Name,Duration(us),some_counter\nAdd,1,2\n")
    assert [kernel.duration_ns for kernel in kernels] == [1000, 2000]
    with pytest.raises(DocumentError, match="was written again while it was read"):
        kernels.counters.columns("some_counter")


def test_kernel_table__of_kernels__columns_and_the_same_kernels() -> None:
    kernels = (
        Kernel(
            "aclnnAdd_1", "Add", "AI_VECTOR_CORE", 5, 10, step=3, launch=Launch(stream=1), inputs=Tensors(((2, 3), ()))
        ),
        Kernel("hcom_send_1", None, None, None, 7),
        Kernel(
            "aclnnAdd_2", "Add", "AI_VECTOR_CORE", 20, 10, step=4, launch=Launch(stream=1), inputs=Tensors(((2, 3), ()))
        ),
    )
    columns = KernelTable.of(kernels)
    assert list(columns) == list(kernels)
    assert columns[-1] == kernels[-1]
    assert list(columns[1:]) == list(kernels[1:])
    assert [columns.texts[code] for code in columns.group] == ["Add", "hcom_send_1", "Add"]
    assert columns.is_collective.tolist() == [False, True, False]
    assert columns.codes["inputs"].tolist() == [0, NO_TEXT, 0]
    assert columns.steps == [3, 4]
    chosen = columns.select(np.array([2, 0]))
    assert list(chosen) == [kernels[2], kernels[0]]
    assert KernelTable.of(chosen) is chosen


def test_kernel_table__joined_and_selected__as_the_kernels_themselves() -> None:
    first = [
        Kernel("a", "Add", "AI_CORE", 1, 10, hf32=True, inputs=Tensors(((2,),), ("FLOAT",)), counters={"x": 1.5}),
        Kernel("b", None, None, None, 20, outputs=Tensors(formats=("ND", "NCHW"))),
    ]
    second = [
        Kernel("b", "Add", "MIX_AIC", 1 << 60, 30, hf32=False, outputs=Tensors(((2,), ())), counters={"y": 2.0}),
        Kernel("a", "Add", "AI_CORE", 1, 40, hf32=True, inputs=Tensors(((2,),), ("FLOAT",)), counters={"x": 0.5}),
    ]
    kernels = joined_tables([KernelTable.of(first), KernelTable.of(second)])
    assert list(kernels) == [*first, *second]
    chosen = kernels.select(np.array([3, 2])).select(np.array([True, False]))
    assert list(chosen) == [second[1]]
    assert {name: column.tolist() for name, column in chosen.counters.columns("x", "y").items() if name == "x"} == {
        "x": [0.5]
    }
    assert [(alike.kernel.name, alike.number, alike.total_ns) for alike in kernels.alike()] == [
        ("a", 2, 50),
        ("b", 1, 20),
        ("b", 1, 30),
    ]

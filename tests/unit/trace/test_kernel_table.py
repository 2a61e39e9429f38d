"""Tables of kernels: the compiled scanner and the csv module read the same kernels, and columns say what rows say."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate.errors import DocumentError
from perfgate.trace.ascend.kernels import KernelRows, read_rows, scan_kernels
from perfgate.trace.kernel_table import NO_TEXT, KernelTable
from perfgate.trace.recording import Kernel
from perfgate.trace.scanner import library
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


def described(rows: KernelRows) -> object:
    """All that is known of the kernels of each device, NaN nowhere."""
    kernels = {
        device: [kernel._replace(counters=dict(kernel.counters)) for kernel in kernels]
        for device, kernels in rows.by_device.items()
    }
    return kernels, list(kernels), rows.incomplete


def table(folder: Path, text: bytes) -> Path:
    path = folder / "kernel_details.csv"
    path.write_bytes(text)
    return path


@needs_library
@settings(max_examples=400, deadline=None)
@given(rows=_rows | _plain_rows, end=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_scan_kernels__any_rows__as_the_csv_module_reads_them(
    tmp_path_factory: pytest.TempPathFactory, rows: list[str], end: str, last: bool
) -> None:
    text = end.join([HEADER, *rows]) + (end if last else "")
    path = table(tmp_path_factory.mktemp("table"), text.encode())
    scanned = scan_kernels(path)
    try:
        expected = described(read_rows(path))
    except DocumentError:
        assert scanned is None
    else:
        assert scanned is None or described(scanned) == expected


@needs_library
@settings(max_examples=200, deadline=None)
@given(rows=_plain_rows)
def test_scan_kernels__plain_rows__scanned(tmp_path_factory: pytest.TempPathFactory, rows: list[str]) -> None:
    path = table(tmp_path_factory.mktemp("table"), "".join(f"{line}\n" for line in [HEADER, *rows]).encode())
    scanned = scan_kernels(path)
    assert scanned is not None
    assert described(scanned) == described(read_rows(path))


@needs_library
@pytest.mark.parametrize(
    "sample",
    [
        "msinsight-910B-alexnet-2501/text/level0/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        "msinsight-910B-alexnet-2501/text/level1/rank1_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv",
        "msprof-910B-20cores-2608/PROF_PipeUtilization/mindstudio_profiler_output/op_summary.csv",
        "mstt-advisor/compute_advice/kernel_details.csv",
    ],
)
def test_scan_kernels__recorded_table__scanned_and_the_same(sample: str) -> None:
    path = recorded(sample)
    scanned = scan_kernels(path)
    assert scanned is not None
    assert described(scanned) == described(read_rows(path))


@needs_library
def test_scan_kernels__longer_than_a_window__every_row(tmp_path: Path) -> None:
    row = '1,MatMulV2,MatMul,AI_CORE,1736408883704801.250,1.5,0,8,NO,2,"""8,4""",FLOAT,0,0.5,99\n'
    rows = KernelRows({}, 0)
    path = table(tmp_path, (HEADER + "\n" + row * 60_000).encode())
    assert path.stat().st_size > 4 << 20
    rows = scan_kernels(path) or rows
    assert [len(kernels) for kernels in rows.by_device.values()] == [60_000]
    (kernels,) = rows.by_device.values()
    assert kernels[59_999] == kernels[0] == next(iter(kernels))
    assert kernels[0].duration_ns == 1500
    assert kernels[-1].counters["aic_mac_time(us)"] == 0.5


@needs_library
@pytest.mark.parametrize("text", ["0.1", "123456789.123456", "2.2250738585072014e-308", "1e400", "0.30000000000000004"])
def test_scan_kernels__counter__the_nearest_number(tmp_path: Path, text: str) -> None:
    path = table(tmp_path, f"Name,Duration(us),some_counter\nAdd,1,{text}\n".encode())
    scanned = scan_kernels(path)
    assert scanned is not None
    (kernel,) = scanned.by_device[None]
    number = float(text)
    assert kernel.counters.get("some_counter") == (number if math.isfinite(number) else None)


def test_kernel_table__of_kernels__columns_and_the_same_kernels() -> None:
    kernels = (
        Kernel("aclnnAdd_1", "Add", "AI_VECTOR_CORE", 5, 10, step=3, stream=1, input_shapes=((2, 3), ())),
        Kernel("hcom_send_1", None, None, None, 7),
        Kernel("aclnnAdd_2", "Add", "AI_VECTOR_CORE", 20, 10, step=4, stream=1, input_shapes=((2, 3), ())),
    )
    columns = KernelTable.of(kernels)
    assert list(columns) == list(kernels)
    assert columns[-1] == kernels[-1]
    assert list(columns[1:]) == list(kernels[1:])
    assert [columns.texts[code] for code in columns.group] == ["Add", "hcom_send_1", "Add"]
    assert columns.is_collective.tolist() == [False, True, False]
    assert columns.codes["inputs"].tolist() == [1, NO_TEXT, 1]
    assert columns.steps == [3, 4]
    chosen = columns.select(np.array([2, 0]))
    assert list(chosen) == [kernels[2], kernels[0]]
    assert KernelTable.of(chosen) is chosen

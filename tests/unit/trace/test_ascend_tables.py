"""The parser rules that recorded files force, each on a small table of our own shaped like the sample it names."""

import gzip
import io
import sqlite3
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.flows.trace.trace import Choice, trace_top
from perfgate.trace.model.recording import NamedTotal
from perfgate.trace.readers.ascend import archive
from perfgate.trace.readers.ascend.columns import shapes_of
from tests.samples import unpacked
from tests.wording import text_of

from .ascend import groups, kinds, written

OUTPUT = "host_1_20250109150000123_ascend_pt/ASCEND_PROFILER_OUTPUT"
# Modelled on msinsight-910B-alexnet-2501 (level 1, 2025-01) and msinsight-gpt3-cann7-2309 (2023).
HEADER_2025 = "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us)"


def only(folder):
    (timeline,) = trace.read(folder).timelines
    return timeline


def kernels(folder, text):
    written(folder, f"{OUTPUT}/kernel_details.csv", text)
    return only(folder).kernels


def refused(folder, text, name="kernel_details.csv"):
    written(folder, f"{OUTPUT}/{name}", text)
    with pytest.raises(DocumentError) as error:
        trace.read(folder)
    return str(error.value)


def test_kernels__columns_in_any_order_and_unknown_ones__by_name(tmp_path: Path) -> None:
    (kernel,) = kernels(
        tmp_path, "Duration(us),Novelty(GB/s),Remark,Name,Block Num,Mix Block Num\n6.54\t,1.5,hm,Add1,8,0\n"
    )

    assert (kernel.duration_ns, kernel.name, kernel.blocks, kernel.mix_blocks) == (6540, "Add1", 8, 0)
    assert dict(kernel.counters) == {"novelty(gb/s)": 1.5}
    assert (kernel.start_ns, kernel.step, kernel.type, kernel.hf32) == (None, None, None, None)


@pytest.mark.parametrize("nothing", ["", "N/A", "-", "NA", " N/A\t"])
def test_kernels__cell_without_a_value__absent_not_zero(nothing: str, tmp_path: Path) -> None:
    (kernel,) = kernels(
        tmp_path, f"Name,Duration(us),Wait Time(us),Task ID,aic_mac_ratio\nA,1,{nothing},{nothing},{nothing}\n"
    )

    assert (kernel.wait_ns, kernel.launch.task, dict(kernel.counters)) == (None, None, {})


def test_kernels__trailing_tab_and_three_decimals__exact_nanoseconds(tmp_path: Path) -> None:
    (kernel,) = kernels(tmp_path, f"{HEADER_2025}\n,4294967295,1,2,A,A,N/A,AI_CORE,1736405443881410.321\t,0.0005\n")

    assert (kernel.start_ns, kernel.duration_ns) == (1736405443881410321, 0)
    # Eager, not of a graph; and a warm-up step's kernel has no step.
    assert (kernel.launch.model_id, kernel.step) == (None, None)


def test_kernels__quoted_shapes_and_words_of_two_generations__one_wording(tmp_path: Path) -> None:
    text = (
        "Name,Duration(us),Input Shapes,Input Data Types,Input Formats,Output Shapes\n"
        'A,1,"""64,3;;8""",DT_BF16;FLOAT;INT64,FORMAT_ND;NC1HWC0:1;NULL,""""""\nB,1,N/A,N/A,N/A,\n'
    )
    first, second = kernels(tmp_path, text)

    assert first.inputs.shapes == ((64, 3), (), (8,))
    assert (first.inputs.dtypes, first.inputs.formats) == (("BF16", "FLOAT", "INT64"), ("ND", "NC1HWC0", "NULL"))
    # Quotes around nothing are one scalar, nothing at all is no tensor.
    assert first.outputs.shapes == ((),)
    assert (second.inputs.shapes, second.inputs.dtypes, second.outputs.shapes) == ((), (), ())


@pytest.mark.parametrize("cell", ["N/A", "NULL", '"NULL"', ""])
def test_shapes_of__operator_without_tensors__none(cell: str) -> None:
    assert shapes_of(cell) is None


def test_kernels__row_cut_short__read_as_far_as_it_goes(tmp_path: Path) -> None:
    (kernel,) = kernels(tmp_path, "Name,Duration(us),Type,Stream ID\nA,1,Add\n")

    assert (kernel.type, kernel.launch.stream) == ("Add", None)


def test_kernels__row_lacks_a_cell_in_the_middle__left_out_and_said(tmp_path: Path) -> None:
    found = kernels(tmp_path, "Name,Duration(us),Stream ID,HF32 Eligible\nA,1,2,NO\nB,1,NO\n")

    assert [kernel.name for kernel in found] == ["A"]
    assert (
        text_of(trace.read(tmp_path).absent["kernels, some"]) == "1 rows of kernel_details lack cells or have too many"
    )


def test_kernels__cells_shifted_into_the_shapes__refused_though_another_column_has_their_text(tmp_path: Path) -> None:
    # A cell with a quote is left to the csv module.
    table = 'Name,Type,Duration(us),Input Shapes\n"A",Add,1,"""2,3"""\nB,Add,1,Add\n'

    with pytest.raises(DocumentError, match="line 3, column 'input shapes': 'Add' is not a list of shapes"):
        kernels(tmp_path, table)


def test_read__folder_without_profiler_info__rank_of_its_name(tmp_path: Path) -> None:
    """Modelled on msinsight's test/data/pytorch: rank0_ascend_pt and rank1_ascend_pt."""
    for rank in range(2):
        written(
            tmp_path / f"rank{rank}_ascend_pt/ASCEND_PROFILER_OUTPUT", "kernel_details.csv", "Name,Duration(us)\nA,1\n"
        )

    assert [timeline.rank for timeline in trace.read(tmp_path).timelines] == [0, 1]


def test_top__table_cut_off_within_a_line__said(tmp_path: Path) -> None:
    path = written(tmp_path, "op_summary_1.csv", "Op Name,Task Duration(us),Task Start Time(us)\nA,1.5,10.5\nB,2.5,20")

    (note,) = trace_top(path, Choice(), by="type", host=False, longer=None).notes

    assert (
        text_of(note) == "op_summary_1.csv is cut off in its last line; what followed is unknown, so totals are too low"
    )


def test_top__line_break_among_the_titles__said(tmp_path: Path) -> None:
    """Modelled on msprof-910B-20cores-2608 with a byte of the titles overwritten."""
    titles = "Op Name,Task Duration(us),Task Start Time(us),OP Ty\re"
    path = written(tmp_path, "op_summary_1.csv", titles + "\nA,1.5,10.5,Add\nB,1.5,20.5,Add\n")

    (note,) = trace_top(path, Choice(), by="type", host=False, longer=None).notes

    assert text_of(note) == "1 rows of op_summary lack cells or have too many"


def test_kernels__start_rounded_by_a_spreadsheet__no_start_and_no_event(tmp_path: Path) -> None:
    (kernel,) = kernels(tmp_path, "Name,Duration(us),Start Time(us)\nA,1,1.69512E+15\n")

    assert kernel.start_ns is None
    assert len(only(tmp_path).events) == 0


def test_kernels__two_devices_in_one_file__two_timelines(tmp_path: Path) -> None:
    text = "Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Stream ID\n"
    text += "4,A,Add,AI_CORE,10,1,2\n5,hcom_allReduce__586_0_1,hcom_allReduce_,COMMUNICATION,20,2,N/A\n"
    written(tmp_path, f"{OUTPUT}/kernel_details.csv", text)
    first, second = trace.read(tmp_path).timelines

    assert [(t.label, kinds(t.events), groups(t.events)) for t in (first, second)] == [
        ("device 4", {"compute": 1}, {"Add": 1}),
        ("device 5", {"comm": 1}, {"hcom_allReduce_": 1}),
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("Name,Duration(us)\nA,x\n", "line 2, column 'duration(us)': 'x' is not a number"),
        ("Name,Duration(us)\nA,-1\n", "is negative"),
        ("Name,Duration(us)\nA,1e99\n", "is not a number of microseconds"),
        ("Name,Duration(us),Task ID\nA,1,0.5\n", "is not a whole number"),
        ("Name,Duration(us),Input Shapes\nA,1,x\n", "is not a list of shapes"),
        ("Name,Length\nA,1\n", "this is not a table of kernels"),
        ("Name;Duration(us)\nA;1,5\n", "line 1: its columns are separated by ';', not by commas"),
        ("Name\tDuration(us)\nA\t1.5\n", r"line 1: its columns are separated by '\t', not by commas"),
        ('"Name";"Duration(us)"\nA;1,5\n', "line 1: its columns are separated by ';', not by commas"),
        ('Name,Duration(us)\n"' + "x" * 200_000, "is not a CSV table"),
    ],
)
def test_kernels__damaged_table__says_what_where_and_what_to_do(text: str, what: str, tmp_path: Path) -> None:
    message = refused(tmp_path, text)

    assert what in message
    assert "kernel_details.csv" in message


def test_kernels__empty_table__no_kernels(tmp_path: Path) -> None:
    written(tmp_path, f"{OUTPUT}/kernel_details.csv", "")

    assert only(tmp_path).kernels is None


def test_steps__without_a_number_and_device_minus_one__kept(tmp_path: Path) -> None:
    # As torch_npu 2.13 writes it where it knows no rank, and mstt-advisor/cluster_analysis_output where no step was marked.
    text = "Device_id,Step,Computing,Communication(Not Overlapped),Communication,Free\n-1,,8873.756000000001,1,1,0.5\n"
    written(tmp_path, f"{OUTPUT}/step_trace_time.csv", text)
    (step,) = only(tmp_path).steps

    assert (step.number, step.computing_ns, step.free_ns) == (None, 8873756, 500)


def test_memory__times_rounded_by_a_spreadsheet__peaks_all_the_same(tmp_path: Path) -> None:
    text = "Component,Timestamp(us),Total Allocated(MB),Total Reserved(MB),Device Type\n"
    text += "PTA,1.69512E+15,1.5,2.0,NPU:3\nPTA,1.69512E+15,1.0,4.0,NPU:3\nAPP,1.69512E+15,,8.0,NPU:3\n"
    written(tmp_path, f"{OUTPUT}/memory_record.csv", text)
    timeline = only(tmp_path)

    assert timeline.device == 3
    assert timeline.memory.peaks == {"PTA.allocated": 1.5 * 2**20, "PTA.reserved": 4 * 2**20, "APP.reserved": 8 * 2**20}


def test_cpu_nodes__added_up_by_name(tmp_path: Path) -> None:
    text = (
        "Device_id,Timestamp(us),Node,Compute_time(us),Memcpy_time(us),Task_time(us),Dispatch_time(us),Total_time(us)\n"
    )
    text += "0,1.0\t,Unique,1,1,1,1,3.5\n0,2.0\t,Unique,1,1,1,1,2.5\n"
    written(tmp_path, f"{OUTPUT}/data_preprocess.csv", text)
    written(tmp_path, f"{OUTPUT}/step_trace_time.csv", "Step,Computing\n1,2\n")
    (total,) = only(tmp_path).totals.calls

    assert total == NamedTotal("Unique", 2, 6000, "aicpu")


def test_folder__repeats_and_ranks__by_rank_then_by_time(tmp_path: Path) -> None:
    for folder, rank, computing in (
        ("b_20250109150000200", 1, 3),
        ("c_20250109150000100", '"0"', 2),
        ("a_20250109150000300", 0, 4),
    ):
        written(
            tmp_path,
            f"{folder}_ascend_pt/ASCEND_PROFILER_OUTPUT/step_trace_time.csv",
            f"Step,Computing\n1,{computing}\n",
        )
        written(tmp_path, f"{folder}_ascend_pt/profiler_info.json", f'{{"rank_id": {rank}}}')

    found = trace.read(tmp_path).timelines

    assert [(timeline.rank, timeline.steps[0].computing_ns) for timeline in found] == [(0, 2000), (0, 4000), (1, 3000)]


def test_folder__recorded_and_not_analysed__says_how_to_analyse(tmp_path: Path) -> None:
    (tmp_path / "x_ascend_pt" / "FRAMEWORK").mkdir(parents=True)

    with pytest.raises(DocumentError, match=r"never analysed; run torch_npu\.profiler\.profiler\.analyse"):
        trace.read(tmp_path / "x_ascend_pt")


def test_folder__damaged_json__names_the_file(tmp_path: Path) -> None:
    assert "communication.json: is damaged" in refused(tmp_path, '{"step1": 3}', "communication.json")


def zipped(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as written_zip:
        for name, text in members:
            written_zip.writestr(name, text)
    return path


def test_archive__zipped_folder__read_and_nothing_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive.tempfile, "tempdir", str(tmp_path / "scratch"))
    (tmp_path / "scratch").mkdir()
    path = zipped(tmp_path / "trace.zip", [(f"{OUTPUT}/kernel_details.csv", "Name,Duration(us)\nA,1\n")])

    recording = trace.read(path)

    assert (recording.path, len(recording.timelines[0].kernels)) == (path, 1)
    assert list((tmp_path / "scratch").iterdir()) == []


def test_archive__zipped_on_windows__read(tmp_path: Path) -> None:
    """Compress-Archive of PowerShell 5 separates the parts of names by backslashes, and writes folders like files."""
    members = [
        (f"job_ascend_pt\\{OUTPUT}\\", ""),
        (f"job_ascend_pt\\{OUTPUT}\\kernel_details.csv", "Name,Duration(us)\nA,1\n"),
    ]
    path = zipped(tmp_path / "trace.zip", members)

    assert len(trace.read(path).timelines[0].kernels) == 1


def test_archive__counters_asked_for_afterwards__still_there(tmp_path: Path) -> None:
    text = "Name,Duration(us),aic_mac_ratio,aiv_vec_ratio\nA,1,0.5,N/A\nB,2,0.25,1\n"
    path = zipped(tmp_path / "trace.zip", [(f"{OUTPUT}/kernel_details.csv", text)])
    kernels = only(path).kernels

    assert kernels.counters.columns("aic_mac_ratio")["aic_mac_ratio"].tolist() == [0.5, 0.25]
    assert [dict(kernel.counters) for kernel in kernels[1:]] == [{"aic_mac_ratio": 0.25, "aiv_vec_ratio": 1.0}]


def link(name):
    member = zipfile.ZipInfo(name)
    member.external_attr = (stat.S_IFLNK | 0o777) << 16
    return member


@pytest.mark.parametrize(
    "name",
    [
        "../kernel_details.csv",
        "..\\kernel_details.csv",
        "/etc/kernel_details.csv",
        "\\etc\\kernel_details.csv",
        "a/../../b",
        link("a"),
        "/".join("abcdefghijklmn"),
    ],
)
def test_archive__name_that_leads_out__refused(name: str | zipfile.ZipInfo, tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"trace\.zip: holds .* leads out of the folder"):
        trace.read(zipped(tmp_path / "trace.zip", [(name, "x")]))


def test_archive__bomb__refused_before_it_fills_the_disk(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="unpacks to more than"):
        trace.read(zipped(tmp_path / "trace.zip", [("trace_view.json", b" " * (40 << 20))]))


def test_archive__too_many_files__refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MAX_MEMBERS", 3)

    with pytest.raises(DocumentError, match="more than 3 files"):
        trace.read(zipped(tmp_path / "trace.zip", [(str(number), "") for number in range(4)]))


def test_archive__damaged_table_inside__error_names_the_zip(tmp_path: Path) -> None:
    path = zipped(tmp_path / "trace.zip", [(f"{OUTPUT}/kernel_details.csv", "Name,Duration(us)\nA,x\n")])

    with pytest.raises(DocumentError, match=r"trace\.zip: host_1.*kernel_details\.csv: line 2"):
        trace.read(path)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"x" * 100])
def test_archive__no_profile_in_it__said(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "trace.zip").write_bytes(content)

    with pytest.raises(DocumentError, match=r"trace\.zip(: (not a readable zip|holds no output)| is an empty file)"):
        trace.read(tmp_path / "trace.zip")


def database(path, *statements):
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()
    return path


STRINGS = "CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)"
TASKS = "CREATE TABLE TASK (startNs INTEGER, endNs, deviceId INTEGER, globalTaskId INTEGER, taskType INTEGER, streamId)"


def test_database__schema_1_2__block_num_and_device_of_a_collective(tmp_path: Path) -> None:
    # Columns of Huawei's description of CANN 9.1.0: blockNum, COMMUNICATION_OP with deviceId; two devices of one process.
    path = database(
        tmp_path / "ascend_pytorch_profiler.db",
        STRINGS,
        "INSERT INTO STRING_IDS VALUES (1,'Add1'),(2,'Add'),(3,'KERNEL_AIVEC'),(4,'hcom_send__822_0_1'),(5,'\"8;\"')",
        TASKS,
        "INSERT INTO TASK VALUES (100,150,0,7,3,2),(200,260,1,8,3,2)",
        "CREATE TABLE COMPUTE_TASK_INFO (name, globalTaskId INTEGER, blockNum INTEGER, opType INTEGER, inputShapes)",
        "INSERT INTO COMPUTE_TASK_INFO VALUES (1,7,40,2,5),(1,8,20,2,5)",
        "CREATE TABLE COMMUNICATION_OP (opName, startNs INTEGER, endNs INTEGER, connectionId, deviceId INTEGER)",
        "INSERT INTO COMMUNICATION_OP VALUES (4,300,310,9,1)",
    )

    first, second = trace.read(path).timelines

    assert [(k.name, k.blocks, k.inputs.shapes) for k in first.kernels] == [("Add1", 40, ((8,), ()))]
    assert [kernel.name for kernel in second.kernels] == ["Add1", "hcom_send__822_0_1"]
    assert (second.device, kinds(second.events)) == (1, {"compute": 1, "comm": 1})


def test_database__time_as_text__as_pytorch_api_has_it(tmp_path: Path) -> None:
    path = database(
        tmp_path / "a.db",
        STRINGS,
        "INSERT INTO STRING_IDS VALUES (1,'aten::add')",
        "CREATE TABLE PYTORCH_API (startNs TEXT, endNs TEXT, globalTid INTEGER, name INTEGER, type INTEGER)",
        "INSERT INTO PYTORCH_API VALUES ('1736410576395167660','1736410576395182660',13471134862269421,1,50001)",
    )
    events = only(path).events

    assert (events.start.tolist(), events.duration.tolist()) == ([1736410576395167660], [15000])
    assert (kinds(events), events.tracks) == ({"host_op": 1}, (("Python", "Thread 3136493"),))


@pytest.mark.parametrize(
    ("statements", "what"),
    [
        ([], "has no tables STRING_IDS and TASK"),
        ([STRINGS, TASKS, "INSERT INTO TASK VALUES ('x',1,0,0,0,0)"], "found where a whole number is expected"),
        ([STRINGS, TASKS, "INSERT INTO TASK VALUES (NULL,1,0,0,0,0)"], "an event without a start"),
        ([STRINGS, TASKS, "INSERT INTO TASK VALUES (9223372036854775807,1,0,0,0,0)"], "found where a whole number"),
        ([STRINGS, "CREATE VIEW TASK AS SELECT 1 AS startNs"], "has no tables"),
    ],
)
def test_database__foreign_or_hostile__refused(statements: list[str], what: str, tmp_path: Path) -> None:
    path = database(tmp_path / "a.db", "CREATE TABLE other (a)", *statements)

    with pytest.raises(DocumentError, match=what):
        trace.read(path)


def test_database__computed_column_of_a_gigabyte__not_read(tmp_path: Path) -> None:
    # Generated columns came with SQLite 3.31.
    path = database(
        tmp_path / "a.db",
        "CREATE TABLE STRING_IDS (id INTEGER, value TEXT GENERATED ALWAYS AS (zeroblob(1000000000)))",
        "INSERT INTO STRING_IDS (id) VALUES (1)",
        TASKS,
        "INSERT INTO TASK VALUES (1,2,0,0,1,0)",
    )

    assert len(only(path).events) == 1


def test_readers__imported__torch_is_not() -> None:
    code = (
        "import sys; from perfgate.trace.readers.reader import all_readers; "
        "all_readers(); sys.exit('torch' in sys.modules or 'torch_npu' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_types__number_with_a_huge_exponent__refused_before_it_becomes_digits(tmp_path: Path) -> None:
    head = "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Ratio(%)\n"
    written(tmp_path, f"{OUTPUT}/op_statistic.csv", head + "0,A,B,1,1e1000005,3,4\n")

    with pytest.raises(DocumentError, match="'1e1000005' is not a number"):
        trace.read(tmp_path)


@pytest.mark.recordings
def test_read__table_of_kernels_alone_whatever_its_name__by_its_header(tmp_path: Path) -> None:
    folder = unpacked(tmp_path / "job", "msinsight-910B-alexnet-2501", "text", "level1")
    table = next(folder.rglob("kernel_details.csv"))
    alone = tmp_path / "attached to an issue.csv"
    alone.write_bytes(b"\xef\xbb\xbf" + table.read_bytes())
    (timeline,) = trace.read(alone).timelines
    (expected, *_) = trace.read(table.parent).timelines
    assert timeline.kernels is not None
    assert expected.kernels is not None
    assert len(timeline.kernels) == len(expected.kernels) > 0


@pytest.mark.recordings
@pytest.mark.parametrize("ending", ["tar", "tar.gz", "tgz"])
def test_read__tar_of_a_recording__as_the_folder(tmp_path: Path, ending: str) -> None:
    folder = unpacked(tmp_path / "job", "msinsight-910B-alexnet-2501", "text", "level1")
    packed = tmp_path / f"job.{ending}"
    with tarfile.open(packed, "w" if ending == "tar" else "w:gz") as archive:
        archive.add(folder, "job")
    read = trace.read(packed)
    assert [one.label for one in read.timelines] == [one.label for one in trace.read(folder).timelines]


@pytest.mark.parametrize("name", ["../out.csv", "/etc/out.csv", "link"])
def test_read__tar_that_leads_out_of_its_folder__refused(tmp_path: Path, name: str) -> None:
    packed = tmp_path / "hostile.tar"
    with tarfile.open(packed, "w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = (tarfile.SYMTYPE, "/etc") if name == "link" else (tarfile.REGTYPE, "")
        archive.addfile(info, io.BytesIO())
    with pytest.raises(DocumentError, match="leads out of the folder"):
        trace.read(packed)


def test_read__tar_that_is_cut_off__says_so(tmp_path: Path) -> None:
    packed = tmp_path / "cut.tar.gz"
    packed.write_bytes(gzip.compress(b"no tar at all" * 100)[:40])
    with pytest.raises(DocumentError, match="not a readable tar file"):
        trace.read(packed)

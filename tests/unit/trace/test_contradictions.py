"""Tables that contradict each other or the timeline: said, and nothing of them is counted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate import trace
from perfgate.document.decision import Policy
from perfgate.document.history import History
from perfgate.document.trace import GapDocument, StepDocument, TopDocument
from perfgate.errors import DocumentError
from perfgate.flows.run.from_profile import run_from_profile
from perfgate.flows.trace.trace import Choice, trace_gaps, trace_steps, trace_top
from perfgate.judging.gate.decide import decide
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.trace.readers.contradictions import contradictions
from tests.wording import text_of, worded

from .ascend import ALEXNET, GPT, QWEN, sample, written

OUTPUT = "ASCEND_PROFILER_OUTPUT"


@pytest.mark.recordings
@pytest.mark.parametrize(
    "name",
    [
        f"{ALEXNET}/text/level0/rank0_ascend_pt",
        f"{ALEXNET}/text/level1",
        f"{ALEXNET}/db/level1/rank0_ascend_pt",
        QWEN,
        "cuda-hta/nccl_data.json.gz",
        "msprof-910B-20cores-2608/PROF_Memory",
        "mstt-advisor/timeline_advice/trace_view.json.gz",
    ],
)
def test_contradictions__recorded_sample_as_it_was_written__none(name: str, tmp_path: Path) -> None:
    for timeline in trace.read(sample(name, tmp_path)).timelines:
        assert contradictions(timeline) == []


@pytest.mark.recordings
def test_contradictions__sample_that_somebody_shortened__said(tmp_path: Path) -> None:
    (timeline,) = trace.read(sample(f"{GPT}/test_rank_0_ascend_pt", tmp_path)).timelines

    assert worded(contradictions(timeline)) == [
        "the table of steps has 75.175 ms of computing in step 2, its kernels 27.131 ms"
    ]


def shortened(tmp_path: Path, *without: str) -> Path:
    """Return a recording whose table of kernels ends after 100 of its 191 rows, in whole lines."""
    folder = sample(f"{ALEXNET}/text/level1/rank0_ascend_pt", tmp_path / "-".join(("cut", *without)))
    table = folder / OUTPUT / "kernel_details.csv"
    table.write_text("".join(table.read_text().splitlines(keepends=True)[:101]))
    for name in without:
        (removed,) = (folder / OUTPUT).glob(f"{name}*")
        removed.unlink()
    return folder


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("without", "said"),
    [
        (("trace_view.json", "step_trace_time.csv"), "op_statistic counts 187 kernels, the table of kernels has 99"),
        (
            ("trace_view.json", "op_statistic.csv"),
            "the table of steps has 8.874 ms of computing in step 50, its kernels",
        ),
        (("op_statistic.csv", "step_trace_time.csv"), "the timeline shows 187 kernels, the table of kernels has 99"),
    ],
)
def test_from_profile__table_of_kernels_cut_off_in_whole_lines__said_and_nothing_is_counted(
    tmp_path: Path, without: tuple[str, ...], said: str
) -> None:
    recording = shortened(tmp_path, *without)

    run = run_from_profile(tmp_path, recording, tmp_path / "out", lambda text: None, keep_files=False)

    assert (run.checklist.counters, run.checklist.kernel_times, run.checklist.operators) == ([], [], [])
    times = {step.number: step for step in run.checklist.steps if step.number in (1, 2, 3, 4, 16)}
    assert {value.value for step in times.values() for value in step.values} == {None}
    assert {times[4].status, times[16].status} == {"invalid"}
    assert not any(step.findings for step in times.values())
    assert all((text_of(step.reason)).startswith(said) for step in times.values() if step.status == "invalid")
    (warning,) = (text for text in worded(run.warnings) if text.endswith(": nothing was counted; record it again"))
    assert warning.startswith(said)


@pytest.fixture
def contradictory(tmp_path: Path) -> Path:
    """A recording whose table of kernels lacks one of the three that op_statistic.csv counts."""
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/kernel_details.csv", KERNELS)
    written(folder, f"{OUTPUT}/op_statistic.csv", TYPES)
    return folder


KERNELS = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us)\n"
    "1,mm1,MatMul,AI_CORE,10.000,2\n1,add1,Add,AI_VECTOR_CORE,20.000,2\n"
)
TYPES = "Device_id,OP Type,Core Type,Count,Total Time(us)\n0,MatMul,AI_CORE,2,4\n0,Add,AI_VECTOR_CORE,1,2\n"
SAID = "op_statistic counts 3 kernels, the table of kernels has 2 (MatMul 2 and 1)"


@pytest.mark.parametrize(
    "ask",
    [
        lambda path: trace_top(path, Choice(), by="type", host=False, longer=None),
        lambda path: trace_gaps(path, Choice(), exposed=False, shortest=0.0),
        lambda path: trace_steps(path, Choice(), step_by=None),
    ],
)
def test_trace__files_that_contradict_each_other__noted(
    ask: Callable[[Path], TopDocument | GapDocument | StepDocument], contradictory: Path
) -> None:
    (note,) = worded(ask(contradictory).notes)

    assert note.startswith(SAID)


def test_trace__several_ranks_of_which_one_contradicts_itself__named(contradictory: Path) -> None:
    (contradictory / "profiler_info_0.json").write_text('{"rank_id": 0}')
    other = contradictory.parent / "host_2_20250109150000123_ascend_pt"
    written(other, f"{OUTPUT}/kernel_details.csv", KERNELS)
    (other / "profiler_info_1.json").write_text('{"rank_id": 1}')
    (note,) = worded(trace_top(contradictory.parent, Choice(), by="type", host=False, longer=None).notes)

    assert note.startswith(f"rank 0, device 0: {SAID}")


def test_from_profile__totals_by_type_alone__says_where_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/op_statistic.csv", TYPES)

    with pytest.raises(DocumentError, match="no step, kernel or operator but totals by type, which perfgate trace top"):
        run_from_profile(tmp_path, folder, tmp_path / "out", lambda text: None, keep_files=False)
    (timeline,) = trace_top(folder, Choice(), by="type", host=False, longer=None).timelines
    assert [(row.name, row.count) for row in timeline.rows] == [("MatMul", 2), ("Add", 1)]


def test_gate__recording_that_contradicts_itself__is_what_the_title_says(contradictory: Path, tmp_path: Path) -> None:
    whole = tmp_path / "base" / "host_1_20250109150000123_ascend_pt"
    written(whole, f"{OUTPUT}/kernel_details.csv", KERNELS)
    base, head = (
        run_from_profile(tmp_path, folder, tmp_path / f"out-{folder.parent.name}", lambda text: None, keep_files=False)
        for folder in (whole, contradictory)
    )
    comment = render_comment(
        decide(base, head, policy=Policy(), history=History()), CommentContext(marker="<!-- it -->")
    )
    title = next(line for line in comment.splitlines() if line.startswith("## "))
    assert "INCONCLUSIVE – head: op_statistic counts" in title.replace("`", "")
    assert "3 kernels, the table of kernels has 2" in title.replace("`", "")


def kernels_waiting(*rows: tuple[float, float, float]) -> str:
    """A table of kernels with their starts, durations and waits in microseconds."""
    lines = ["Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)"]
    for number, (start, duration, wait) in enumerate(rows):
        lines.append(f"1,mm{number},MatMul,AI_CORE,{start:.3f}\t,{duration},{wait}")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("rows", "count"),
    [
        ([(10, 5, 0), (20, 5, 5), (30, 5, 5), (40, 5, 5)], 0),
        ([(10, 5, 0), (20, 5, 5), (40, 5, 5)], 1),
        ([(20, 5, 5), (30, 5, 5), (40, 5, 5)], 1),
        ([(10, 5, 0), (20, 3.5, 5), (30, 5, 5), (40, 5, 5)], 1),
        # The first of three rows is missing.
        ([(20.5, 3.06, 4.649), (30.75, 5, 7.19)], 1),
        # Through a float, and the second row is shorter.
        ([(10.25, 5.601, 0), (20.5, 3.06, 4.649), (30.75, 5, 2.19)], 1),
        # The second row is missing, and the third did not wait for it.
        ([(10, 5, 0), (30, 5, 0), (40, 5, 5), (50, 5, 5)], 1),
        # Starts that went through a float, and were then rounded to a tenth of a microsecond (msprof-analyze's test.csv).
        ([(10, 5.86, 0), (68, 7.77, 52.14), (80, 4.35, 4.23), (107.8, 24.26, 23.4)], 0),
        # Rows overlap, and the profiler writes no negative wait.
        ([(10, 5, 0), (12, 5, 0), (20, 5, 3), (30, 5, 5)], 0),
    ],
)
def test_contradictions__waits_of_the_table_of_kernels__rows_missing_or_changed_show(
    rows: list[tuple[float, float, float]], count: int, tmp_path: Path
) -> None:
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/kernel_details.csv", kernels_waiting(*rows))

    notes = contradictions(trace.read(folder).timelines[0])

    assert [note.values["count"] for note in notes if note.code == "notes.waits-differ"] == [count][: count > 0]


def test_contradictions__waits_of_two_devices_in_one_table__count_from_the_rows_of_each(tmp_path: Path) -> None:
    """Modelled on msprof's op_summary_assembler.cpp, which sorts by device and start and subtracts row from row."""
    lines = ["Device_id,Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us)"]
    for device, begin, wait in ((0, 10.0, 0.0), (1, 70.0, 25.0)):
        for number in range(4):
            lines.append(f"{device},mm,MatMul,AI_CORE,{begin + 10 * number:.3f}\t,5,{5.0 if number else wait}")
    table = tmp_path / "op_summary_20250109150000.csv"
    table.write_text("\n".join(lines) + "\n")

    recording = trace.read(table)

    assert [timeline.device for timeline in recording.timelines] == [0, 1]
    assert [contradictions(timeline) for timeline in recording.timelines] == [[], []]


def test_contradictions__table_without_streams__overlapping_kernels_and_collectives_contradict_nothing(
    tmp_path: Path,
) -> None:
    """Modelled on kernel_details.csv of Level0 (msinsight-910B-alexnet-2501), which has no column of streams."""
    lines = ["Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim"]
    lines.append("1,hcom_allReduce__868_0_1,N/A,HCCL,100.000\t,500,0,0")
    for number in range(4):
        lines.append(f"1,aclnnMm_MatMulCommon_MatMulV2,N/A,N/A,{200 + 50 * number}.000\t,40,0,0")
    table = tmp_path / "kernel_details.csv"
    table.write_text("\n".join(lines) + "\n")

    (timeline,) = trace.read(table).timelines

    assert contradictions(timeline) == []


def test_contradictions__another_total_time_of_a_type__named(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/kernel_details.csv", KERNELS)
    written(folder, f"{OUTPUT}/op_statistic.csv", TYPES.replace("MatMul,AI_CORE,2,4", "MatMul,AI_CORE,1,12"))

    (note,) = worded(contradictions(trace.read(folder).timelines[0]))

    assert note == "op_statistic has 0.014 ms of kernels, the table of kernels 0.004 ms (of MatMul)"


def test_read__two_rows_without_the_line_end_between_them__counted(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/kernel_details.csv", KERNELS.replace("10.000,2\n", "10.000,2,"))

    assert text_of(trace.read(folder).absent["kernels, some"]) == "1 rows of kernel_details lack cells or have too many"


def test_read__last_row_lacks_cells__said(tmp_path: Path) -> None:
    lines = ["Name,Type,Start Time(us),Duration(us),Wait Time(us),aicore_time(us),aic_total_cycles"]
    lines += ["mm,MatMul,10.5\t,5,0,4,7", "mm,MatMul,20.5\t,5,5,4"]
    table = tmp_path / "kernel_details.csv"
    table.write_text("\n".join(["Accelerator Core," + lines[0], *(f"AI_CORE,{line}" for line in lines[1:])]) + "\n")

    assert [note.code for note in trace.salvage(table).incomplete] == ["notes.table-cut-off"]


def test_read__number_among_the_names_of_columns__refused(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_20250109150000123_ascend_pt"
    written(folder, f"{OUTPUT}/kernel_details.csv", KERNELS.replace("Duration(us)\n", "Duration(us),"))

    with pytest.raises(DocumentError, match=r"the first line is damaged: '1' stands among the names of columns"):
        trace.read(folder)

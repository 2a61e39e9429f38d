"""Tables that contradict each other or the timeline: said, and nothing of them is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate import trace
from perfgate.jobs.run.from_profile import ProfileOptions, run_from_profile
from perfgate.trace.contradictions import contradictions
from tests.wording import text_of, worded

from .ascend import ALEXNET, GPT, QWEN, sample

OUTPUT = "ASCEND_PROFILER_OUTPUT"


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

    run = run_from_profile(tmp_path, ProfileOptions(profile=recording, out=tmp_path / "out"), lambda text: None)

    assert (run.counters, run.kernel_times, run.operators) == ([], [], [])
    times = {step.number: step for step in run.steps if step.number in (1, 2, 3, 4, 16)}
    assert {value.value for step in times.values() for value in step.values} == {None}
    assert {times[4].status, times[16].status} == {"invalid"}
    assert not any(step.findings for step in times.values())
    assert all((text_of(step.reason)).startswith(said) for step in times.values() if step.status == "invalid")
    (warning,) = (text for text in worded(run.warnings) if text.endswith(": nothing is counted; record it again"))
    assert warning.startswith(said)

"""`perfgate trace` as people call it: tables, JSON, choices, refusals."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from perfgate.document.files import write_document
from perfgate.document.run import Artifact
from tests.command import run_perfgate
from tests.fakes.documents import make_run

DATA = Path(__file__).parents[2] / "data" / "trace"
DEVICE = str(DATA / "device.json")


def trace(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_perfgate("trace", *arguments, environment={**os.environ, "COLUMNS": "120", **environment})


def answer(*arguments: str) -> Any:
    done = trace(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def ranks(folder: Path, *computing_of: int) -> Path:
    """Write ranks of one job whose steps last as long; without other times rank 1 computes for more of it than rank 0."""
    for rank, computing in enumerate(computing_of or (40, 70)):
        span = {"ph": "X", "pid": 0, "tid": 7}
        events = [
            {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#5", "pid": 50, "tid": 50, "ts": 100, "dur": 100},
            {**span, "cat": "kernel", "name": "k", "ts": 100, "dur": computing, "args": {"device": 0}},
            {**span, "cat": "kernel", "name": "ncclAllReduce", "ts": 100 + computing, "dur": 100 - computing,
             "args": {"device": 0}},
        ]  # fmt: skip
        document = {"schemaVersion": 1, "distributedInfo": {"rank": rank}, "traceEvents": events}
        (folder / f"job_{rank}.pt.trace.json").write_text(json.dumps(document))
    return folder


def test_trace__path_alone__first_screen_of_the_recording() -> None:
    done = trace(DEVICE)
    assert (done.returncode, done.stdout) == (0, trace("show", DEVICE).stdout)
    assert "the device is busy" in done.stdout
    (timeline,) = answer(DEVICE)["timelines"]
    assert set(timeline) >= {"gaps", "top", "parts", "bound", "communication", "exposed", "steps"}


def test_trace__kernels_that_the_settings_call_communication__are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "perfgate.toml").write_text('[trace]\ncommunication = ["gemm"]\n')
    (timeline,) = answer(DEVICE)["timelines"]
    assert timeline["communication"] > 0
    refused = trace("--comm", "(", DEVICE)
    assert (refused.returncode, "not a regular expression" in refused.stderr) == (2, True)


def test_trace__neither_command_nor_path__says_which_command_may_be_meant() -> None:
    done = trace("tpo", DEVICE)
    assert (done.returncode, "Did you mean 'top'" in done.stderr) == (2, True)


def test_top__json__documented_fields() -> None:
    found = answer("top", DEVICE)

    assert (found["format"], found["by"]) == ("kineto", "type")
    (timeline,) = found["timelines"]
    assert (timeline["rank"], timeline["device"], timeline["side"], timeline["rows_in_all"]) == (None, 0, "device", 4)
    assert timeline["base"] == pytest.approx(90e-6)
    assert timeline["rows"][0] == {"name": "volta_sgemm_128x64_nn", "kind": "compute", "count": 1, "total": 6e-05,
                                   "share": pytest.approx(60 / 90)}  # fmt: skip


def test_top__limit__says_how_many_more() -> None:
    done = trace("top", DEVICE, "--limit", "1")

    assert done.returncode == 0
    assert "volta_sgemm_128x64_nn" in done.stdout
    assert "… 3 more rows; --limit shows more" in done.stdout
    assert len(answer("top", DEVICE, "--limit", "1")["timelines"][0]["rows"]) == 1


def test_top__host__operators_by_self_time() -> None:
    (timeline,) = answer("top", DEVICE, "--host")["timelines"]

    assert (timeline["side"], [row["name"] for row in timeline["rows"]]) == ("host", ["aten::mm"])


def test_gaps__json__start_duration_and_cause() -> None:
    found = answer("gaps", DEVICE, "--exposed")

    (timeline,) = found["timelines"]
    assert timeline["origin_ns"] == 1695835573023500000
    assert timeline["window"] == pytest.approx(timeline["busy"])
    assert {"start", "duration", "cause"} == set(timeline["gaps"][0])
    assert [cause["cause"] for cause in timeline["causes"]] == ["communication"]


def test_top__longer__with_a_unit_and_what_is_no_time_is_said() -> None:
    (timeline,) = answer("top", DEVICE, "--longer", "1us")["timelines"]
    assert timeline["rows"]
    (none,) = answer("top", DEVICE, "--longer", "10s")["timelines"]
    assert (none["rows"], none["base"]) == ([], timeline["base"])
    assert "nothing ran for longer than 10 s at a time" in trace("top", DEVICE, "--longer", "10s").stdout
    wrong = trace("top", DEVICE, "--longer", "1 minute")
    assert (wrong.returncode, "write e.g. 1ms" in wrong.stderr) == (2, True)


def test_gaps__shortest__leaves_out() -> None:
    assert answer("gaps", DEVICE, "--exposed", "--shortest", "1")["timelines"][0]["gaps"] == []


def test_gaps__no_device__says_so() -> None:
    done = trace("gaps", str(DATA / "cpu.json"))

    assert (done.returncode, done.stdout.strip()[:38]) == (0, "nothing ran on a device during the rec")


def test_gaps__only_totals_of_kernels__not_said_that_nothing_ran(tmp_path: Path) -> None:
    table = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT" / "op_statistic.csv"
    table.parent.mkdir(parents=True)
    table.write_text(
        "Device_id,OP Type,Core Type,Count,Total Time(us),Min Time(us),Avg Time(us),Max Time(us),Ratio(%)\n"
        "0,MatMulV2,AI_CORE,8,921.0,100.0,115.1,130.0,100.0\n"
    )

    assert trace("top", str(tmp_path)).stdout.splitlines()[0].endswith("busy 921 µs")
    said = trace("gaps", str(tmp_path)).stdout
    assert "nothing ran" not in said
    assert "the recording has no device timeline" in said


def test_steps__two_ranks__the_one_the_others_wait_for(tmp_path: Path) -> None:
    found = answer("steps", str(ranks(tmp_path)))

    assert found["slowest_rank"] == {"rank": 1, "own": pytest.approx(70e-6), "behind": pytest.approx(30e-6)}
    assert [timeline["steps"][0]["number"] for timeline in found["timelines"]] == [5, 5]
    assert found["timelines"][0]["steps"][0]["exposed_communication"] == pytest.approx(60e-6)
    done = trace("steps", str(tmp_path))
    assert "rank 1 is the slowest: 70.0 µs a step on its own, 30.0 µs more than the fastest" in done.stdout


def test_steps__ranks_that_are_alike__none_named(tmp_path: Path) -> None:
    assert answer("steps", str(ranks(tmp_path, 70, 72, 71)))["slowest_rank"] is None
    assert "slowest" not in trace("steps", str(tmp_path)).stdout


def test_steps__one_rank_chosen__it_alone(tmp_path: Path) -> None:
    found = answer("steps", str(ranks(tmp_path)), "--rank", "1")

    assert ([timeline["rank"] for timeline in found["timelines"]], found["slowest_rank"]) == ([1], None)


def test_trace__no_such_rank__exit_2_and_what_there_is(tmp_path: Path) -> None:
    done = trace("top", str(ranks(tmp_path)), "--rank", "7")

    assert done.returncode == 2
    assert "it holds: rank 0, device 0; rank 1, device 0" in done.stderr


@pytest.mark.parametrize(
    ("name", "text", "match"),
    [
        ("absent.json", None, "does not exist; name a profiler's output folder or trace file"),
        ("notes.txt", "hello", "is not profiler output that perfgate can read; it reads: "),
        ("numbers.json", '{"a": 1}', "no list of trace events"),
        ("empty", "", "is an empty file"),
    ],
)
@pytest.mark.parametrize("command", ["top", "gaps", "steps"])
def test_trace__path_that_is_no_recording__exit_2(
    tmp_path: Path, command: str, name: str, text: Any, match: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)

    done = trace(command, str(tmp_path / name))

    assert (done.returncode, match in done.stderr, done.stdout) == (2, True, "")


def test_trace__run_folder_or_its_document__the_traces_it_kept(tmp_path: Path) -> None:
    for name in ("trace-a-long.json", "trace-a-short.json"):
        (tmp_path / name).write_bytes((DATA / "device.json").read_bytes())
    kept = [Artifact(name=name, kind="trace", path=name, bytes=1, sha256="0" * 64)
            for name in ("trace-a-long.json", "trace-a-short.json")]  # fmt: skip
    write_document(tmp_path / "run.json", make_run(artifacts=kept))

    for path in (tmp_path, tmp_path / "run.json"):
        timelines = answer("top", str(path))["timelines"]
        assert [Path(timeline["path"]).name for timeline in timelines] == ["trace-a-long.json", "trace-a-short.json"]
    (head := tmp_path / "check" / "head").mkdir(parents=True)
    (head / "run.json").write_bytes((tmp_path / "run.json").read_bytes())
    done = trace("top", str(tmp_path / "check"))
    assert (done.returncode, "holds the runs of two sides" in done.stderr) == (2, True)


def test_trace__run_that_kept_no_trace__exit_2_and_how_to_get_one(tmp_path: Path) -> None:
    write_document(tmp_path / "run.json", make_run())

    done = trace("top", str(tmp_path))

    assert (done.returncode, "perfgate run --steps 4" in done.stderr) == (2, True)


def test_trace__document_that_names_a_file_elsewhere__refused(tmp_path: Path) -> None:
    stolen = Artifact(name="x", kind="trace", path="../device.json", bytes=1, sha256="0" * 64)
    (tmp_path / "run").mkdir()
    write_document(tmp_path / "run" / "run.json", make_run(artifacts=[stolen]))

    done = trace("top", str(tmp_path / "run"))

    assert (done.returncode, "outside the run's folder" in done.stderr) == (2, True)


def test_trace__piped__no_colours() -> None:
    assert "\x1b" not in trace("top", DEVICE).stdout
    assert "\x1b[3" not in trace("top", DEVICE, NO_COLOR="1", FORCE_COLOR="1").stdout


def test_steps__serving_engine_without_profiler_steps__batches_by_phase(tmp_path: Path) -> None:
    rows = [
        {"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": 1000 * at, "dur": 500}
        for at, name in enumerate(("step[EXTEND bs=4 toks=900]", "step[DECODE bs=4]", "step[DECODE bs=3]"))
    ]
    file = tmp_path / "served.json"
    file.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows}))
    (timeline,) = answer("steps", str(file))["timelines"]
    assert [(row["phase"], row["requests"]) for row in timeline["steps"]] == [
        ("prefill", 4),
        ("decode", 4),
        ("decode", 3),
    ]
    assert [(one["phase"], one["count"]) for one in timeline["phases"]] == [("prefill", 1), ("decode", 2)]
    assert "decode × 3" in trace("steps", str(file)).stdout
    assert [row["phase"] for row in answer("steps", str(file), "--step-by", "(DECODE)")["timelines"][0]["steps"]] == [
        "DECODE"
    ] * 2
    refused = trace("steps", str(file), "--step-by", "(")
    assert (refused.returncode, "not a regular expression" in refused.stderr) == (2, True)

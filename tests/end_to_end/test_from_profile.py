"""`perfgate run --from-profile` and the gate on what it makes: the real command, on recordings made here and elsewhere."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.conftest import Perfgate
from tests.fakes.recordings import STEP, TO_NHWC, kineto_recording
from tests.fakes.wording import worded
from tests.golden.kept import compare
from tests.samples import unpacked

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
ALEXNET = "msinsight-910B-alexnet-2501/text/level1"


@pytest.fixture
def sample(tmp_path: Path) -> Callable[..., Path]:
    """Copy a recorded sample, its files unpacked as the profiler left them."""

    def copy(name: str, to: str) -> Path:
        return unpacked(tmp_path / to, name)

    return copy


def _document(folder: Path, name: str = "run.json") -> dict[str, Any]:
    return dict(json.loads((folder / name).read_text()))


def _counters(run: dict[str, Any]) -> dict[str, dict[str, int]]:
    return {counted["shape"]: counted["values"] for counted in run["checklist"]["counters"]}


def _same_as_golden(text: str, name: str) -> None:
    """Compare with a kept text; rich fills lines with blanks, which editors drop. PERFGATE_WRITE_GOLDEN=1 rewrites it."""
    found = "\n".join(line.rstrip() for line in text.splitlines()) + "\n"
    compare(found, GOLDEN / name)


def _change_conversions(folder: Path, change: Callable[[list[list[str]], int], list[list[str]]]) -> None:
    """Rewrite kernel_details.csv of a folder; ``change`` gets its rows and the column of the type.

    Rows that it repeats run after all others: two at the same time would be one event that is in the file twice. Each row waits
    for the row before it, as in a recording that had these rows.
    """
    path = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    with path.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    start, duration = header.index("Start Time(us)"), header.index("Duration(us)")
    end = max(Decimal(row[start]) + Decimal(row[duration]) for row in rows)
    changed = change(rows, header.index("Type"))
    for number in range(len(rows), len(changed)):
        later = list(changed[number])
        later[start] = str(end + 1)
        end += 1 + Decimal(later[duration])
        changed[number] = later
    wait = header.index("Wait Time(us)")
    free = min(Decimal(row[start]) for row in changed)
    for row in sorted(changed, key=lambda row: Decimal(row[start])):
        row[wait] = str(max(Decimal(row[start]) - free, Decimal(0)))
        free = Decimal(row[start]) + Decimal(row[duration])
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *changed])


def test_from_profile__folder_without_config_git_or_torch__a_run_document(perfgate: Perfgate, tmp_path: Path) -> None:
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "torch.py").write_text("raise SystemExit('torch was imported')")
    kineto_recording(tmp_path / "trace.json")

    done = perfgate(
        "run",
        "--from-profile",
        "trace.json",
        "--workload",
        "encoder",
        cwd=tmp_path,
        PYTHONPATH=str(tmp_path / "blocked"),
    )

    assert done.returncode == 0, done.stderr
    run = _document(tmp_path / "perfgate-out")
    assert [(step["number"], step["status"]) for step in run["checklist"]["steps"][:5]] == [
        (1, "ok"), (2, "attention"), (3, "ok"), (4, "ok"), (5, "not_applicable"),
    ]  # fmt: skip
    assert run["workloads"][0]["reference"] == "trace.json"
    assert len(run["workloads"][0]["sha256"]) == 64
    assert _counters(run)["rank 0"]["counters.kernels"] == 4
    assert run["artifacts"] == []
    assert run["testbed"]["comparable"]["device.name"] == "NVIDIA A100"
    _same_as_golden(done.stdout.replace(tmp_path.name, "project"), "terminal-recording.txt")


def test_from_profile__keep__the_recording_beside_the_document_and_in_the_decision(
    perfgate: Perfgate, tmp_path: Path
) -> None:
    recording = kineto_recording(tmp_path / "trace.json")

    for side in ("base", "head"):
        assert perfgate("run", "--from-profile", "trace.json", "--out", side, "--keep", cwd=tmp_path).returncode == 0
    done = perfgate("gate", "--base", "base", "--head", "head/run.json", "--out", "gate", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    (artifact,) = _document(tmp_path / "head")["artifacts"]
    assert artifact["path"] == "profile/trace.json"
    assert (tmp_path / "gate" / "head" / artifact["path"]).read_bytes() == recording.read_bytes()
    again = perfgate("gate", "gate", cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_gate__a_conversion_more_in_every_step__fail_that_names_it(perfgate: Perfgate, tmp_path: Path) -> None:
    kineto_recording(tmp_path / "base.json")
    kineto_recording(tmp_path / "head.json", steps=((*STEP, (TO_NHWC, 45)),) * 3)
    for side in ("base", "head"):
        perfgate("run", "--from-profile", f"{side}.json", "--out", side, cwd=tmp_path)

    done = perfgate("gate", "--base", "base", "--head", "head", "--out", "gate", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    _same_as_golden(done.stdout, "terminal-recordings-fail.txt")
    comment = (tmp_path / "gate" / "comment.md").read_text()
    assert "format conversions per call 2 → 3 (exact)" in comment
    assert f"1 more `{TO_NHWC}`" in comment
    assert "recorded, not compared" in comment
    assert _document(tmp_path / "gate", "decision.json")["measured"]["recorded"] is True


def test_gate__equal_recordings__pass_by_counts_and_times(perfgate: Perfgate, tmp_path: Path) -> None:
    kineto_recording(tmp_path / "a.json")
    perfgate("run", "--from-profile", "a.json", "--out", "a", cwd=tmp_path)

    done = perfgate("gate", "--base", "a", "--head", "a", "--out", "gate", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("PASS – 5 metrics unchanged\n")
    assert _document(tmp_path / "gate", "decision.json")["reasons"] == []


def test_gate__everything_three_times_slower__fail_that_names_the_operator(perfgate: Perfgate, tmp_path: Path) -> None:
    for side, times in (("base", 1), ("head", 3)):
        kineto_recording(
            tmp_path / f"{side}.json", steps=(tuple((name, times * length // 4) for name, length in STEP),) * 3
        )
    for side in ("base", "head"):
        perfgate("run", "--from-profile", f"{side}.json", "--out", side, cwd=tmp_path)

    done = perfgate("gate", "--base", "base", "--head", "head", "--out", "gate", cwd=tmp_path)

    assert done.returncode == 1, done.stderr
    _same_as_golden(done.stdout, "terminal-recordings-slower.txt")


@pytest.mark.recordings
def test_gate__matrix_units_of_alexnet_three_times_longer_in_one_operator__named_with_its_shape(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    sample(f"{ALEXNET}/rank0_ascend_pt", "before")
    path = sample(f"{ALEXNET}/rank0_ascend_pt", "after") / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    with path.open(newline="") as stream:
        header, *rows = csv.reader(stream)
    kind, mac, shapes = (header.index(name) for name in ("Type", "aic_mac_time(us)", "Input Shapes"))
    for row in rows:
        if row[kind] == "MatMulV2" and row[shapes].startswith('"32,4096;4096,4096'):
            row[mac] = str(3 * float(row[mac]))
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])
    for name in ("before", "after"):
        perfgate("run", "--from-profile", name, "--out", f"{name}-run", cwd=tmp_path)

    done = perfgate("gate", "--base", "before-run", "--head", "after-run", cwd=tmp_path)

    assert done.returncode == 1, done.stdout
    assert "FAIL – matrix unit time of an operator 200 % slower" in " ".join(done.stdout.split())
    assert "MatMulV2 [32,4096;4096,4096;4096]" in " ".join(done.stdout.split())


@pytest.mark.recordings
def test_from_profile__two_ranks_of_alexnet__both_in_one_document(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    sample(ALEXNET, "recording")

    done = perfgate("run", "--from-profile", "recording", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    run = _document(tmp_path / "perfgate-out")
    assert run["workloads"][0]["shapes"] == ["rank 0", "rank 1"]
    counted = {
        "counters.collectives": 4,
        "counters.device_copies": 24,
        "counters.format_conversions": 57,
        "counters.kernels": 187,
    }
    assert _counters(run) == {"rank 0": counted, "rank 1": counted}
    assert "rank 0 spends the most time in hcom_allReduce_" in " ".join(done.stdout.split())
    assert run["testbed"]["comparable"]["profiler.level"] == "Level1"


@pytest.mark.recordings
@pytest.mark.parametrize(
    ("change", "code", "first"),
    [
        (
            lambda rows, kind: [*rows, *[row for row in rows if row[kind] == "TransData"][:3]],
            1,
            "FAIL – format conversions per call of profile/rank 0 57 → 60 (exact): 3 more TransData",
        ),
        (
            lambda rows, kind: [row for row in rows if row[kind] != "TransData"],
            3,
            "INCONCLUSIVE – time of all kernels of profile/rank 0 undecided",
        ),
    ],
    ids=["more", "none"],
)
def test_gate__conversions_added_to_or_taken_from_alexnet__named(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path], change: Any, code: int, first: str
) -> None:
    # Without what adds up the same kernels: it would contradict their changed table.
    for folder in (sample(ALEXNET, "before"), sample(ALEXNET, "after")):
        for pattern in ("op_statistic.csv", "step_trace_time.csv", "trace_view.json*"):
            for file in (folder / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT").glob(pattern):
                file.unlink()
    _change_conversions(tmp_path / "after" / "rank0_ascend_pt", change)
    for name in ("before", "after"):
        perfgate("run", "--from-profile", name, "--out", f"{name}-run", cwd=tmp_path)

    done = perfgate("gate", "--base", "before-run", "--head", "after-run", cwd=tmp_path)

    assert done.returncode == code, done.stderr
    assert " ".join(done.stdout.split()).startswith(first)
    assert ("3 more TransData; in profile/rank 0, 57 → 60" in done.stdout) == (code == 1)


@pytest.mark.recordings
def test_from_profile__qwen3__what_each_rank_left_behind(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    sample("msinsight-910B-qwen3-cann8.3RC1-2511/level2", "recording")

    done = perfgate("run", "--from-profile", "recording", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    run = _document(tmp_path / "perfgate-out")
    assert _counters(run) == {
        "rank 0": {"counters.collectives": 15, "counters.format_conversions": 0, "counters.kernels": 2448},
        "rank 1": {"counters.collectives": 15},
    }
    comparable = run["testbed"]["comparable"]
    assert (comparable["software.cann"], comparable["software.torch_npu"]) == ("8.3.RC1", "2.7.1")
    assert comparable["profiler.world_size"] == "4"


@pytest.mark.recordings
def test_from_profile__level0_against_level1__says_what_needs_level1_and_is_not_compared(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    sample("msinsight-910B-alexnet-2501/text/level0/rank0_ascend_pt", "level0")
    sample(f"{ALEXNET}/rank0_ascend_pt", "level1")
    done = [
        perfgate("run", "--from-profile", name, "--out", f"{name}-run", cwd=tmp_path) for name in ("level0", "level1")
    ]
    assert "op_statistic.csv: torch_npu writes it from profiler level 1 on" in " ".join(done[0].stdout.split())

    judged = perfgate("gate", "--base", "level0-run", "--head", "level1-run", cwd=tmp_path)

    assert judged.returncode == 3
    assert "profiler.level Level0 → Level1" in " ".join(judged.stdout.split())
    assert "same profiler settings" in " ".join(judged.stdout.split())


RECORDER = """
import os
import torch
from torch.profiler import ProfilerActivity, profile, schedule

model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4)).eval()


def record(path, clones):
    with profile(
        activities=[ProfilerActivity.CPU],
        schedule=schedule(wait=1, warmup=1, active=3),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(path),
    ) as profiler, torch.no_grad():
        for _ in range(6):
            inputs = torch.ones(2, 16)
            for _ in range(clones):
                inputs = inputs.clone()
            model(inputs)
            profiler.step()


for path, clones in (("base.json", 0), ("same.json", 0), ("head.json", 2)):
    record(path, clones)
os._exit(0)  # to destroy torch takes half a second
"""


def test_gate__recordings_of_torch_profiler__what_the_change_added_is_named(perfgate: Perfgate, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", RECORDER], cwd=tmp_path, check=True, capture_output=True, timeout=600)
    for name in ("base", "same", "head"):
        done = perfgate("run", "--from-profile", f"{name}.json", "--out", name, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert [counted["repeats"] for counted in _document(tmp_path / "base")["checklist"]["counters"]] == [3]

    same = perfgate("gate", "--base", "base", "--head", "same", cwd=tmp_path)
    changed = perfgate("gate", "--base", "base", "--head", "head", cwd=tmp_path)

    # Nothing of a CPU's operators repeats between two recordings but their counts.
    assert same.returncode == 3, same.stdout
    assert same.stdout.startswith("INCONCLUSIVE – the recordings contain no comparable times\n")
    assert changed.returncode == 1, changed.stdout
    assert "in profile/all, 0 → 2" in changed.stdout


def _nothing(folder: Path) -> None:
    (folder / "profile").mkdir()


def _text(folder: Path) -> None:
    (folder / "profile").write_text("no recording")


def _raw(folder: Path) -> None:
    (folder / "profile" / "host_1_20250101000000000_ascend_pt" / "FRAMEWORK").mkdir(parents=True)


def _unfilled(folder: Path) -> None:
    (folder / "profile" / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)


def _cut(folder: Path) -> None:
    whole = kineto_recording(folder / "whole.json").read_bytes()
    (folder / "profile").mkdir()
    (folder / "profile" / "rank0.pt.trace.json").write_bytes(whole[: len(whole) // 2])


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda folder: None, "does not exist; name a profiler's output folder or trace file"),
        (_nothing, "is not profiler output that perfgate can read; it reads: "),
        (_text, "is not profiler output that perfgate can read; it reads: "),
        (_raw, "run torch_npu.profiler.profiler.analyse('profile')"),
        (_unfilled, "the recording holds no step, kernel or operator"),
        (_cut, "the file is cut off; record the trace again"),
    ],
    ids=["missing", "nothing", "text", "raw", "unfilled", "cut"],
)
def test_from_profile__no_recording__exit_2_and_what_to_do(
    perfgate: Perfgate, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    make(tmp_path)

    done = perfgate("run", "--from-profile", "profile", cwd=tmp_path)

    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not (tmp_path / "perfgate-out").exists()


@pytest.mark.recordings
def test_from_profile__table_that_is_cut_off__exit_2_and_its_name(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    recording = sample(f"{ALEXNET}/rank0_ascend_pt", "recording")
    table = recording / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    table.write_bytes(table.read_bytes()[: table.stat().st_size // 2])

    done = perfgate("run", "--from-profile", "recording", cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    assert (
        "ASCEND_PROFILER_OUTPUT/kernel_details.csv is cut off in its last line; copy the recording again" in done.stderr
    )


@pytest.mark.recordings
def test_from_profile__rows_that_lack_cells__nothing_is_counted(
    perfgate: Perfgate, tmp_path: Path, sample: Callable[..., Path]
) -> None:
    sample("msinsight-gpt3-cann7-2309/test_rank_0_ascend_pt", "recording")

    done = perfgate("run", "--from-profile", "recording", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    run = _document(tmp_path / "perfgate-out")
    assert run["checklist"]["counters"] == []
    # Whoever shortened the sample left the table of steps as it was.
    assert (
        "1 rows of kernel_details lack cells or have too many; the table of steps has 75.175 ms of computing in step 2, its "
        "kernels 27.131 ms: nothing was counted; record it again"
    ) in map(worded, run["warnings"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run", "--from-profile", "t.json", "--quick"), "--from-profile measures nothing: leave out --steps, --quick"),
        (("run", "--from-profile", "t.json", "--workload", "a/b"), "--workload 'a/b' must be letters, digits"),
        (("run", "--from-profile", "folder", "--out", "folder/out"), "lies inside the recording folder"),
        (("run", "--keep"), "--keep belongs to --from-profile"),
        (("local", "--hook", "--json"), "--hook may judge several commits and prints no JSON; leave out --json"),
        (
            ("gate", "--base", "run"),
            "give a check folder, or a run.json with --head and optionally another with --base",
        ),
        (("gate", "--base", "run", "--head", "other"), "give recordings of the same program one name with --workload"),
    ],
)
def test_from_profile__wrong_use__exit_2_and_what_to_do(
    perfgate: Perfgate, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    kineto_recording(tmp_path / "t.json")
    (tmp_path / "folder").mkdir()
    kineto_recording(tmp_path / "folder" / "rank0.pt.trace.json")
    if arguments[0] == "gate":
        perfgate("run", "--from-profile", "t.json", "--out", "run", cwd=tmp_path)
        perfgate("run", "--from-profile", "t.json", "--out", "other", "--workload", "other", cwd=tmp_path)

    done = perfgate(*arguments, cwd=tmp_path)

    assert done.returncode == 2, done.stdout
    assert words in done.stderr

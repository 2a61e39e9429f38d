"""``perfgate trace flame`` and ``trace diff`` on recordings."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from perfgate.document.flame import FLAME_KINDS, node_totals
from perfgate.flows.trace.flame import trace_flame
from perfgate.flows.trace.timeline import trace_timeline
from perfgate.flows.trace.trace import Choice
from tests.fakes.recordings import ADD, GEMM, STEP, TO_NHWC, kineto_recording
from tests.unit.cli.test_trace import trace
from tests.unit.trace.ascend import ALEXNET, sample

SLOWER = (*STEP, (TO_NHWC, 30))


def run(*words: object) -> CompletedProcess[str]:
    return trace(*map(str, words))


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    base = kineto_recording(tmp_path / "base.json")
    return base, kineto_recording(tmp_path / "head.json", steps=(SLOWER, SLOWER))


def diffed(*words: object) -> dict:
    result = run("diff", *words, "--json")
    assert result.returncode == 0, result.stdout
    return json.loads(result.stdout)


def test_diff__one_conversion_more_a_step__named_with_its_part_of_the_time(pair: tuple[Path, Path]) -> None:
    (timeline,) = diffed(*pair)["timelines"]

    assert (timeline["unit"], timeline["units"]) == ("profiler step", [3, 2])
    device = [row for row in timeline["rows"] if row["kind"] == "compute"]
    assert [(row["name"], row["change"]) for row in device] == [(TO_NHWC, "more")]
    assert device[0]["delta"] == pytest.approx(30e-6)
    assert device[0]["by_count"] == pytest.approx(45e-6)
    assert device[0]["by_speed"] == pytest.approx(-15e-6)
    assert timeline["head"]["kernel"] - timeline["base"]["kernel"] == pytest.approx(30e-6)
    assert timeline["base"]["copy"] == timeline["head"]["copy"] == pytest.approx(50e-6)
    assert timeline["base"]["communication"] == pytest.approx(100e-6)


def test_diff__rows__add_up_to_the_difference_of_the_totals(pair: tuple[Path, Path]) -> None:
    (timeline,) = diffed(*pair, "--tolerance", "0")["timelines"]
    totals = [
        sum(timeline[side][part] for part in ("kernel", "copy", "communication", "host")) for side in ("base", "head")
    ]
    assert sum(row["delta"] for row in timeline["rows"]) == pytest.approx(totals[1] - totals[0])


def test_diff__kernel_instead_of_another_under_one_operator__replaced(tmp_path: Path) -> None:
    base = kineto_recording(tmp_path / "base.json", steps=[((GEMM, 250), (ADD, 60))] * 3)
    head = kineto_recording(tmp_path / "head.json", steps=[((GEMM, 300), ("fused_add", 20))] * 3)
    (timeline,) = diffed(base, head)["timelines"]
    found = [(row["change"], row["name"], row["before"]) for row in timeline["rows"] if row["kind"] == "compute"]
    assert found == [("slower", GEMM, []), ("replaced", "fused_add", [ADD])]


def test_diff__same_recording__nothing_changed(pair: tuple[Path, Path]) -> None:
    (timeline,) = diffed(pair[0], pair[0])["timelines"]
    assert timeline["rows"] == []


def test_diff__terminal__totals_and_rows(pair: tuple[Path, Path]) -> None:
    result = run("diff", *pair)
    assert result.returncode == 0
    assert "more" in result.stdout
    assert TO_NHWC in result.stdout
    assert "kernel" in result.stdout


def test_diff__steps_in_one_recording_alone__refused_with_what_to_do(tmp_path: Path) -> None:
    base = kineto_recording(tmp_path / "base.json", marked=False)
    result = run("diff", base, kineto_recording(tmp_path / "head.json"))
    assert result.returncode == 2
    assert "record both alike" in result.stderr


@pytest.mark.recordings
def test_diff__recorded_on_two_npus__totals_of_the_device(tmp_path: Path) -> None:
    folder = sample(f"{ALEXNET}/text/level1", tmp_path)
    (timeline,) = diffed(folder / "rank0_ascend_pt", folder / "rank1_ascend_pt")["timelines"]
    assert timeline["base"]["kernel"] == pytest.approx(8.873737e-3)
    assert timeline["base"]["communication"] > 0.1


def test_flame__page__written_where_asked(pair: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "graph.html"
    result = run("flame", pair[0], "--head", pair[1], "--out", out)
    assert (result.returncode, result.stdout) == (0, f"{out}\n")
    assert "Flame graph of base and head" in out.read_text()


def test_flame__collapsed__kernels_under_the_operator_that_launched_them(pair: tuple[Path, Path]) -> None:
    result = run("flame", pair[0], "--format", "collapsed")
    assert f"stream 7;ProfilerStep;aten::op;cudaLaunchKernel;{GEMM} 250000\n" in result.stdout


def test_flame__speedscope__json_with_profiles_of_both_sides(pair: tuple[Path, Path]) -> None:
    document = json.loads(run("flame", pair[0], "--head", pair[1], "--format", "speedscope").stdout)
    names = [profile["name"] for profile in document["profiles"]]
    assert any("· base · stream 7" in name for name in names)
    assert any("· head · stream 7" in name for name in names)


def test_flame__folders_with_cycles_of_one_process__each_beside_the_same_cycle(tmp_path: Path) -> None:
    microseconds = {"base": (100, 200, 300), "head": (100, 200)}
    for side, cycles in microseconds.items():
        (tmp_path / side).mkdir()
        for number, length in enumerate(cycles):
            kineto_recording(tmp_path / side / f"host_7.{number}.pt.trace.json", steps=[((GEMM, length),)])
    trees = trace_flame(tmp_path / "base", tmp_path / "head", Choice(), note=lambda _: None)
    found = []
    for tree in trees:
        stream = tree.kind.index(FLAME_KINDS.index("stream"))
        sides = [node_totals(tree, costs)[stream].total for costs in (tree.base, tree.head)]
        found.append((tree.label, [round(seconds * 1e6) for seconds in sides]))
    assert found == [
        ("rank 0, device 0", [100, 100]),
        ("rank 0, device 0, recording 2", [200, 200]),
        ("rank 0, device 0, recording 3", [300, 0]),
    ]


def test_timeline__folder_of_ranks__each_under_its_own_name(tmp_path: Path) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    for rank in range(2):
        kineto_recording(folder / f"rank{rank}.json", rank=rank)
    assert [drawn.label for drawn in trace_timeline(folder, Choice())] == [
        "job, rank 0, device 0",
        "job, rank 1, device 0",
    ]
    (alone,) = trace_timeline(folder / "rank1.json", Choice())
    assert alone.label == "rank1"


def test_flame__rank_that_is_not_there__says_which_are(pair: tuple[Path, Path]) -> None:
    result = run("flame", pair[0], "--rank", "7")
    assert result.returncode == 2
    assert "rank 0" in result.stderr

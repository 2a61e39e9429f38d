"""`perfgate trace ranks`: a slow rank and a slow link are named, equal ones are not, and what was read is kept."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.cli.main import cli
from perfgate.errors import DocumentError, UsageError
from perfgate.flows.trace.reducing import KEPT
from tests.command import run_perfgate
from tests.samples import unpacked

RANKS = 6
STEP_COLUMNS = "Step,Computing,Communication(Not Overlapped),Overlapped,Communication,Free,Stage,Bubble,Preparing"


def job(
    folder: Path,
    *,
    slow_rank: int | None = None,
    slow_link: tuple[int, int] | None = None,
    late_rank: int | None = None,
    slow_stage: int | None = None,
    stages: int = 1,
    ranks: int = RANKS,
) -> Path:
    """Write the tables of a job in the layout of torch_npu.profiler: all ranks take equally long, the early ones wait.

    The clock of rank N is N seconds ahead. Of every four collectives a late rank comes 2 ms late to the first.
    """
    lot = random.Random(3)
    for rank in range(ranks):
        stage = rank * stages // ranks
        output = folder / f"host_{rank}_20251101000000000_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
        output.mkdir(parents=True)
        (output.parent / f"profiler_info_{rank}.json").write_text(json.dumps({"rank_id": rank}))
        pipeline = {"group_name": "pp", "global_ranks": list(range(rank % (ranks // stages), ranks, ranks // stages))}
        (output.parent / "profiler_metadata.json").write_text(json.dumps({"parallel_group_info": {"a": pipeline}}))
        operations = {}
        for number in range(8):
            took = 1.0 if rank == late_rank and number % 4 == 0 else 3.0 if number % 4 == 0 else 1.0
            end = 1_700_000_000_000_000.0 + rank * 1e6 + number * 10_000
            operations[f"hcom_allReduce__17_{number}_1@17"] = {
                "Communication Time Info": {
                    "Start Timestamp(us)": end - took * 1000,
                    "Elapse Time(ms)": took,
                    "Transit Time(ms)": 0.5,
                    "Wait Time(ms)": took - 0.5,
                    "Idle Time(ms)": 0.0,
                }
            }
        (output / "communication.json").write_text(json.dumps({"step0": {"p2p": {}, "collective": operations}}))
        rows = [STEP_COLUMNS]
        for step in range(3):
            slower = 1.25 if rank == slow_rank or stage == slow_stage else 1.0
            computing = 8000.0 * slower * lot.uniform(0.99, 1.01)
            free = 1000.0 * lot.uniform(0.99, 1.01)
            exposed = 12_000.0 - computing - free
            rows.append(f"{step},{computing},{exposed},500,{exposed + 500},{free},12000,0,0")
        (output / "step_trace_time.csv").write_text("\n".join(rows) + "\n")
        pairs = {
            f"{rank}-{other}": {
                "Transport Type": "LOCAL" if other == rank else "HCCS",
                "Transit Size(MB)": 40.0,
                "Transit Time(ms)": 2.0 * (8 if (rank, other) == slow_link else 1) * lot.uniform(0.98, 1.02),
                "Bandwidth(GB/s)": 20.0,
            }
            for other in range(min(ranks, RANKS))
        }
        matrix = {"step0": {"p2p": {}, "collective": {"allreduce-top1@17": pairs}}}
        (output / "communication_matrix.json").write_text(json.dumps(matrix))
    return folder


# Commands of their own process: one of the tests would be copied for each worker, which takes the kernel a tenth of a second.
def answer(folder: Path, *options: str) -> dict[str, Any]:
    done = run_perfgate("trace", "ranks", str(folder), "--json", "--workers", "1", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_ranks__all_alike__none_is_slow(tmp_path: Path) -> None:
    found = answer(job(tmp_path))
    assert (found["slow_ranks"], found["slow_links"]) == ([], [])
    assert [row["rank"] for row in found["ranks"]] == list(range(RANKS))
    assert found["links"] == RANKS * (RANKS - 1)
    text = run_perfgate("trace", "ranks", str(tmp_path)).stdout
    assert text.splitlines()[:2] == [
        "no rank delays the others by a hundredth of the job: 6 ranks, 8 collectives",
        "no link is slow: 30 links",
    ]
    assert (found["collectives"], found["skew"]) == (8, pytest.approx(0, abs=1e-9))
    assert [row["arrival"]["late"] for row in found["ranks"]] == [pytest.approx(0, abs=1e-9)] * RANKS


def test_ranks__one_computes_longer__it_is_named_though_all_steps_take_as_long(tmp_path: Path) -> None:
    found = answer(job(tmp_path, slow_rank=4))
    (slow,) = found["slow_ranks"]
    assert (slow["rank"], slow["part"]) == (4, "computing")
    assert slow["behind"] == pytest.approx(0.22, abs=0.03)
    text = run_perfgate("trace", "ranks", str(tmp_path), "--limit", "2").stdout
    assert text.startswith("rank 4 is slow: 22.")
    assert len(text.splitlines()) <= 10


def test_ranks__link_eight_times_slower__it_is_named(tmp_path: Path) -> None:
    found = answer(job(tmp_path, slow_link=(2, 3)))
    (slow,) = found["slow_links"]
    assert (slow["source"], slow["target"], slow["link"]) == (2, 3, "HCCS")
    assert slow["middle"] / slow["bandwidth"] == pytest.approx(8, rel=0.1)
    assert found["slow_ranks"] == []


def test_ranks__one_comes_late__by_how_much_whatever_the_clocks_say(tmp_path: Path) -> None:
    found = answer(job(tmp_path, late_rank=3))
    assert [row["arrival"]["late"] for row in found["ranks"]] == [
        pytest.approx(0.5e-3 if rank == 3 else 0, abs=1e-9) for rank in range(RANKS)
    ]
    assert found["ranks"][3]["arrival"]["last"] >= 0.25
    worst = found["skews"][:2]
    assert {row["number"] for row in worst} == {0, 4}
    assert [(row["last"], row["skew"]) for row in worst] == [(3, pytest.approx(2e-3))] * 2


def test_ranks__pipeline_of_three_stages__each_rank_s_stage(tmp_path: Path) -> None:
    found = answer(job(tmp_path, stages=3))
    assert [row["stage"] for row in found["ranks"]] == [0, 0, 1, 1, 2, 2]
    shown = run_perfgate("trace", "ranks", str(tmp_path), environment={**os.environ, "COLUMNS": "120"}).stdout
    assert "stage" in shown


def test_ranks__page_asked_for__written_with_the_same_answer(tmp_path: Path) -> None:
    page = tmp_path / "ranks.html"
    found = answer(job(tmp_path / "job", slow_rank=4), "--out", str(page))
    assert found["slow_ranks"][0]["rank"] == 4
    assert "rank 4 is slow: 22." in page.read_text()
    done = CliRunner().invoke(cli, ["trace", "ranks", str(tmp_path / "job"), "--out", str(page), "--rank", "9"])
    assert isinstance(done.exception, UsageError)
    assert "rank 9 was not recorded" in str(done.exception)


def test_ranks__folder_of_other_people__nothing_is_written_there(tmp_path: Path) -> None:
    folder = job(tmp_path / "job", slow_rank=1)
    before = sorted(folder.rglob("*"))
    answer(folder)
    assert sorted(folder.rglob("*")) == before
    run_perfgate("trace", "reduce", str(folder), "--out", str(tmp_path / "tables"))
    assert sorted(folder.rglob("*")) == before


def test_ranks__reduced_before__what_was_kept_unless_a_file_changed(tmp_path: Path) -> None:
    first = answer(job(tmp_path, slow_rank=1))
    run_perfgate("trace", "reduce", str(tmp_path))
    kept = sorted(tmp_path.rglob(KEPT))
    assert len(kept) == RANKS
    # What is kept is what is read: a mark in it shows.
    assert kept[0].read_bytes().count(b"\xa4rank\x00") == 1
    kept[0].write_bytes(kept[0].read_bytes().replace(b"\xa4rank\x00", b"\xa4rank\x46"))
    assert 70 in [row["rank"] for row in answer(tmp_path)["ranks"]]
    table = kept[0].with_name("step_trace_time.csv")
    table.write_text(table.read_text() + "\n")
    assert answer(tmp_path) == first
    kept[0].write_text("{half")
    assert answer(tmp_path) == first


def test_reduce__tables_alone_copied_elsewhere__the_same_answer(tmp_path: Path) -> None:
    here, there = job(tmp_path / "here", slow_rank=2, slow_link=(0, 1)), tmp_path / "there"
    done = run_perfgate("trace", "reduce", str(here), "--workers", "1")
    written = [Path(line) for line in done.stdout.splitlines()]
    assert len(written) == RANKS
    for number, file in enumerate(written):
        (there / str(number)).mkdir(parents=True)
        (there / str(number) / file.name).write_bytes(file.read_bytes())
    expected, found = answer(here), answer(there)
    assert {**found, "path": ""} == {**expected, "path": ""}
    made = msgspec.msgpack.decode((there / "0" / KEPT).read_bytes())
    (there / "0" / KEPT).write_bytes(msgspec.msgpack.encode({**made, "version": "0.0.9"}))
    assert "made by perfgate 0.0.9" in answer(there)["gaps"]["left_out"][0]["reason"]
    (there / "0" / KEPT).write_text("{half")
    assert "not a table of a rank" in answer(there)["gaps"]["left_out"][0]["reason"]
    strict = CliRunner().invoke(cli, ["trace", "ranks", str(there), "--strict"])
    assert isinstance(strict.exception, DocumentError)


def test_reduce__nobody_may_write_beside_the_recordings__tables_in_another_folder(tmp_path: Path) -> None:
    here, there = job(tmp_path / "here", slow_rank=2), tmp_path / "there"
    done = run_perfgate("trace", "reduce", str(here), "--workers", "1", "--out", str(there))
    assert len(done.stdout.splitlines()) == RANKS == len(list(there.glob(f"*{KEPT}")))
    assert {**answer(there), "path": ""} == {**answer(here), "path": ""}


def test_ranks__one_of_the_recordings_is_cut_off__it_is_listed_and_the_others_are_judged(tmp_path: Path) -> None:
    folder = job(tmp_path, slow_rank=2)
    damaged = next(folder.glob("host_5_*")) / "ASCEND_PROFILER_OUTPUT" / "communication.json"
    damaged.write_text(damaged.read_text()[:100])
    found = answer(folder)
    assert (found["slow_ranks"][0]["rank"], len(found["ranks"])) == (2, RANKS - 1)
    (left_out,) = found["gaps"]["left_out"]
    assert "host_5" in left_out["path"]
    text = run_perfgate("trace", "ranks", str(folder)).stdout
    assert "1 of 6 recordings left out: " in text


@pytest.mark.recordings
def test_ranks__recorded_job_of_two_ranks__read(tmp_path: Path) -> None:
    found = answer(unpacked(tmp_path / "job", "msinsight-910B-alexnet-2501", "text", "level1"))
    assert [(row["rank"], row["steps"]) for row in found["ranks"]] == [(0, 1), (1, 1)]
    assert found["ranks"][0]["computing"] == pytest.approx(8.8737e-3, rel=1e-4)
    assert found["ranks"][0]["in_collectives"]["wait"] > found["ranks"][1]["in_collectives"]["wait"]


def test_ranks__nothing_there__says_what_to_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(cli, ["trace", "ranks", str(tmp_path)])
    assert isinstance(done.exception, UsageError)
    assert "name the folder in which the *_ascend_pt folders" in str(done.exception)

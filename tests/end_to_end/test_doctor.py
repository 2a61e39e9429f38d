"""`perfgate doctor` as a user types it: the machine for real, two planted changes through real gates."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.end_to_end.conftest import SMALL_GATE, Perfgate
from tests.fakes.wording import worded
from tests.waiting import left_in_the_end


def _doctor(perfgate: Perfgate, folder: Path, *arguments: str) -> tuple[int, str, str]:
    """Whole gates: on a machine with other jobs they may take longer than the other commands are given."""
    process = perfgate.start("doctor", *arguments, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    stdout, stderr = process.communicate(timeout=1200)
    return process.returncode, stdout, stderr


@pytest.mark.slow
def test_doctor__two_rows__agree_and_are_written(perfgate: Perfgate, tmp_path: Path) -> None:
    (tmp_path / "perfgate.toml").write_text('workload = "w.py:w"\n' + SMALL_GATE)
    out = tmp_path / "doctor"
    rows = ("--only", "no-change", "--only", "extra-copy")
    code, stdout, stderr = _doctor(perfgate, tmp_path, *rows, "--config", ".", "--out", str(out))

    assert "2 gates, about" in stderr
    found = json.loads((out / "doctor.json").read_text())
    unchanged, copied = found["planted"]
    # A busy machine may leave times undecided, and then says so.
    assert (unchanged["verdict"], unchanged["outcome"]) in (("PASS", "agrees"), ("INCONCLUSIVE", "too_busy")), unchanged
    assert unchanged["fired"] == []
    assert (copied["verdict"], copied["outcome"]) == ("FAIL", "agrees"), copied
    assert code == (0 if unchanged["outcome"] == "agrees" else 3), stdout + stderr
    assert "counters.copies" in copied["fired"]
    assert copied["line"].startswith("scorer.py:")
    assert "latency.low" in {entry["metric"] for entry in found["resolutions"]}
    assert "this machine detects a slowdown of" in " ".join(stdout.split())
    assert (out / "extra-copy" / "report.html").exists()
    assert perfgate.scratch_folders == []
    assert left_in_the_end(perfgate.processes) == []


@pytest.mark.slow
def test_doctor__gate_that_tolerates_what_is_planted__differs_and_exits_1(perfgate: Perfgate, tmp_path: Path) -> None:
    """The small gate of these tests allows a call to take twice as long, so 5 % more work must pass it."""
    (tmp_path / "perfgate.toml").write_text('workload = "w.py:w"\n' + SMALL_GATE)
    code, stdout, stderr = _doctor(perfgate, tmp_path, "--only", "work-5-percent", "--config", ".", "--json")
    assert code == 1, stdout + stderr
    (row,) = json.loads(stdout)["planted"]
    assert (row["verdict"], row["expected"], row["outcome"]) == ("PASS", "FAIL", "differs")
    assert worded(row["reason"]) == "FAIL was expected; latency.low is unchanged"


def test_doctor__fitness_alone__seconds_and_nothing_gated(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("doctor", "--fitness", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    status = {check["name"]: check["status"] for check in found["fitness"]}
    assert (status["device cpu"], status["git"], status["worktrees"]) == ("ok", "ok", "ok")
    # Of a kind of device that is not there, one line.
    lines = [(check["name"], check["status"]) for check in found["fitness"] if "npu" in check["name"]]
    assert lines == [("device npu", "unavailable")]
    assert (found["planted"], found["resolutions"]) == ([], [])


@pytest.mark.slow
def test_doctor__lock_that_cannot_be_opened__unfit_and_exit_4(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("doctor", cwd=tmp_path, PERFGATE_LOCK=str(tmp_path))
    assert done.returncode == 4, done.stdout + done.stderr
    assert "UNFIT" in done.stdout
    assert "gates, about" not in done.stderr


def test_doctor__list__every_change_and_its_metric(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("doctor", "--list", cwd=tmp_path)
    assert done.returncode == 0
    assert "counters.repeat_saves" in done.stdout
    assert len([line for line in done.stdout.splitlines() if " FAIL " in line or " PASS" in line]) == 11


def test_doctor__unknown_change__exit_2(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("doctor", "--only", "leek", cwd=tmp_path)
    assert done.returncode == 2
    assert "no planted change 'leek'" in done.stderr

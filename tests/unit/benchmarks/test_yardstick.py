"""The yardstick as it is run: tables, JSON, and the same numbers for the same seed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tables import smallest_found, wilson
from trials import Row

from tests.samples import recorded
from tests.unit.benchmarks.conftest import GATE

ALARMS_AT_FIVE = '''"""A rule for the test: alarms when the medians of run medians differ by more than 5 %."""
import numpy as np

def decide(base, head, ctx):
    a, b = (np.median([np.median(np.concatenate(run)) for run in side]) for side in (base, head))
    worse = b / a - 1 > 0.05
    more = len(base) < 12 and not worse
    return {"decision": "regressed" if worse else "undecided" if more else "ok", "effect": b / a - 1, "ci": None}
'''


def row(cell, size, regressed):
    return Row("rule", "slower", cell, size, 100, regressed, 100 - regressed, 0, 60.0, 60.0, size)


def test_wilson__known_values() -> None:
    # Wilson 1927, as tabulated e.g. by Newcombe 1998, table I: 15 of 148
    assert wilson(15, 148) == pytest.approx((0.0624, 0.1605), abs=1e-4)
    assert wilson(0, 20)[0] == 0.0


def test_smallest_found__a_gap_above_ends_it() -> None:
    rows = [row("a", 0.01, 96), row("a", 0.02, 90), row("a", 0.05, 100), row("b", 0.02, 99), row("b", 0.05, 99)]
    assert smallest_found(rows, 1.0) == 0.05  # 1 % does not count: 2 % is found in 90 only
    assert smallest_found([row("a", 0.05, 94)], 1.0) is None


def test_smallest_found__median_cell() -> None:
    rows = [row(cell, 0.02, found) for cell, found in zip("abc", (100, 96, 10))]
    assert smallest_found(rows, 0.5) == 0.02
    assert smallest_found(rows, 1.0) is None


@pytest.fixture
def made_recording(tmp_path: Path) -> Path:
    """Forty pairs of four quads with a spread of 1 % between pairs, in the format of a recording: a few kilobytes."""
    random = np.random.default_rng(3)
    rows = [(number, quad, side) for number in range(40) for quad in range(4) for side in (0, 1, 1, 0)]
    layout = np.exp(random.normal(0.0, 0.007, (40, 2)))
    calls = np.array([[200_000 * layout[number, side]] * 30 for number, _, side in rows])
    wall = np.round(calls * np.exp(np.abs(random.normal(0.0, 0.01, calls.shape)))).astype(np.uint32)
    pairs, quads, sides = (np.array(column, dtype=np.int32) for column in zip(*rows))
    np.savez(
        tmp_path / "aa-quiet-mlp-pass04.npz",
        b_pair=pairs,
        b_quad=quads,
        b_side=sides,
        b_n=np.full(len(rows), 30, dtype=np.int32),
        b_t0=np.zeros(len(rows), dtype=np.int64),
        b_t1=wall.sum(axis=1, dtype=np.int64) + 30_000,
        wall=wall.ravel(),
        cpu=wall.ravel(),
    )
    return tmp_path


@pytest.mark.slow
def test_yardstick__the_rule_of_the_gate_on_a_made_recording__finds_5_percent_and_leaves_unchanged_code_alone(
    made_recording: Path,
) -> None:
    """What `make bench-rules` runs, small: the shipped rule of rule.py, with the gate's own looks."""
    few = ["--recordings", str(made_recording), "--sets", "aa-quiet", "--unchanged", "10", "--changed", "10"]
    done = run(made_recording, *few, "--budget", "4", "--only-rules", "perfgate", "--out", "rows.json")
    assert done.returncode == 0, done.stderr
    rows = {
        (row["scenario"], row["size"]): row for row in json.loads((made_recording / "rows.json").read_text())["rows"]
    }
    assert rows["slower", 0.05]["regressed"] == 10
    assert rows["unchanged", 0.0]["regressed"] == 0
    assert rows["unchanged", 0.0]["ok"] > 0
    assert {scenario for scenario, _ in rows} == {"unchanged", "unchanged, as one", "slower", "p99", "gap"}


def run(tmp_path, *arguments):
    command = [sys.executable, str(GATE / "yardstick.py"), *arguments]
    return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)


def test_yardstick__no_recordings__says_what_to_do(tmp_path: Path) -> None:
    done = run(tmp_path, "--recordings", str(tmp_path))
    assert done.returncode == 1
    assert "with --recordings" in done.stderr


@pytest.mark.recordings
@pytest.mark.slow
def test_yardstick__rule_of_a_file__table_and_json_the_same_with_two_jobs(tmp_path: Path) -> None:
    folder = recorded(folder="gate-noise")
    (tmp_path / "mine.py").write_text(ALARMS_AT_FIVE)
    few = [
        "--rule",
        "mine.py",
        "--only",
        "mlp/",
        "--unchanged",
        "5",
        "--changed",
        "5",
        "--only-rules",
        "p",
        "--recordings",
        str(folder),
    ]
    first = run(tmp_path, *few, "--out", "first.json")
    second = run(tmp_path, *few, "--out", "second.json", "--jobs", "2")
    assert (first.returncode, first.stderr.count("\n")) == (0, 2), first.stderr
    assert first.stdout == second.stdout
    rows = json.loads((tmp_path / "first.json").read_text())["rows"]
    assert rows == json.loads((tmp_path / "second.json").read_text())["rows"]
    mine = {(one["cell"], one["size"]): one for one in rows if (one["rule"], one["scenario"]) == ("perfgate", "slower")}
    assert mine["mlp/calm", 0.1]["regressed"] == 5
    assert mine["mlp/calm", 0.1]["seconds"] < 15  # eight pairs of 1.3 s were enough
    assert "| perfgate |" in first.stdout
    assert "mlp/calm 6" in first.stdout

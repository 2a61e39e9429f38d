"""`perfgate trend` as a user runs it: a history in a real clone, and a suspicion that is really measured."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import msgspec
import numpy as np
import pytest

from perfgate.document.files import read_run
from perfgate.document.history import Confirmation
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.runs import record_run
from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.history import on_another_day

SLOW_AT = 10
COMMITS = 13
SLOWDOWN = 4.0
RELU = "return torch.relu(y)"


def commit_history(clone: Clone) -> list[str]:
    """Commit to main, two commits between two runs; at SLOW_AT the model does its work twenty times."""
    clone.git("checkout", "-q", "main")
    measured = [clone.git("rev-parse", "HEAD")]
    for number in range(1, COMMITS):
        clone.commit(f"between {number}")
        if number == SLOW_AT:
            slow = ("y = self.layer(x)", "y = sum(self.layer(x) for _ in range(20)) / 20")
            measured.append(clone.commit("Refine the output", model=slow))
        else:
            measured.append(clone.commit(f"change {number}"))
    return measured


@pytest.mark.slow
def test_trend__slowdown_planted_in_history__named_with_its_commits_then_confirmed_by_measuring(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    # A time can fail from ten pairs on.
    config = clone.root / "perfgate.toml"
    config.write_text(config.read_text().replace("looks = [8]", "looks = [10]"))
    clone.git("checkout", "-q", "main")
    clone.commit("more pairs")
    done = perfgate("run", "--quick", "--steps", "1", "--out", str(tmp_path / "run"), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    run, random = read_run(tmp_path / "run" / "run.json"), np.random.default_rng(7)
    store = SqlStore(Path(perfgate.environment["PERFGATE_STORE"]))
    commits = commit_history(clone)
    for number, commit in enumerate(commits):
        factor = float(np.exp(random.normal(0, 0.01))) * (SLOWDOWN if number >= SLOW_AT else 1.0)
        record_run(store, on_another_day(run, commit, days=number - COMMITS, factor=factor))

    looked = perfgate(
        "trend", "--metric", "latency.p50", "--fail-on-regression", "--json", cwd=clone.root, COLUMNS="140"
    )
    assert looked.returncode == 1, looked.stdout + looked.stderr
    assert "suspected" in looked.stderr
    assert "One of 2 commits" in looked.stderr
    assert [one["changes"][0]["evidence"] for one in json.loads(looked.stdout)["series"]] == ["suspected"]

    out = tmp_path / "trend"
    options = ("--metric", "latency.p50", "--confirm", "--max-seconds", "300", "--out", str(out))
    measured = perfgate("trend", *options, cwd=clone.root)
    assert measured.returncode == 0, measured.stdout + measured.stderr
    trend = json.loads((out / "trend.json").read_bytes())
    (series,) = trend["series"]
    (change,) = series["changes"]
    assert change["evidence"] == "confirmed", measured.stdout + measured.stderr
    assert (change["last_good"], change["first_bad"]) == (commits[SLOW_AT - 1], commits[SLOW_AT])
    assert [label["subject"] for label in change["commits"]] == ["Refine the output", f"between {SLOW_AT}"]
    (confirmation,) = json.loads((out / "confirmations.json").read_bytes())["confirmations"]
    assert confirmation["fingerprint"] == series["fingerprint"]
    assert confirmation["low"] > 0.5
    assert [one.low for one in store.entries("small", Confirmation)] == [confirmation["low"]]
    # The commit of it, by the command as it was printed.
    (command,) = re.findall(r"^ +(perfgate bisect .*)$", looked.stderr, flags=re.MULTILINE)
    found = perfgate(*shlex.split(command)[1:], cwd=clone.root, COLUMNS="140")
    bisection = json.loads((clone.root / ".perfgate" / "bisect" / "bisection.json").read_bytes())
    assert (bisection["searched"]["good"], bisection["searched"]["commit"]) == (commits[SLOW_AT - 1], commits[SLOW_AT])
    assert [change["subject"] for change in bisection["searched"]["changes"]] == ["Refine the output"]
    # Ten pairs on a busy machine may be too few for a time, and then nobody is blamed.
    assert (found.returncode, bisection["culprits"]) in ((0, [[0]]), (3, [])), found.stdout + found.stderr
    assert perfgate.scratch_folders == []
    assert clone.git("worktree", "list").count("\n") == 0


def test_trend__no_store_yet__exit_2_and_what_to_do(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("trend", cwd=clone.root)
    assert done.returncode == 2
    assert "no run of project 'small' is stored, and a trend needs 8 versions of main" in done.stderr


def test_trend__no_configuration__exit_2(perfgate: Perfgate, tmp_path: Path) -> None:
    done = perfgate("trend", cwd=tmp_path)
    assert done.returncode == 2
    assert "perfgate.toml does not exist" in done.stderr


def test_trend__confirm_with_a_token_in_ci__refuses_to_measure(perfgate: Perfgate, clone: Clone) -> None:
    done = perfgate("trend", "--confirm", cwd=clone.root, CI="true", GITHUB_TOKEN="ghs_" + "a" * 36)
    assert done.returncode == 2
    assert "GITHUB_TOKEN" in done.stderr


@pytest.mark.slow
def test_trend__bisect_in_idle_minutes__the_culprit_of_a_count_stands_in_the_report(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    config = clone.root / "perfgate.toml"
    config.write_text(f"{config.read_text()}\n[trend]\nbisect = true\n")
    clone.git("checkout", "-q", "main")
    good = clone.commit("bisect when idle")
    done = perfgate("run", "--quick", "--steps", "4", "--out", str(tmp_path / "run"), cwd=clone.root)
    assert done.returncode == 0, done.stderr
    run = read_run(tmp_path / "run" / "run.json")
    clone.commit("before", model=(RELU, f"number = 1\n        {RELU}"))
    culprit = clone.commit("Refine the output", model=(RELU, f"y = y + 0 + 0 + 0 + 0\n        {RELU}"))
    bad = clone.commit("after", model=("number = 1", "number = 2"))
    counters = [
        msgspec.structs.replace(
            entry, values={**entry.values, "counters.framework_ops": entry.values["counters.framework_ops"] + 4}
        )
        for entry in run.checklist.counters
    ]
    store = SqlStore(Path(perfgate.environment["PERFGATE_STORE"]))
    record_run(store, on_another_day(run, good, days=-3, factor=1.0))
    slower = msgspec.structs.replace(run, checklist=msgspec.structs.replace(run.checklist, counters=counters))
    record_run(store, on_another_day(slower, bad, days=-2, factor=1.0))

    out = tmp_path / "trend"
    reported = perfgate("trend", "--confirm", "--out", str(out), cwd=clone.root)
    assert reported.returncode == 0, reported.stdout + reported.stderr
    assert f"bisecting the regression between {good[:10]} and {bad[:10]}" in reported.stderr
    (cause,) = json.loads((out / "trend.json").read_bytes())["causes"]
    assert [label["subject"] for label in cause["commits"]] == ["Refine the output"]
    assert cause["commit_count"] == 1
    assert "bisected" in [entry["sign"] for entry in cause["origin_evidence"]]
    assert [entry.culprit for entry in store.entries("small", Confirmation)] == [culprit]
    report = (out / "trend.md").read_text()
    assert f"a bisection found `{culprit[:10]}`" in report
    assert "Refine the output" in report
    assert "perfgate bisect" not in report

"""The exit codes of ``perfgate bisect --for-git``, as `git bisect run` reads them: 1 to 124 mean a bad commit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfgate.cli.commands.bisect import GIT_SKIPS, GIT_STOPS
from tests.fakes.remote import git

TOML = 'project = "demo"\nworkload = "workload.py:encoder"\n'


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q", "-b", "main", ".")
    (tmp_path / "perfgate.toml").write_text(TOML)
    (tmp_path / "workload.py").write_text("def encoder(): ...\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def judge(clone: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfgate", "bisect", "--good", "HEAD", "--for-git", *arguments],
        cwd=clone,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["latncy.p50"], "did you mean 'latency.p50'?"),
        (["--stps", "4"], "No such option"),
        (["--steps", "none"], "none"),
        (["-C", "nowhere"], "does not exist"),
        (["--bad", "HEAD"], "leave out --bad, --error and --json"),
        (["--error", "0.01"], "leave out --bad, --error and --json"),
        (["--json"], "leave out --bad, --error and --json"),
        (["--between", "a/python,b/python"], "not both"),
    ],
)
def test_for_git__wrong_use__the_search_stops_and_no_commit_is_bad(
    arguments: list[str], complaint: str, clone: Path
) -> None:
    done = judge(clone, *arguments)
    assert (done.returncode, complaint in done.stderr) == (GIT_STOPS, True), done.stderr


def test_for_git__token_in_a_ci_job__the_search_stops(clone: Path) -> None:
    done = judge(clone, CI="true", GITHUB_TOKEN="ghp_" + "a" * 36)
    assert (done.returncode, "GITHUB_TOKEN" in done.stderr) == (GIT_STOPS, True), done.stderr


@pytest.mark.parametrize("text", ["device = [\n", TOML + "unknown = 1\n", None])
def test_for_git__commit_without_a_valid_perfgate_toml__skipped(text: str | None, clone: Path) -> None:
    (clone / "perfgate.toml").unlink()
    if text is not None:
        (clone / "perfgate.toml").write_text(text)
    done = judge(clone)
    assert (done.returncode, "perfgate.toml" in done.stderr) == (GIT_SKIPS, True), done.stderr

"""Main's runs in a branch of the project's own repository: recorded by one command, read by the others, which push nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.conftest import Clone, Perfgate
from tests.fakes.remote import empty_remote, git


@pytest.mark.slow
def test_branch_store__recorded_then_check_and_local__read_it_and_push_nothing(
    perfgate: Perfgate, clone: Clone, tmp_path: Path
) -> None:
    remote = empty_remote(tmp_path / "remote.git")
    clone.git("remote", "add", "origin", str(remote))
    clone.git("push", "-q", "origin", "main")
    perfgate.environment["PERFGATE_STORE"] = "branch://perfgate-data"
    clone.git("checkout", "-q", "main")
    kept = perfgate("baseline", "record", "--quick", "--out", str(tmp_path / "main"), cwd=clone.root)
    assert kept.returncode == 0, kept.stderr
    assert "of small in branch://perfgate-data" in kept.stdout
    listed = json.loads(perfgate("baseline", "list", "--json", cwd=clone.root).stdout)
    assert [run["commit"] for run in listed] == [clone.git("rev-parse", "main")]

    hook = remote / "hooks" / "pre-receive"
    hook.write_text(f"#!/bin/sh\necho pushed >> {tmp_path}/pushes\n")
    hook.chmod(0o755)
    before = git(remote, "for-each-ref")
    clone.git("checkout", "-q", "feature")
    clone.commit("a change", model=("    def forward", "    LAYERS = 1\n\n    def forward"))
    for command in (["check", "--base", "main", "--steps", "1"], ["local"]):
        out = tmp_path / command[0]
        done = perfgate(*command, "--out", str(out), cwd=clone.root)
        assert done.returncode in (0, 3), done.stderr
        series = json.loads((out / "history.json").read_text())["series"]
        # A number of a young process compares only where the same steps ran before.
        assert {len(one["values"]) + one["left_out"] for one in series} == {1}
        assert "stored runs of main are left out" not in done.stderr
    assert git(remote, "for-each-ref") == before
    assert not (tmp_path / "pushes").exists()
    assert clone.git("status", "--porcelain") == ""
    assert perfgate.scratch_folders == []

"""What the clone around a folder says of commits."""

from __future__ import annotations

from pathlib import Path

from perfgate.conductor.repository import Repository
from perfgate.flows.clone import files_between
from tests.fakes.remote import git

QUIET = '[submodule "kernels"]\n\tpath = kernels\n\turl = ../kernels\n\tignore = all\n'


def test_files_between__submodule_that_diffs_are_told_to_ignore__is_a_change(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    (tmp_path / ".gitmodules").write_text(QUIET)
    git(tmp_path, "add", ".gitmodules")
    commits = []
    for digit in "12":
        git(tmp_path, "update-index", "--add", "--cacheinfo", f"160000,{digit * 40},kernels")
        git(tmp_path, "commit", "-qm", digit)
        commits.append(git(tmp_path, "rev-parse", "HEAD"))
    base, head = commits
    assert files_between(tmp_path, base, head) == ["kernels"]
    assert Repository(tmp_path).files_between(base, head) == ["kernels"]

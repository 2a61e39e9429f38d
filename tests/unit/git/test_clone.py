"""What the clone around a folder says of commits."""

from __future__ import annotations

from pathlib import Path

from perfgate.git.repository import Repository, fetched_tip, files_between, merge_base
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


def test_merge_base__branch_named_like_a_commit__the_commit_counts(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    one, two = (_commit(tmp_path, message) for message in ("one", "two"))
    # Git forbids no such name; the large forges do.
    git(tmp_path, "update-ref", f"refs/remotes/origin/{one}", two)
    assert fetched_tip(tmp_path, one) is None
    assert merge_base(tmp_path, one, two) == one


def _commit(clone: Path, message: str) -> str:
    git(clone, "commit", "-q", "--allow-empty", "-m", message)
    return git(clone, "rev-parse", "HEAD")

"""Worktrees of repositories with submodules and Git LFS: base and head are filled alike, from the clone alone."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perfgate.errors import RepositoryError
from perfgate.git.contents import LFS_LINE
from perfgate.git.repository import Repository
from tests.unit.git.test_repository import commit, git

ALLOWED = ("-c", "protocol.file.allow=always")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone with the submodule third, which has a submodule inner; its head takes another commit of third than its base."""
    for name in ("inner", "third", "origin"):
        (tmp_path / name).mkdir()
        git(tmp_path / name, "init", "-q", "-b", "main")
    commit(tmp_path / "inner", "one", deep="1")
    git(tmp_path / "third", *ALLOWED, "submodule", "--quiet", "add", str(tmp_path / "inner"), "inner")
    commit(tmp_path / "third", "one", net="1")
    git(tmp_path / "origin", *ALLOWED, "submodule", "--quiet", "add", str(tmp_path / "third"), "libs/third")
    commit(tmp_path / "origin", "one", model="1")
    commit(tmp_path / "third", "two", net="2")
    git(tmp_path / "origin" / "libs" / "third", "pull", "-q", "origin", "main")
    commit(tmp_path / "origin", "two")
    root = tmp_path / "clone"
    git(tmp_path, *ALLOWED, "clone", "-q", "--recurse-submodules", str(tmp_path / "origin"), str(root))
    return root


def net(tree: Path) -> str:
    return (tree / "libs" / "third" / "net.py").read_text()


def test_worktrees__submodules__each_side_has_the_commit_that_it_names(clone: Path) -> None:
    repository = Repository(clone)
    with repository.worktrees({"base": repository.resolve("HEAD^"), "head": repository.head()}, link=[]) as trees:
        assert (net(trees["base"]), net(trees["head"])) == ("1", "2")
        assert (trees["head"] / "libs" / "third" / "inner" / "deep.py").read_text() == "1"
        assert git(trees["head"], "status", "--porcelain", "--ignore-submodules=all") == ""
    assert git(clone, "status", "--porcelain") == ""
    assert "libs/third" in repository.files_between("HEAD^", "HEAD")


def test_worktrees__submodule_not_filled_in_the_clone__empty_on_both_sides(clone: Path) -> None:
    git(clone, "submodule", "--quiet", "deinit", "--all", "--force")
    repository = Repository(clone)
    with repository.worktrees({"base": repository.resolve("HEAD^"), "head": repository.head()}, link=[]) as trees:
        assert [list((tree / "libs" / "third").iterdir()) for tree in trees.values()] == [[], []]


def test_worktrees__commit_of_a_submodule_that_the_clone_lacks__refused_by_name(clone: Path, tmp_path: Path) -> None:
    commit(tmp_path / "third", "three", net="3")
    git(tmp_path / "origin" / "libs" / "third", "pull", "-q", "origin", "main")
    commit(tmp_path / "origin", "three")
    git(clone, "fetch", "-q", "--no-recurse-submodules", "origin")
    repository = Repository(clone)
    with (
        pytest.raises(
            RepositoryError, match=r"libs/third is a submodule, and this clone lacks its commit .*git -C libs/third"
        ),
        repository.worktrees({"head": repository.resolve("origin/main")}, link=[]),
    ):
        pass


def test_snapshot__changes_in_a_submodule__refused_because_no_commit_holds_them(clone: Path) -> None:
    repository = Repository(clone)
    (clone / "libs" / "third" / "new.py").write_text("")
    assert repository.snapshot() == (repository.head(), False)
    (clone / "libs" / "third" / "net.py").write_text("mine")
    with pytest.raises(RepositoryError, match="libs/third is a submodule with uncommitted changes"):
        repository.snapshot()


def pointer(content: str) -> tuple[str, str]:
    digest = hashlib.sha256(content.encode()).hexdigest()
    return f"{LFS_LINE}\noid sha256:{digest}\nsize {len(content)}\n", digest


def store(clone: Path, content: str) -> None:
    """Keep a content as `git lfs` does."""
    _, digest = pointer(content)
    place = clone / ".git" / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
    place.parent.mkdir(parents=True)
    place.write_text(content)


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A clone with weights in Git LFS, other ones in its head than in its base. Its own file is filled."""
    root = tmp_path / "large"
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    (root / ".gitattributes").write_text("*.pt filter=lfs diff=lfs merge=lfs -text\n")
    for content in ("old weights", "new weights"):
        (root / "net.pt").write_text(pointer(content)[0])
        commit(root, content, model=content)
    (root / "net.pt").write_text("new weights")
    return root


def test_worktrees__git_lfs__each_side_has_the_content_of_its_pointer(large: Path) -> None:
    store(large, "old weights")
    store(large, "new weights")
    repository = Repository(large)
    with repository.worktrees({"base": repository.resolve("HEAD^"), "head": repository.head()}, link=[]) as trees:
        assert [(tree / "net.pt").read_text() for tree in trees.values()] == ["old weights", "new weights"]


def test_worktrees__git_lfs_not_fetched_in_the_clone__pointers_on_both_sides(large: Path) -> None:
    (large / "net.pt").write_text(pointer("new weights")[0])
    repository = Repository(large)
    with repository.worktrees({"base": repository.resolve("HEAD^"), "head": repository.head()}, link=[]) as trees:
        assert all((tree / "net.pt").read_text().startswith(LFS_LINE) for tree in trees.values())


def test_worktrees__git_lfs_content_of_one_side_alone__refused_by_name(large: Path) -> None:
    store(large, "new weights")
    repository = Repository(large)
    with (
        pytest.raises(
            RepositoryError, match=r"net\.pt is kept in Git LFS, and this clone lacks its content of .*git lfs fetch"
        ),
        repository.worktrees({"head": repository.head(), "base": repository.resolve("HEAD^")}, link=[]),
    ):
        pass

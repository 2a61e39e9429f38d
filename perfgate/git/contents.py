"""The parts of a worktree that git does not fill: the files of submodules, and those
that Git LFS stores.

Both are taken from the clone, so that base and head are filled alike, without a network
and without running a command that a commit names. Parts that the clone itself has not
filled stay empty on both sides.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from perfgate.errors import RepositoryError
from perfgate.git.commands import entries_of, run_git

# Git LFS, docs/spec.md: a pointer begins with this line, has fewer than 1024 bytes, and
# names the content by its SHA-256.
LFS_LINE = "version https://git-lfs.github.com/spec/v1"
# `git worktree add` must not ask a server for contents: that is done here, and only for
# those in the clone.
WITHOUT_LFS = {"GIT_LFS_SKIP_SMUDGE": "1"}
MAX_POINTER_BYTES = 1024
FETCH_SECONDS = 600.0
_OBJECT = re.compile(r"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_LINK_MODE = "160000"


def fill_worktree(
    clone: Path, tree: Path, commit: str, *, path_in_clone: str = ""
) -> None:
    """Fill the checkout ``tree`` of a commit of ``clone``.

    ``path_in_clone`` is the path of a submodule.

    Raises RepositoryError if the clone has a submodule or a large file in another
    version than the commit's.
    """
    _fill_large_files(clone, tree, commit, path_in_clone)
    for path, linked in _submodules(clone, commit):
        source, name = clone / path, f"{path_in_clone}{path}"
        if (
            not (source / ".git").exists()
            or clone.resolve() not in source.resolve().parents
        ):
            continue
        if run_git(
            source,
            ["cat-file", "-e", f"{linked}^{{commit}}"],
            {"GIT_NO_LAZY_FETCH": "1"},
        ).code:
            raise RepositoryError(
                "{name} is a submodule, and this clone lacks its commit {wanted}, which {commit} names: fetch it "
                "(`git -C {name} fetch origin`), with its whole history",
                name=name,
                wanted=linked[:12],
                commit=commit[:12],
            )
        _check_out(source, tree / path, linked)
        fill_worktree(source, tree / path, linked, path_in_clone=f"{name}/")


def refuse_changed_submodules(clone: Path) -> None:
    """Raise RepositoryError if a submodule has uncommitted changes: no commit of the
    clone can hold them.
    """
    listed = run_git(
        clone,
        [
            "status",
            "--porcelain=v2",
            "-z",
            "--untracked-files=no",
            "--ignore-submodules=none",
        ],
    )
    # git status, "Porcelain Format Version 2": the third field of a submodule is S, c
    # for its commit, M for changed files.
    changed = re.findall(r"(?:^|\0)1 .. S.M. (?:\S+ ){5}([^\0]+)", listed.output)
    if changed:
        raise RepositoryError(
            "{changed} is a submodule with uncommitted changes, which would not be measured; commit or stash "
            "them there",
            changed=changed[0],
        )


def _submodules(clone: Path, commit: str) -> Iterator[tuple[str, str]]:
    """The path and the commit of each submodule."""
    for entry in entries_of(
        run_git(clone, ["ls-tree", "-r", "-z", "--full-tree", commit]).output
    ):
        about, _, path = entry.partition("\t")
        if about.startswith(_LINK_MODE):
            yield path, about.split()[2]


def _check_out(source: Path, target: Path, commit: str) -> None:
    """Write the files of a commit into a folder, without a trace in the repository that
    they come from.
    """
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perfgate-index-") as folder:
        where = {
            **WITHOUT_LFS,
            "GIT_INDEX_FILE": str(Path(folder) / "index"),
            "GIT_WORK_TREE": str(target),
        }
        for arguments in (
            ["read-tree", commit],
            ["checkout-index", "--all", "--force", "--quiet"],
        ):
            result = run_git(source, arguments, where)
            if result.code:
                raise RepositoryError(
                    "git {arguments} failed in the submodule {source}: {why}",
                    arguments=arguments[0],
                    source=source,
                    why=result.errors,
                )


def _fill_large_files(clone: Path, tree: Path, commit: str, path_in_clone: str) -> None:
    for path in _pointers(clone, commit):
        target = tree / path
        digest = pointer_of(target)
        if digest is None:
            continue
        # Git LFS, docs/spec.md, "Local storage".
        common = run_git(
            clone, ["rev-parse", "--path-format=absolute", "--git-common-dir"]
        ).output
        content = Path(common) / "lfs" / "objects" / digest[:2] / digest[2:4] / digest
        if not content.is_file():
            if not (clone / path).is_file() or pointer_of(clone / path):
                continue
            run_git(
                clone,
                ["lfs", "fetch", "origin", commit, "--include", path],
                limit_seconds=FETCH_SECONDS,
            )
        if not content.is_file():
            raise RepositoryError(
                "{shown}{path} is kept in Git LFS, and this clone lacks its content of {commit}: `git lfs fetch "
                "origin {commit}`",
                shown=path_in_clone,
                path=path,
                commit=commit[:12],
            )
        shutil.copyfile(content, target)


def pointer_of(file: Path) -> str | None:
    """The SHA-256 of the content that a file of Git LFS stands for; None for any other
    file.
    """
    if (
        not file.is_file()
        or file.is_symlink()
        or file.stat().st_size >= MAX_POINTER_BYTES
    ):
        return None
    text = file.read_text(encoding="utf-8", errors="replace")
    match = _OBJECT.search(text)
    if match and text.startswith(LFS_LINE):
        return match[1]
    return None


def _pointers(clone: Path, commit: str) -> list[str]:
    """The files of a commit that Git LFS keeps elsewhere."""
    attributes = [
        "grep",
        "--quiet",
        "--fixed-strings",
        "filter=lfs",
        commit,
        "--",
        ":(glob)**/.gitattributes",
    ]
    if run_git(clone, attributes).code:
        return []
    pointers = [
        "grep",
        "-z",
        "--name-only",
        "--full-name",
        "--fixed-strings",
        LFS_LINE,
        commit,
    ]
    return [
        name.partition(":")[2] for name in entries_of(run_git(clone, pointers).output)
    ]

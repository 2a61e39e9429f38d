"""Whether files differ between two commits in nothing that Python runs, read from git objects: nothing is checked out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.sides.code_changes import MAX_BYTES, same_code
from perfgate.errors import RepositoryError
from perfgate.git.clone import has_commit
from perfgate.jobs.shared.fetched import fetched, git_bytes
from perfgate.judging.store.store import GitAccess

# A change of more files than these is measured: comparing it would take longer.
MOST_FILES = 200
# As `git diff --raw -z` prints one file that both commits have (git-diff, "Raw output format").
_MODIFIED = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) M\0([^\0]+)\0")
_REGULAR = (b"100644", b"100755")


class _Modified(NamedTuple):
    before: bytes
    after: bytes


def same_code_between(root: Path, base: str, head: str, files: Sequence[str], access: GitAccess | None = None) -> bool:
    """Return whether two commits have all these files with the same code; False where their contents cannot be had.

    The commits come from the clone around ``root``, or else, with ``access``, from the forge.
    """
    if len(files) > MOST_FILES or not all(file.endswith(".py") for file in files):
        return False
    try:
        if has_commit(root, base) and has_commit(root, head):
            return _same_code(root, base, head, files, {})
        if access is not None:
            with fetched([base, head], access) as (scratch, environ):
                return _same_code(scratch, base, head, files, environ)
    except RepositoryError:
        pass
    return False


def _same_code(repository: Path, base: str, head: str, files: Sequence[str], environ: Mapping[str, str]) -> bool:
    modified = _modified(repository, base, head, environ)
    if not modified.keys() >= set(files):
        return False
    pairs = [modified[file] for file in files]
    sizes = _sizes(repository, sorted({name for pair in pairs for name in pair}), environ)
    return max(sizes.values(), default=0) <= MAX_BYTES and all(
        same_code(*(_content(repository, name, environ) for name in pair)) for pair in pairs
    )


def _modified(repository: Path, base: str, head: str, environ: Mapping[str, str]) -> dict[str, _Modified]:
    """Return the files that both commits have as regular files of one mode; a link's target is no code."""
    listing = ["diff", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=M", base, head, "--"]
    return {
        path.decode(errors="surrogateescape"): _Modified(before, after)
        for old_mode, new_mode, before, after, path in _MODIFIED.findall(git_bytes(repository, listing, environ))
        if old_mode == new_mode and new_mode in _REGULAR
    }


def _sizes(repository: Path, objects: list[bytes], environ: Mapping[str, str]) -> dict[bytes, int]:
    """Return how large objects are, in bytes, before any is read."""
    asked = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
    found = git_bytes(repository, asked, environ, feed=b"".join(name + b"\n" for name in objects)) if objects else b""
    return {name: int(size) for name, size in (line.split() for line in found.splitlines())}


def _content(repository: Path, name: bytes, environ: Mapping[str, str]) -> bytes:
    return git_bytes(repository, ["cat-file", "blob", name.decode()], environ)

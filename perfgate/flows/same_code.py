"""Which files differ between two commits in nothing that Python runs, read from git objects: nothing is checked out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from perfgate.conductor.code_changes import MAX_BYTES, same_code
from perfgate.errors import RepositoryError
from perfgate.flows.clone import has_commit
from perfgate.flows.fetched import FETCH_SECONDS, fetched
from perfgate.git import exchange_with_git
from perfgate.judging.store.store import GitAccess

# A change of more files than these is measured: comparing it would take longer.
MOST_FILES = 200
# As `git diff --raw -z` prints one file that both commits have (git-diff, "Raw output format").
_MODIFIED = re.compile(rb":(\d{6}) (\d{6}) ([0-9a-f]+) ([0-9a-f]+) M\0([^\0]+)\0")
_REGULAR = (b"100644", b"100755")


class _Modified(NamedTuple):
    path: str
    before: bytes
    after: bytes


def same_code_between(root: Path, base: str, head: str, access: GitAccess | None = None) -> frozenset[str]:
    """Return the Python files that two commits have with the same code; none where their contents cannot be had.

    The commits come from the clone around ``root``, or else, with ``access``, from the forge.
    """
    try:
        if has_commit(root, base) and has_commit(root, head):
            return frozenset(_same_code(root, base, head, {}))
        if access is not None:
            with fetched([base, head], access) as (scratch, environ):
                return frozenset(_same_code(scratch, base, head, environ))
    except RepositoryError:
        pass
    return frozenset()


def _same_code(repository: Path, base: str, head: str, environ: Mapping[str, str]) -> Iterator[str]:
    modified = list(_modified_python(repository, base, head, environ))
    if len(modified) > MOST_FILES:
        return
    objects = {name for one in modified for name in (one.before, one.after)}
    sizes = _sizes(repository, sorted(objects), environ)
    small = [one for one in modified if max(sizes[one.before], sizes[one.after]) <= MAX_BYTES]
    for one in small:
        if same_code(*(_content(repository, name, environ) for name in (one.before, one.after))):
            yield one.path


def _modified_python(repository: Path, base: str, head: str, environ: Mapping[str, str]) -> Iterator[_Modified]:
    """Yield the Python files that both commits have as regular files of one mode; a link's target is no code."""
    listing = ["diff", "--raw", "-z", "--no-abbrev", "--no-renames", "--diff-filter=M", base, head, "--"]
    for old_mode, new_mode, before, after, path in _MODIFIED.findall(_run(repository, listing, environ)):
        if path.endswith(b".py") and old_mode == new_mode and new_mode in _REGULAR:
            yield _Modified(path.decode(errors="surrogateescape"), before, after)


def _sizes(repository: Path, objects: list[bytes], environ: Mapping[str, str]) -> dict[bytes, int]:
    """Return how large objects are, in bytes, before any is read."""
    asked = ["cat-file", "--batch-check=%(objectname) %(objectsize)"]
    found = _run(repository, asked, environ, feed=b"".join(name + b"\n" for name in objects)) if objects else b""
    return {name: int(size) for name, size in (line.split() for line in found.splitlines())}


def _content(repository: Path, name: bytes, environ: Mapping[str, str]) -> bytes:
    return _run(repository, ["cat-file", "blob", name.decode()], environ)


def _run(repository: Path, arguments: list[str], environ: Mapping[str, str], *, feed: bytes = b"") -> bytes:
    done = exchange_with_git(repository, arguments, environ, feed=feed, limit_seconds=FETCH_SECONDS)
    if done.code:
        raise RepositoryError(f"git {arguments[0]}: {done.errors[:300] or f'exit code {done.code}'}")
    return done.output

"""Which commit a release of perfgate is: a tag can be moved to other code, a commit cannot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional

from perfgate.errors import RepositoryError, UsageError
from perfgate.git import run_git
from perfgate.version import __version__

TAG = f"v{__version__}"
ANSWER_SECONDS = 20.0
_SHA = re.compile(r"[0-9a-f]{40}")


@dataclass(frozen=True)
class Pin:
    """What CI files name after the ``@``: ``commit``, or the tag alone and ``because`` it could not be asked for."""

    commit: Optional[str] = None
    because: str = ""

    @property
    def revision(self) -> str:
        """Return the commit where it is known, else the tag."""
        return self.commit or TAG


def given_pin(commit: str) -> Pin:
    """Return a commit named by hand. Raises UsageError for what is not the full name of one."""
    if not _SHA.fullmatch(commit):
        raise UsageError(f"--pin must be the 40 hexadecimal digits of a commit of perfgate, found {commit!r}")
    return Pin(commit)


def ask_for_pin(source: str, folder: Path) -> Pin:
    """Ask the repository at ``source``, a URL or a path, for the commit of this version's tag."""
    if source.startswith("-"):
        raise UsageError(f"--source must be a URL or a path, found {source!r}")
    tag = f"refs/tags/{TAG}"
    try:
        # `^{}` is the commit that an annotated tag names (git ls-remote).
        done = run_git(folder, ["ls-remote", source, tag, f"{tag}^{{}}"], {}, limit_seconds=ANSWER_SECONDS)
    except RepositoryError as error:
        return Pin(because=str(error))
    if done.code:
        return Pin(because=done.errors)
    found = {name: commit for commit, _, name in (line.partition("\t") for line in done.output.splitlines())}
    commit = found.get(f"{tag}^{{}}") or found.get(tag)
    return Pin(commit) if commit else Pin(because=f"{source} has no tag {TAG}")

"""The files that measured processes are known to read, so that a change of one is never skipped as documentation.

The sources are main's stored runs and, for measurements in this clone, a small file in its .git folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import PurePosixPath

import msgspec

from perfgate.config import Config
from perfgate.document.files import write_text_atomically
from perfgate.document.run import RunDocument
from perfgate.errors import PerfgateError, StoreError
from perfgate.flows.shared.store import open_project_store
from perfgate.git.repository import Repository

KEPT = "perfgate-reads.json"
# The measurements to remember: several, because one may have been of a single workload.
_MOST = 20
_NEWEST = 50
# Code, and settings that code reads. Files at the root, or in a folder that begins with a dot, configure tools: they name
# the documentation that they build and package.
_SOURCES = (
    ":(top)*.py",
    *(f":(top)*/*.{ending}" for ending in ("toml", "yaml", "yml", "json")),
    ":(top,exclude)setup.py",
    ":(top,exclude).*/*",
)
_OF_PATHS, _FILLED_IN = frozenset("/.*"), frozenset("*{%")
# A string without blanks in quotes, with the bracket or slash before it, or the value of a line of YAML; URLs do not match.
_STRING = re.compile(r"""(?:([(/]\s*)?["']|[:-]\s+)([^"'\s:]+)(?=["']|\s*$)""")


def together(first: list[str] | None, second: list[str] | None) -> list[str] | None:
    """The files of both; None if neither is known."""
    known = [files for files in (first, second) if files is not None]
    return sorted({file for files in known for file in files}) if known else None


def files_that_may_be_read(
    files: Sequence[str], repository: Repository, config: Config, commits: Iterable[str], environ: Mapping[str, str]
) -> set[str]:
    """The subset of files that code of the commits names, or else that resemble one that was read here or on main."""
    if named := files_named_in_code(files, repository, commits):
        return named
    return files_read_here(files, repository) or like_those(files, files_read_on_main(config, environ))


def files_read_here(files: Iterable[str], repository: Repository) -> set[str]:
    """The subset of files in the folder, and with the suffix, of one that a measurement in this clone read."""
    return like_those(files, {file for read in _kept(repository) for file in read})


def like_those(files: Iterable[str], read: Iterable[str]) -> set[str]:
    """The subset of files in the folder, and with the suffix, of one that was read: a glob may match both."""
    kinds = {_kind(file) for file in read}
    return {file for file in files if _kind(file) in kinds}


def _kind(file: str) -> tuple[str, str]:
    path = PurePosixPath(file)
    return str(path.parent), path.suffix


def files_named_in_code(files: Iterable[str], repository: Repository, commits: Iterable[str]) -> set[str]:
    """The subset of files that a string in a commit's code refers to: by name, by folder, or by a glob like ``*.md``.

    Before the first measurement there is no other sign that the workload reads them.
    """
    words = {file: _words_for(file) for file in files}
    texts = {word for wanted in words.values() for word in wanted}
    lines = (line for commit in commits for line in repository.lines_with(commit, texts, _SOURCES))
    found = {part for line in lines for part in _path_parts(line)}
    return {file for file, wanted in words.items() if wanted & found}


def _words_for(file: str) -> set[str]:
    path = PurePosixPath(file)
    return {path.name, *path.parent.parts, *([f"*{path.suffix}"] if path.suffix else [])}


def _path_parts(line: str) -> Iterator[str]:
    """The names of files and folders in a line of code; ``"docs"`` is a folder in ``Path("docs")``, a key in ``x["docs"]``.

    The folders of a fully named file do not count: nothing else is read from them.
    """
    for before, string in _STRING.findall(line):
        if before or _OF_PATHS & set(string):
            parts = string.rstrip("/").split("/")
            is_open = string.endswith("/") or _FILLED_IN & set(parts[-1])
            yield from parts if is_open else parts[-1:]


def files_read_on_main(config: Config, environ: Mapping[str, str]) -> frozenset[str]:
    """The files read by the newest stored run of each set of workloads; empty if the store cannot be read."""
    newest: dict[tuple[str, ...], str] = {}
    try:
        store = open_project_store(config, environ)
        for run in store.runs(config.project, limit=_NEWEST):
            newest.setdefault(tuple(run.workloads), run.id)
        documents = [store.show(run_id) for run_id in newest.values()]
    except StoreError:
        return frozenset()
    return frozenset(file for document in documents for file in document.files_read or ())


def remember_reads(repository: Repository, runs: Iterable[RunDocument]) -> None:
    """Remember the files read in the clone. A failure to write only costs the next check this information."""
    files = sorted({file for run in runs for file in run.files_read or ()})
    kept = [files, *(earlier for earlier in _kept(repository) if earlier != files)][:_MOST]
    with suppress(OSError, PerfgateError):
        write_text_atomically(repository.common_folder() / KEPT, msgspec.json.encode(kept).decode())


def _kept(repository: Repository) -> list[list[str]]:
    try:
        return msgspec.json.decode((repository.common_folder() / KEPT).read_bytes(), type=list[list[str]])
    except (OSError, PerfgateError, msgspec.DecodeError, UnicodeDecodeError):
        return []

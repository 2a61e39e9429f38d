"""Which files measured processes are known to read, so that a change of one is never skipped as documentation.

Main's stored runs say it, and of what was measured in this clone a small file in its .git folder.
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
# So many measurements are remembered: one may have been of a single workload.
_MOST = 20
_NEWEST = 50
# Code, and settings that code reads. What lies at the root, or in a folder that begins with a dot, configures tools: they name
# the documentation that they build and package.
_SOURCES = (
    ":(top)*.py",
    *(f":(top)*/*.{ending}" for ending in ("toml", "yaml", "yml", "json")),
    ":(top,exclude)setup.py",
    ":(top,exclude).*/*",
)
_OF_PATHS, _FILLED_IN = frozenset("/.*"), frozenset("*{%")
# A string without blanks in quotes, with the bracket or slash before it, or the value of a line of YAML; no address of a page.
_STRING = re.compile(r"""(?:([(/]\s*)?["']|[:-]\s+)([^"'\s:]+)(?=["']|\s*$)""")


def together(first: list[str] | None, second: list[str] | None) -> list[str] | None:
    """The files of both; None where neither is known."""
    known = [files for files in (first, second) if files is not None]
    return sorted({file for files in known for file in files}) if known else None


def files_that_may_be_read(
    files: Sequence[str], repository: Repository, config: Config, commits: Iterable[str], environ: Mapping[str, str]
) -> set[str]:
    """Those of the files that code of the commits names, or that are like one that was read here or on main."""
    if named := files_named_in_code(files, repository, commits):
        return named
    return files_read_here(files, repository) or like_those(files, files_read_on_main(config, environ))


def files_read_here(files: Iterable[str], repository: Repository) -> set[str]:
    """Those of the files that lie beside one that was read when something was measured in this clone, with its ending."""
    return like_those(files, {file for read in _kept(repository) for file in read})


def like_those(files: Iterable[str], read: Iterable[str]) -> set[str]:
    """Those of the files that lie beside one that was read, with its ending: a pattern may find both."""
    kinds = {_kind(file) for file in read}
    return {file for file in files if _kind(file) in kinds}


def _kind(file: str) -> tuple[str, str]:
    path = PurePosixPath(file)
    return str(path.parent), path.suffix


def files_named_in_code(files: Iterable[str], repository: Repository, commits: Iterable[str]) -> set[str]:
    """Those of the files that a string in the code of a commit names: by name, by a folder, or by a pattern like ``*.md``.

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
    """The names of files and folders in a line of code; ``"docs"`` is a folder in ``Path("docs")``, and a key in brackets.

    A folder above a file that is named in full is none: nothing else is read from it.
    """
    for before, string in _STRING.findall(line):
        if before or _OF_PATHS & set(string):
            parts = string.rstrip("/").split("/")
            is_open = string.endswith("/") or _FILLED_IN & set(parts[-1])
            yield from parts if is_open else parts[-1:]


def files_read_on_main(config: Config, environ: Mapping[str, str]) -> frozenset[str]:
    """What the newest stored run of each choice of workloads read; empty where the store cannot be read."""
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
    """Keep in the clone what was read. Where that fails, nothing is lost but a note for the next check."""
    files = sorted({file for run in runs for file in run.files_read or ()})
    kept = [files, *(earlier for earlier in _kept(repository) if earlier != files)][:_MOST]
    with suppress(OSError, PerfgateError):
        write_text_atomically(repository.common_folder() / KEPT, msgspec.json.encode(kept).decode())


def _kept(repository: Repository) -> list[list[str]]:
    try:
        return msgspec.json.decode((repository.common_folder() / KEPT).read_bytes(), type=list[list[str]])
    except (OSError, PerfgateError, msgspec.DecodeError, UnicodeDecodeError):
        return []

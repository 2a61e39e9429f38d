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
from perfgate.judging.store.runs import stored_run, stored_runs
from perfgate.judging.store.store import Page

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


def together(*lists: list[str] | None) -> list[str] | None:
    """The files of all lists; None if none is known."""
    read = [files for files in lists if files is not None]
    if read:
        return sorted(set().union(*read))
    return None


def files_that_may_be_read(
    files: Sequence[str],
    repository: Repository,
    config: Config,
    commits: Iterable[str],
    environ: Mapping[str, str],
    *,
    in_clone: bool,
) -> set[str]:
    """The subset of files that code of the commits names, or that no run is known to have left unread.

    ``in_clone`` is whether measurements in this clone count too; a job that publishes knows only main's measurements.
    """
    if named := files_named_in_code(files, repository, commits):
        return named
    here = None
    if in_clone:
        here = _read_here_by_all(repository, config)
    return not_known_as_unread(files, here, files_read_on_main(config, environ))


def not_known_as_unread(files: Iterable[str], *records: frozenset[str] | None) -> set[str]:
    """The subset of files that may be read: those like one that was read, or all if there is no record of all workloads."""
    recorded = [record for record in records if record is not None]
    if not recorded:
        return set(files)
    return like_those(files, set().union(*recorded))


def files_read_here(files: Iterable[str], repository: Repository) -> set[str]:
    """The subset of files in the folder, and with the suffix, of one that a measurement in this clone read."""
    return like_those(files, set().union(*(record.files for record in _kept(repository))))


def _read_here_by_all(repository: Repository, config: Config) -> frozenset[str] | None:
    """The files read by measurements in this clone; None unless these were of all workloads."""
    records = _kept(repository)
    measured = set().union(*(record.workloads for record in records))
    if not measured.issuperset(config.names):
        return None
    return frozenset().union(*(record.files for record in records))


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
    texts = set().union(*words.values())
    parts: set[str] = set()
    for commit in commits:
        for line in repository.lines_with(commit, texts, _SOURCES):
            parts.update(_path_parts(line))
    return {file for file, of_file in words.items() if of_file & parts}


def _words_for(file: str) -> set[str]:
    path = PurePosixPath(file)
    words = {path.name, *path.parent.parts}
    if path.suffix:
        words.add(f"*{path.suffix}")
    return words


def _path_parts(line: str) -> Iterator[str]:
    """The names of files and folders in a line of code; ``"docs"`` is a folder in ``Path("docs")``, a key in ``x["docs"]``.

    The folders of a fully named file do not count: only this file is read from them.
    """
    for before, string in _STRING.findall(line):
        if before or _OF_PATHS & set(string):
            parts = string.rstrip("/").split("/")
            is_open = string.endswith("/") or _FILLED_IN & set(parts[-1])
            yield from parts if is_open else parts[-1:]


def files_read_on_main(config: Config, environ: Mapping[str, str]) -> frozenset[str] | None:
    """The files read by the newest stored run of each set of workloads.

    None if the store cannot be read, or if these runs are not of all workloads or could not follow what was read.
    """
    newest: dict[tuple[str, ...], str] = {}
    try:
        store = open_project_store(config, environ)
        for run in stored_runs(store, config.project, Page(limit=_NEWEST)):
            newest.setdefault(tuple(run.workloads), run.id)
        documents = [stored_run(store, config.project, run_id) for run_id in newest.values()]
    except StoreError:
        return None
    followed = [document for document in documents if document.files_read is not None]
    if not _measured_by(followed).issuperset(config.names):
        return None
    return _files_read_by(followed)


def _measured_by(runs: Iterable[RunDocument]) -> set[str]:
    names: set[str] = set()
    for run in runs:
        names.update(workload.name for workload in run.workloads)
        names.update(job.name for job in run.jobs)
    return names


def _files_read_by(runs: Iterable[RunDocument]) -> frozenset[str]:
    return frozenset().union(*(run.files_read or () for run in runs))


class _Reads(msgspec.Struct, frozen=True):
    """The files that a measurement in this clone read, and its workloads."""

    files: list[str]
    workloads: list[str]


def remember_reads(repository: Repository, runs: Sequence[RunDocument]) -> None:
    """Remember the files read in the clone. A failure to write only costs the next check this information."""
    followed = [run for run in runs if run.files_read is not None]
    if len(followed) < len(runs):
        return
    record = _Reads(files=sorted(_files_read_by(followed)), workloads=sorted(_measured_by(followed)))
    records = [record, *(earlier for earlier in _kept(repository) if earlier != record)]
    with suppress(OSError, PerfgateError):
        text = msgspec.json.encode(records[:_MOST]).decode()
        write_text_atomically(repository.common_folder() / KEPT, text)


def _kept(repository: Repository) -> list[_Reads]:
    try:
        return msgspec.json.decode((repository.common_folder() / KEPT).read_bytes(), type=list[_Reads])
    except (OSError, PerfgateError, msgspec.DecodeError, UnicodeDecodeError):
        return []

"""The files that measured processes are known to read, so that a change of one is never
skipped as documentation.

The sources are main's stored runs and, for measurements in this clone, a small file in
its .git folder.
"""

from __future__ import annotations

import os
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
# Code, and settings that code reads. Files at the root, or in a folder that begins with
# a dot, configure tools: they name the documentation that they build and package.
_SOURCES = (
    ":(top)*.py",
    *(":(top)*/*.toml", ":(top)*/*.yaml", ":(top)*/*.yml", ":(top)*/*.json"),
    ":(top,exclude)setup.py",
    ":(top,exclude).*/*",
)
_OF_PATHS, _FILLED_IN = frozenset("/.*"), frozenset("*{%")
# A string without blanks in quotes, with the bracket or slash before it, or the value
# of a line of YAML; URLs do not match.
_STRING = re.compile(r"""(?:([(/]\s*)?["']|[:-]\s+)([^"'\s:]+)(?=["']|\s*$)""")


def together(*lists: list[str] | None) -> list[str] | None:
    """The files of all lists; None if no list is known."""
    read = [files for files in lists if files is not None]
    if read:
        return sorted(set().union(*read))
    return None


def files_that_may_be_read(
    files: Sequence[str],
    repository: Repository,
    config: Config,
    commits: Iterable[str],
    *,
    in_clone: bool,
) -> set[str]:
    """The subset of files that code of the commits names, or that no run is known to
    have left unread.

    ``in_clone`` is whether measurements in this clone count too; a job that publishes
    knows only main's measurements.
    """
    if named := files_named_in_code(files, repository, commits):
        return named
    in_this_clone = None
    if in_clone:
        in_this_clone = _remembered(repository).of_all(config)
    return not_known_as_unread(
        files, in_this_clone, files_read_on_main(config, os.environ)
    )


def not_known_as_unread(
    files: Iterable[str], *records: frozenset[str] | None
) -> set[str]:
    """The subset of files that may be read: those like one that was read, or all if
    there is no record of all workloads.
    """
    recorded = [record for record in records if record is not None]
    if not recorded:
        return set(files)
    return like_read_files(files, set().union(*recorded))


def files_read_here(files: Iterable[str], repository: Repository) -> set[str]:
    """The subset of files in the folder, and with the suffix, of one that a measurement
    in this clone read.
    """
    return like_read_files(files, _remembered(repository).files)


def like_read_files(files: Iterable[str], read: Iterable[str]) -> set[str]:
    """The subset of files in the folder, and with the suffix, of one that was read: a
    glob may match both.

    A name that is not text stands in no list of what was read, so it counts as read.
    """
    kinds = {_kind(file) for file in read}
    return {file for file in files if _kind(file) in kinds or not file.isprintable()}


def _kind(file: str) -> tuple[PurePosixPath, str]:
    path = PurePosixPath(file)
    return path.parent, path.suffix


def files_named_in_code(
    files: Iterable[str], repository: Repository, commits: Iterable[str]
) -> set[str]:
    """The subset of files that a string in a commit's code refers to: by name, by
    folder, or by a glob like ``*.md``.

    Before the first measurement there is no other sign that the workload reads them.
    """
    words: dict[str, set[str]] = {}
    for file in files:
        path = PurePosixPath(file)
        words[file] = {path.name, *path.parent.parts}
        if path.suffix:
            words[file].add(f"*{path.suffix}")
    texts = set().union(*words.values())
    parts: set[str] = set()
    for commit in commits:
        for line in repository.lines_with(commit, texts, _SOURCES):
            parts.update(_path_parts(line))
    return {file for file, of_file in words.items() if of_file & parts}


def _path_parts(line: str) -> Iterator[str]:
    """The names of files and folders in a line of code; ``"docs"`` is a folder in
    ``Path("docs")``, a key in ``x["docs"]``.

    The folders of a fully named file do not count: only this file is read from them.
    """
    for before, string in _STRING.findall(line):
        if before or _OF_PATHS & set(string):
            parts = string.rstrip("/").split("/")
            is_open = string.endswith("/") or _FILLED_IN & set(parts[-1])
            if is_open:
                yield from parts
            else:
                yield parts[-1]


def files_read_on_main(
    config: Config, environ: Mapping[str, str]
) -> frozenset[str] | None:
    """The files read by the newest stored run of each set of workloads.

    None if the store cannot be read, or if these runs are not of all workloads or could
    not follow what was read.
    """
    newest: dict[tuple[str, ...], str] = {}
    try:
        store = open_project_store(config, environ)
        for run in stored_runs(store, config.project, Page(limit=_NEWEST)):
            newest.setdefault(tuple(run.workloads), run.id)
        documents = [
            stored_run(store, config.project, run_id) for run_id in newest.values()
        ]
    except StoreError:
        return None
    reads = _ReadFiles()
    for document in documents:
        reads.add(document)
    return reads.of_all(config)


class _ReadFiles(msgspec.Struct):
    """The files that measurements read, and their workloads."""

    files: set[str] = msgspec.field(default_factory=set)
    workloads: set[str] = msgspec.field(default_factory=set)

    def add(self, run: RunDocument) -> None:
        """Add a run, unless it could not follow what was read."""
        if run.source.files_read is not None:
            self.files.update(run.source.files_read)
            self.workloads.update(workload.name for workload in run.workloads)
            self.workloads.update(job.name for job in run.jobs.records)

    def of_all(self, config: Config) -> frozenset[str] | None:
        """The files, None unless all workloads of the project were measured."""
        if self.workloads.issuperset(config.names):
            return frozenset(self.files)
        return None


def _remembered(repository: Repository) -> _ReadFiles:
    """The files that measurements in this clone read."""
    reads = _ReadFiles()
    for record in _records(repository):
        reads.files |= record.files
        reads.workloads |= record.workloads
    return reads


def remember_reads(repository: Repository, runs: Sequence[RunDocument]) -> None:
    """Remember the files read in the clone. A failure to write only costs the next
    check this information.
    """
    reads = _ReadFiles()
    for run in runs:
        if run.source.files_read is None:
            return
        reads.add(run)
    earlier = [record for record in _records(repository) if record != reads]
    records = [reads, *earlier]
    with suppress(OSError, PerfgateError):
        text = msgspec.json.encode(records[:_MOST], order="deterministic").decode()
        write_text_atomically(repository.common_folder() / KEPT, text)


def _records(repository: Repository) -> list[_ReadFiles]:
    try:
        return msgspec.json.decode(
            (repository.common_folder() / KEPT).read_bytes(), type=list[_ReadFiles]
        )
    except (OSError, PerfgateError, msgspec.DecodeError, UnicodeDecodeError):
        return []

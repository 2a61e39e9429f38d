"""Which files measured processes are known to read, so that a change of one is never skipped as documentation.

Main's stored runs say it, and of what was measured in this clone a small file in its .git folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from perfgate.config import Config
from perfgate.document.files import write_text_atomically
from perfgate.document.run import RunDocument
from perfgate.errors import PerfgateError, StoreError
from perfgate.git.repository import Repository
from perfgate.jobs.shared.store import open_project_store

KEPT = "perfgate-reads.json"
# So many measurements are remembered: one may have been of a single workload.
_MOST = 20
_NEWEST = 50


def together(first: list[str] | None, second: list[str] | None) -> list[str] | None:
    """The files of both; None where neither is known."""
    known = [files for files in (first, second) if files is not None]
    return sorted({file for files in known for file in files}) if known else None


def files_known_read(repository: Repository, config: Config, environ: Mapping[str, str]) -> frozenset[str]:
    """What main's runs read, and what was read in this clone; empty where neither has been recorded."""
    return frozenset(file for files in _kept(repository) for file in files) | files_read_on_main(config, environ)


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

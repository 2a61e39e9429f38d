"""Carry the content of a store elsewhere: into another store, or into files that need
no store to be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError
from perfgate.judging.store.copied_ledger import LedgerCopy, LeftBehind
from perfgate.judging.store.layout import encode_list, project_key
from perfgate.judging.store.runs import intact_run, run_entry, stored_runs
from perfgate.judging.store.store import (
    COPIER,
    STATEMENTS,
    RunEntry,
    Statement,
    Store,
    StoredDocument,
)

AT_ONCE = 50
INDEX = "index.json"
Advance = Callable[[str, int, int], None]
"""Told of a project, how many of its runs are done, and how many there are."""


class Exported(msgspec.Struct, kw_only=True):
    """What was exported, in numbers, and a message for each run that is damaged and was
    left out.
    """

    runs: int = 0
    acceptances: int = 0
    triages: int = 0
    confirmations: int = 0
    gates: int = 0
    damaged: list[str] = []

    def count(self, name: str, statements: int) -> None:
        """Add the number of statements of the kind with this name."""
        setattr(self, name, getattr(self, name) + statements)


class Copied(Exported, kw_only=True):
    """The numbers of copied entries; ``not_copied`` counts entries that the target does
    not keep or the copy does not cover.
    """

    tokens: int = 0
    audit_entries: int = 0
    not_copied: LeftBehind


def copy_store(
    source: Store,
    target: Store,
    projects: Sequence[str],
    advance: Advance,
    *,
    is_whole: bool,
) -> Copied:
    """Copy projects; runs of the target stay, and of two statements about the same the
    newer one counts.

    So a copy that was interrupted can be repeated, and one store can follow another.
    ``is_whole`` is whether the projects are all of them: then the tokens for all
    projects are copied, too.
    """
    copied_projects = None if is_whole else projects
    ledger = LedgerCopy(source.ledger(), target.ledger(), copied_projects)
    # Before the runs, so that the history has lower numbers than the entries of this
    # copy itself.
    ledger.bring_history()
    copied = Copied(not_copied=ledger.left)
    for project in projects:
        _copy_runs(source, target, project, copied, advance)
        for name, kind in STATEMENTS.items():
            newer = _newer(source.entries(project, kind), target.entries(project, kind))
            target.append(project, newer, actor=COPIER)
            copied.count(name, len(newer))
    copied.tokens = ledger.bring_tokens()
    # The changes of the source since then, e.g. of runs that were recorded while this
    # copied.
    ledger.bring_history()
    copied.audit_entries = ledger.entries
    return copied


def _copy_runs(
    source: Store, target: Store, project: str, copied: Copied, advance: Advance
) -> None:
    present = {run.id for run in stored_runs(target, project)}
    missing = [run for run in stored_runs(source, project) if run.id not in present]
    missing.reverse()
    copied.damaged += source.damaged(project)
    for batch in in_batches(source, missing, project, advance):
        documents: dict[str, bytes] = {}
        entries: list[RunEntry] = []
        for stored, document in batch:
            try:
                run = intact_run(document)
                # Derived again, in case the source's entry differs from the document.
                entries.append(run_entry(run, document.id, stored.recorded_at))
            except StoreError as error:
                copied.damaged.append(str(error))
                continue
            documents[document.id] = document.data
        target.append(project, entries, documents, actor=COPIER)
        copied.runs += len(entries)


def exported_files(
    store: Store, projects: Iterable[str], exported: Exported, advance: Advance
) -> Iterator[tuple[str, bytes]]:
    """The files of an export, with their paths; ``exported`` counts them.

    The name of a run's file is the SHA-256 of its content, as is the run's id.
    """
    index = []
    for project in projects:
        folder = project_key(project)
        exported.damaged += store.damaged(project)
        runs: list[StoredRun] = []
        for batch in in_batches(store, stored_runs(store, project), project, advance):
            for stored, document in batch:
                try:
                    intact_run(document)
                except StoreError as error:
                    exported.damaged.append(str(error))
                    continue
                runs.append(stored)
                exported.runs += 1
                yield f"{folder}/runs/{document.id}.json", document.data
        for name, kind in STATEMENTS.items():
            statements = store.entries(project, kind)
            exported.count(name, len(statements))
            yield f"{folder}/{name}.json", encode_list(statements)
        index.append({"project": project, "folder": folder, "runs": runs})
    yield INDEX, encode_list(index)


def in_batches(
    store: Store, runs: Sequence[StoredRun], project: str, advance: Advance
) -> Iterator[list[tuple[StoredRun, StoredDocument]]]:
    """The runs of a project with their documents; a batch fits into memory."""
    for start in range(0, len(runs), AT_ONCE):
        advance(project, start, len(runs))
        batch = runs[start : start + AT_ONCE]
        documents = store.documents(project, [run.id for run in batch])
        yield list(zip(batch, documents))


def _newer(source: Sequence[Statement], target: Iterable[Statement]) -> list[Statement]:
    """The statements that the target lacks or has in an older version, oldest first."""
    times = {statement.key: statement.stated_at for statement in target}
    newer: list[Statement] = []
    for statement in reversed(source):
        if statement.key not in times or times[statement.key] < statement.stated_at:
            newer.append(statement)
    return newer

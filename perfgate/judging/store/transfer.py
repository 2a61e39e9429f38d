"""Carry the content of a store elsewhere: into another store, or into files that need no store to be read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError
from perfgate.judging.store.layout import encode_list, project_key
from perfgate.judging.store.store import Statement, Store, StoredDocument, intact_run

AT_ONCE = 50
INDEX = "index.json"
Advance = Callable[[str, int, int], None]
"""Told of a project, how many of its runs are done, and how many there are."""


class Transferred(msgspec.Struct, kw_only=True):
    """What was copied or exported, in numbers, and a message for each run that is damaged and was left out."""

    runs: int = 0
    acceptances: int = 0
    confirmations: int = 0
    damaged: list[str] = []


def copy_store(source: Store, target: Store, projects: Iterable[str], advance: Advance) -> Transferred:
    """Copy projects; runs of the target stay, and of two statements about the same the newer one counts.

    So a copy that was interrupted can be repeated, and one store can follow another.
    """
    done = Transferred()
    for project in projects:
        present = {run.id for run in target.runs(project)}
        missing = [run for run in reversed(source.runs(project)) if run.id not in present]
        done.damaged += source.damaged(project)
        for documents in _intact(source, project, missing, done, advance):
            target.restore(documents)
        for acceptance in _newer(source.accepted(project), target.accepted(project)):
            target.accept(project, acceptance)
            done.acceptances += 1
        for confirmation in _newer(source.confirmations(project), target.confirmations(project)):
            target.confirm(project, confirmation)
            done.confirmations += 1
        for triage in _newer(source.triages(project), target.triages(project)):
            target.triage(project, triage)
        if verdicts := _newer(source.gates(project), target.gates(project)):
            target.keep_gates(project, verdicts)
    return done


def exported_files(
    store: Store, projects: Iterable[str], done: Transferred, advance: Advance
) -> Iterator[tuple[str, bytes]]:
    """The files of an export, with their paths; ``done`` counts them.

    The name of a run's file is the SHA-256 of its content, as is the run's id.
    """
    index = []
    for project in projects:
        runs, folder = store.runs(project), project_key(project)
        done.damaged += store.damaged(project)
        exported: set[str] = set()
        for documents in _intact(store, project, runs, done, advance):
            exported.update(document.id for document in documents)
            yield from ((f"{folder}/runs/{document.id}.json", document.data) for document in documents)
        accepted, confirmations = store.accepted(project), store.confirmations(project)
        done.acceptances += len(accepted)
        done.confirmations += len(confirmations)
        yield f"{folder}/acceptances.json", encode_list(accepted)
        yield f"{folder}/triages.json", encode_list(store.triages(project))
        yield f"{folder}/confirmations.json", encode_list(confirmations)
        yield f"{folder}/gates.json", encode_list(store.gates(project))
        newest_first = [run for run in runs if run.id in exported]
        index.append({"project": project, "folder": folder, "runs": newest_first})
    yield INDEX, encode_list(index)


def in_batches(runs: Sequence[StoredRun], project: str, advance: Advance) -> Iterator[Sequence[StoredRun]]:
    """The runs of a project, as many at a time as are held in memory."""
    for start in range(0, len(runs), AT_ONCE):
        advance(project, start, len(runs))
        yield runs[start : start + AT_ONCE]


def _intact(
    store: Store, project: str, runs: Sequence[StoredRun], done: Transferred, advance: Advance
) -> Iterator[list[StoredDocument]]:
    for some in in_batches(runs, project, advance):
        intact = []
        for document in store.documents(some):
            try:
                intact_run(document)
            except StoreError as error:
                done.damaged.append(str(error))
            else:
                intact.append(document)
        yield intact
        done.runs += len(intact)


def _newer(source: Iterable[Statement], target: Iterable[Statement]) -> list[Statement]:
    """Those that the target lacks, or has an older one of, oldest first."""
    known = {statement.key: statement.stated_at for statement in target}
    return [entry for entry in source if entry.key not in known or known[entry.key] < entry.stated_at][::-1]

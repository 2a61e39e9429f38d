"""Check that a store still holds what was recorded: every document by its hash and format, and every list by its document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError
from perfgate.judging.store.store import STATEMENTS, RunEntry, Store, intact_run, run_entry
from perfgate.judging.store.transfer import Advance, in_batches

REMEDY = "bring back a copy of the store, or copy it to a new one with `perfgate store copy`, which makes lists from documents"


class Verified(msgspec.Struct, kw_only=True):
    """The number of runs that were read, and a message for each fault."""

    runs: int = 0
    faults: list[str] = []


def verify_store(store: Store, projects: Iterable[str], advance: Advance) -> Verified:
    """Read everything that a store holds of some projects."""
    done = Verified()
    for project in projects:
        done.faults += store.damaged(project)
        runs = store.runs(project)
        for some in in_batches(runs, project, advance):
            done.faults += _faults_of_runs(store, some)
            done.runs += len(some)
        for kind in STATEMENTS.values():
            try:
                store.statements(project, kind)
            except StoreError as error:
                done.faults.append(str(error))
    return done


def _faults_of_runs(store: Store, runs: Iterable[StoredRun]) -> Iterator[str]:
    listed = list(runs)
    entries: dict[str, RunEntry] = {}
    try:
        entries = {entry.run.id: entry for entry in store.entries(listed)}
    except StoreError as error:
        yield str(error)
    for document in store.documents(listed):
        try:
            expected = run_entry(intact_run(document), document)
        except StoreError as error:
            yield str(error)
            continue
        if (entry := entries.get(document.id)) and (parts := list(_differences(entry, expected))):
            name = f"run {document.id[:12]} of {expected.run.project[:80]!a}"
            yield f"{name}: {', '.join(parts)} differ from its document; {REMEDY}"


def _differences(entry: RunEntry, expected: RunEntry) -> Iterator[str]:
    """The parts of an entry that do not follow from the document."""
    for name in StoredRun.__struct_fields__:
        if getattr(entry.run, name) != getattr(expected.run, name):
            yield name
    if entry.started != expected.started:
        yield "started"
    for name in ("values", "conditions"):
        there, made = ({msgspec.json.encode(part) for part in getattr(each, name)} for each in (entry, expected))
        if there != made:
            yield f"{len(there ^ made)} of its {name}"

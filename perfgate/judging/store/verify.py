"""Check a store: each document against its hash and format, and each entry against its
document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import msgspec

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.runs import intact_run, run_entries, run_entry
from perfgate.judging.store.store import STATEMENTS, RunEntry, Store, StoredDocument
from perfgate.judging.store.transfer import AT_ONCE, Advance

REMEDY = "bring back a copy of the store, or copy it to a new one with `perfgate store copy`, which makes lists from documents"


class Verified(msgspec.Struct, kw_only=True):
    """The number of runs that were read, and a message for each fault."""

    runs: int = 0
    faults: list[str] = []


def verify_store(store: Store, projects: Iterable[str], advance: Advance) -> Verified:
    """Read everything that a store holds of some projects.

    Raises StoreRefusedError if the store cannot be reached, which is no fault in it.
    """
    verified = Verified()
    for project in projects:
        verified.faults += store.damaged(project)
        try:
            runs = sum(1 for _ in run_entries(store, project))
        except StoreRefusedError:
            raise
        except StoreError as error:
            verified.faults.append(str(error))
            continue
        for done, faults in _verified_runs(store, project):
            advance(project, done, runs)
            verified.runs += 1
            verified.faults += faults
        verified.faults += _faults_of_statements(store, project)
    return verified


def _verified_runs(store: Store, project: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the runs before each run of a project, and its faults; a few runs
    are in memory at once.
    """
    done, before = 0, None
    entries = run_entries(store, project)
    while batch := list(islice(entries, AT_ONCE)):
        documents = store.documents(project, [entry.run.id for entry in batch])
        for entry, document in zip(batch, documents):
            faults = _faults_of_run(entry, document)
            yield done, [*_faults_of_order(before, entry), *faults]
            done, before = done + 1, entry


def _faults_of_statements(store: Store, project: str) -> Iterator[str]:
    for kind in STATEMENTS.values():
        try:
            store.entries(project, kind)
        except StoreRefusedError:
            raise
        except StoreError as error:
            yield str(error)


def _faults_of_order(before: RunEntry | None, entry: RunEntry) -> Iterator[str]:
    """A message for a run that a store lists behind an earlier one; ``before`` is the
    run that it lists before.
    """
    if before is None:
        return
    if (-entry.started, entry.run.id) < (-before.started, before.run.id):
        name = f"run {entry.run.id[:12]} of {entry.run.project[:80]!a}"
        yield f"{name} is not listed in the order of its start; {REMEDY}"


def _faults_of_run(entry: RunEntry, document: StoredDocument) -> list[str]:
    try:
        run = intact_run(document)
        expected = run_entry(run, document.id, entry.run.recorded_at)
    except StoreError as error:
        return [str(error)]
    parts = list(_differences(entry, expected))
    if not parts:
        return []
    name = f"run {document.id[:12]} of {expected.run.project[:80]!a}"
    return [f"{name}: {', '.join(parts)} differ from its document; {REMEDY}"]


def _differences(entry: RunEntry, expected: RunEntry) -> Iterator[str]:
    """The parts of an entry that do not follow from the document."""
    for name in StoredRun.__struct_fields__:
        if getattr(entry.run, name) != getattr(expected.run, name):
            yield name
    if entry.started != expected.started:
        yield "started"
    if values := _encoded(entry.values) ^ _encoded(expected.values):
        yield f"{len(values)} of its values"
    if conditions := _encoded(entry.conditions) ^ _encoded(expected.conditions):
        yield f"{len(conditions)} of its conditions"


def _encoded(parts: Iterable[msgspec.Struct]) -> set[bytes]:
    return set(map(msgspec.json.encode, parts))

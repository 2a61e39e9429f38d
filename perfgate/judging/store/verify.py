"""Check a store: each document against its hash and format, and each entry against its
document.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from perfgate.document.history import StoredRun
from perfgate.errors import StoreError
from perfgate.judging.store.runs import intact_run, run_entry
from perfgate.judging.store.store import STATEMENTS, RunEntry, Store, StoredDocument
from perfgate.judging.store.transfer import Advance, in_batches

REMEDY = "bring back a copy of the store, or copy it to a new one with `perfgate store copy`, which makes lists from documents"


class Verified(msgspec.Struct, kw_only=True):
    """The number of runs that were read, and a message for each fault."""

    runs: int = 0
    faults: list[str] = []


def verify_store(store: Store, projects: Iterable[str], advance: Advance) -> Verified:
    """Read everything that a store holds of some projects."""
    verified = Verified()
    for project in projects:
        verified.faults += store.damaged(project)
        try:
            entries = store.entries(project, RunEntry)
        except StoreError as error:
            verified.faults.append(str(error))
            continue
        verified.faults += _faults_of_order(entries)
        by_id = {entry.run.id: entry for entry in entries}
        runs = [entry.run for entry in entries]
        for batch in in_batches(store, runs, project, advance):
            for run, document in batch:
                verified.faults += _faults_of_run(by_id[run.id], document)
            verified.runs += len(batch)
        for kind in STATEMENTS.values():
            try:
                store.entries(project, kind)
            except StoreError as error:
                verified.faults.append(str(error))
    return verified


def _faults_of_order(newest_first: Sequence[RunEntry]) -> Iterator[str]:
    """A message for each run that a store lists behind an earlier one."""
    for before, entry in pairwise(newest_first):
        if (-entry.started, entry.run.id) < (-before.started, before.run.id):
            name = f"run {entry.run.id[:12]} of {entry.run.project[:80]!a}"
            yield f"{name} is not listed in the order of its start; {REMEDY}"


def _faults_of_run(entry: RunEntry, document: StoredDocument) -> list[str]:
    try:
        run = intact_run(document)
    except StoreError as error:
        return [str(error)]
    expected = run_entry(run, document.id, entry.run.recorded_at)
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

"""Carry the tokens and the audit history of one store into another."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from perfgate.judging.store.ledger import AuditEntry, Ledger, StoredToken

_AT_ONCE = 1_000


class LeftBehind(msgspec.Struct, kw_only=True):
    """What of a store was not copied: because the target keeps none, or because it belongs to all projects, not to some."""

    tokens: int = 0
    audit_entries: int = 0
    tokens_of_all_projects: int = 0


class LedgerCopy:
    """One copy of tokens and audit history; ``projects`` None: of all of them.

    Tokens are known by their hash, and entries by their content, so a copy can be repeated. ``left`` counts the rest, which the
    target does not keep.
    """

    def __init__(self, source: Ledger | None, target: Ledger | None, projects: Sequence[str] | None) -> None:
        self._source, self._target = source, target
        self._projects = None if projects is None else frozenset(projects)
        self._last = 0
        self._present: Counter[bytes] = Counter()
        if source is not None and target is not None:
            self._present.update(map(_content, target.history()))
        self.entries = 0
        self.left = LeftBehind()

    def bring_tokens(self) -> int:
        """Copy the tokens, revoked ones too; return the number of new and newly revoked ones."""
        chosen = self._chosen_tokens(self._source.stored_tokens() if self._source is not None else [])
        if self._target is None:
            self.left.tokens += len(chosen)
            return 0
        return self._target.restore_tokens(chosen)

    def bring_history(self) -> None:
        """Copy the entries that the target lacks, in their order; the next call continues from there."""
        for entries in _in_batches(self._missing()):
            if self._target is None:
                self.left.audit_entries += len(entries)
            else:
                self._target.restore_history(entries)
                self.entries += len(entries)

    def _chosen_tokens(self, tokens: Iterable[StoredToken]) -> list[StoredToken]:
        chosen = []
        for stored in tokens:
            if self._projects is None or stored.token.project in self._projects:
                chosen.append(stored)
            elif stored.token.project is None:
                self.left.tokens_of_all_projects += 1
        return chosen

    def _missing(self) -> Iterator[AuditEntry]:
        if self._source is None:
            return
        for entry in self._source.history(after=self._last):
            self._last = entry.number
            if self._projects is not None and entry.project not in self._projects:
                continue
            content = _content(entry)
            if self._present[content]:
                self._present[content] -= 1
            else:
                yield entry


def _content(entry: AuditEntry) -> bytes:
    """What two entries of different stores share if they are of one change. Short, as a store may have a million."""
    text = "\0".join((entry.at, entry.actor, entry.action, entry.project, entry.subject))
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def _in_batches(entries: Iterator[AuditEntry]) -> Iterator[list[AuditEntry]]:
    batch: list[AuditEntry] = []
    for entry in entries:
        batch.append(entry)
        if len(batch) == _AT_ONCE:
            yield batch
            batch = []
    if batch:
        yield batch

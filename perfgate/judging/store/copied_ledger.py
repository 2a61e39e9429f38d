"""Carry the tokens and the audit history of one store into another."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from perfgate.judging.store.ledger import AuditEntry, Ledger, StoredToken

_AT_ONCE = 1_000


class LeftBehind(msgspec.Struct, kw_only=True):
    """Content that was not copied: the target keeps none, or it belongs to all projects
    and only some were copied.
    """

    tokens: int = 0
    audit_entries: int = 0
    tokens_of_all_projects: int = 0


class LedgerCopy:
    """A copy of tokens and audit history of some projects, or of all if ``projects`` is
    None.

    Tokens are identified by their hash, and entries by their content, so a copy can be
    repeated. ``left`` counts the content that the target does not keep.
    """

    def __init__(
        self,
        source: Ledger | None,
        target: Ledger | None,
        projects: Sequence[str] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._projects = None if projects is None else frozenset(projects)
        self._last = 0
        self._present: Counter[bytes] = Counter()
        if source is not None and target is not None:
            self._present.update(map(_content, target.history()))
        self.entries = 0
        self.left = LeftBehind()

    def bring_tokens(self) -> int:
        """Copy the tokens, revoked tokens too; return the number of tokens that are new
        or newly revoked.
        """
        if self._source is None:
            return 0
        selected: list[StoredToken] = []
        for stored in self._source.stored_tokens():
            if self._projects is None or stored.token.project in self._projects:
                selected.append(stored)
            elif stored.token.project is None:
                self.left.tokens_of_all_projects += 1
        if self._target is None:
            self.left.tokens += len(selected)
            return 0
        return self._target.restore_tokens(selected)

    def bring_history(self) -> None:
        """Copy the entries that the target lacks, in their order; the next call
        continues from there.
        """
        missing = self._missing()
        while entries := list(islice(missing, _AT_ONCE)):
            if self._target is None:
                self.left.audit_entries += len(entries)
            else:
                self._target.restore_history(entries)
                self.entries += len(entries)

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
    """What two entries of different stores share if they are of one change. Short, as a
    store may have a million.
    """
    text = "\0".join(
        (entry.at, entry.actor, entry.action, entry.project, entry.subject)
    )
    return hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()

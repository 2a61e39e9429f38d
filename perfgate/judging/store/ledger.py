"""The tokens of a store's service, and the audit log of its changes, in the database of
the log.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from perfgate.errors import OlderStoreError, StoreError
from perfgate.judging.store.database import StoreDatabase
from perfgate.judging.store.store import COPIER, LOCAL
from perfgate.judging.store.tables import AUDIT, TOKENS

# A token begins with this, so that no other secret is ever sent to a service, and
# scanners of leaked secrets recognise it.
TOKEN_PREFIX = "perfgate_"  # noqa: S105 - not a secret
# 256 random bits, which cannot be tried out, so a fast hash is enough: salt and slow
# hashes protect passwords.
_TOKEN_BYTES = 32
_PAGE = 1_000
# Entries of the audit log. A transaction during which others add as many has ended long
# ago.
RECENT = 1_000

# Every request of a service is admitted by the first, and every upload noted by the
# second, so they are built once.
_VALID = sa.select(TOKENS).where(
    TOKENS.c.sha256 == sa.bindparam("sent"), TOKENS.c.revoked_at.is_(None)
)
_ADD_ENTRY = AUDIT.insert()

TokenScope = Literal["read", "write"]
AuditAction = Literal[
    "run recorded",
    "runs copied",
    "regression accepted",
    "regression triaged",
    "change confirmed",
    "verdict kept",
    "runs pruned",
    "artifacts pruned",
    "dead letters redelivered",
    "token created",
    "token copied",
    "token revoked",
]


class ServiceToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret, of one project, or of all if it is None. ``write``
    includes reading; times are ISO 8601.
    """

    id: str
    name: str
    project: str | None
    scope: TokenScope
    created_at: str
    revoked_at: str | None = None


class StoredToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the database holds it: with the SHA-256 of its secret, by which it is
    found.
    """

    token: ServiceToken
    sha256: str


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token with its ``secret``, which is shown once: the store has only its hash."""

    token: ServiceToken
    secret: str


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change of the store. ``number`` rises from entry to entry; ``subject`` is the
    run, metric and commit, or token.
    """

    number: int
    at: str
    actor: str
    action: AuditAction
    project: str
    subject: str


class Ledger:
    """The tokens and the audit log of one database."""

    def __init__(self, database: StoreDatabase, clock: Callable[[], datetime]) -> None:
        self._database = database
        self._clock = clock

    def bring_up_to_date(self) -> None:
        """Bring the tables of an older perfgate up to date. Raises StoreError if they
        cannot be.
        """
        try:
            self.tokens()
        except OlderStoreError:
            with self._database.writing():
                pass  # a transaction begins by bringing the tables up to date

    def create_token(
        self, name: str, project: str | None, scope: TokenScope
    ) -> NewToken:
        """Create a token and return it with its secret."""
        secret = TOKEN_PREFIX + secrets.token_urlsafe(_TOKEN_BYTES)
        token = ServiceToken(
            id=_new_id(),
            name=name,
            project=project,
            scope=scope,
            created_at=self._clock().isoformat(),
        )
        row = {**msgspec.structs.asdict(token), "sha256": _hash(secret)}
        with self._database.writing() as connection:
            connection.execute(TOKENS.insert().values(row))
            self.note(
                connection, LOCAL, "token created", project or "", _subject(token)
            )
        return NewToken(token=token, secret=secret)

    def revoke(self, token_id: str) -> ServiceToken:
        """Revoke a token for good.

        Raises StoreError if there is none with this id; revoking it again has no
        effect.
        """
        with self._database.writing() as connection:
            row = (
                connection.execute(sa.select(TOKENS).where(TOKENS.c.id == token_id))
                .mappings()
                .first()
            )
            if row is None:
                raise StoreError(
                    "{place} has no token {token_id!a}; `perfgate token list` shows them",
                    place=self._database.name,
                    token_id=token_id,
                )
            token = _token(row)
            if token.revoked_at is not None:
                return token
            return self._end_token(connection, token, self._clock().isoformat(), LOCAL)

    def tokens(self) -> list[ServiceToken]:
        """All tokens, including revoked tokens, newest first."""
        rows = self._rows(
            sa.select(TOKENS).order_by(TOKENS.c.created_at.desc(), TOKENS.c.id)
        )
        return list(map(_token, rows))

    def find(self, secret: str) -> ServiceToken | None:
        """The valid token with this secret.

        The search is by hash, so its duration reveals no part of a secret.
        """
        sent = _hash(secret)
        for row in self._rows(_VALID, {"sent": sent}):
            if hmac.compare_digest(row["sha256"], sent):
                return _token(row)
        return None

    def entries(
        self, *, project: str | None = None, limit: int, before: int | None = None
    ) -> list[AuditEntry]:
        """The audit log, newest first: of one project or all, and only entries with a
        lower number than ``before``.
        """
        query = sa.select(AUDIT).order_by(AUDIT.c.number.desc()).limit(limit)
        if project is not None:
            query = query.where(AUDIT.c.project == project)
        if before is not None:
            query = query.where(AUDIT.c.number < before)
        return [AuditEntry(**row) for row in self._rows(query)]

    def removals(self, project: str) -> frozenset[int]:
        """The numbers of those among the newest entries of a project that note a
        removal of runs.
        """
        newest = (
            sa.select(sa.func.max(AUDIT.c.number))
            .where(AUDIT.c.project == project)
            .scalar_subquery()
        )
        removal: AuditAction = "runs pruned"
        query = sa.select(AUDIT.c.number).where(
            AUDIT.c.project == project,
            AUDIT.c.number > newest - RECENT,
            AUDIT.c.action == removal,
        )
        return frozenset(row["number"] for row in self._rows(query))

    def projects(self) -> list[str]:
        """The projects that the audit log names: every project that was ever written
        to, or has a token.
        """
        query = (
            sa.select(AUDIT.c.project)
            .distinct()
            .where(AUDIT.c.project != "")
            .order_by(AUDIT.c.project)
        )
        return [row["project"] for row in self._rows(query)]

    def stored_tokens(self) -> list[StoredToken]:
        """All tokens with their hashes, oldest first, to carry them into another store."""
        rows = self._rows(sa.select(TOKENS).order_by(TOKENS.c.created_at, TOKENS.c.id))
        return [StoredToken(token=_token(row), sha256=row["sha256"]) for row in rows]

    def restore_tokens(self, tokens: Sequence[StoredToken]) -> int:
        """Add the tokens of another store, and revoke tokens that are revoked there;
        return the number of changes.

        A token is identified by its hash. Revoked tokens stay revoked. A new token
        whose id is in use gets a new id.
        """
        if not tokens:
            return 0
        changed = 0
        with self._database.writing() as connection:
            tokens_by_hash: dict[str, ServiceToken] = {}
            for row in connection.execute(sa.select(TOKENS)).mappings():
                tokens_by_hash[row["sha256"]] = _token(row)
            ids = {token.id for token in tokens_by_hash.values()}
            for stored in tokens:
                present = tokens_by_hash.get(stored.sha256)
                if present is None:
                    ids.add(self._add_token(connection, stored, ids).id)
                elif present.revoked_at is None and stored.token.revoked_at is not None:
                    self._end_token(
                        connection, present, stored.token.revoked_at, COPIER
                    )
                else:
                    continue
                changed += 1
        return changed

    def history(self, *, after: int = 0) -> Iterator[AuditEntry]:
        """The audit log of all projects, oldest first, behind the entry with the number
        ``after``.
        """
        following = (
            sa.select(AUDIT)
            .where(AUDIT.c.number > sa.bindparam("after"))
            .order_by(AUDIT.c.number)
            .limit(_PAGE)
        )
        while rows := self._rows(following, {"after": after}):
            for row in rows:
                yield AuditEntry(**row)
            after = rows[-1]["number"]

    def restore_history(self, entries: Sequence[AuditEntry]) -> None:
        """Add the entries of another store as they are, under new numbers in their
        order.
        """
        if not entries:
            return
        rows = [msgspec.structs.asdict(entry) for entry in entries]
        for row in rows:
            del row["number"]
        with self._database.writing() as connection:
            connection.execute(_ADD_ENTRY, rows)

    def record(
        self, action: AuditAction, project: str, subject: str, *, actor: str = LOCAL
    ) -> None:
        """Add an entry of a change outside the database."""
        with self._database.writing() as connection:
            self.note(connection, actor, action, project, subject)

    def note(
        self,
        connection: sa.Connection,
        actor: str,
        action: AuditAction,
        project: str,
        subject: str,
    ) -> None:
        """Add an entry in the transaction of the change itself: there is never one
        without the other.
        """
        at = self._clock().isoformat()
        row = {
            "at": at,
            "actor": actor,
            "action": action,
            "project": project,
            "subject": subject,
        }
        connection.execute(_ADD_ENTRY, row)

    def _add_token(
        self, connection: sa.Connection, stored: StoredToken, present_ids: set[str]
    ) -> ServiceToken:
        token = stored.token
        while token.id in present_ids:
            token = msgspec.structs.replace(token, id=_new_id())
        connection.execute(
            TOKENS.insert().values(
                {**msgspec.structs.asdict(token), "sha256": stored.sha256}
            )
        )
        self.note(
            connection, COPIER, "token copied", token.project or "", _subject(token)
        )
        return token

    def _end_token(
        self, connection: sa.Connection, token: ServiceToken, at: str, actor: str
    ) -> ServiceToken:
        connection.execute(
            TOKENS.update().where(TOKENS.c.id == token.id).values(revoked_at=at)
        )
        self.note(
            connection, actor, "token revoked", token.project or "", _subject(token)
        )
        return msgspec.structs.replace(token, revoked_at=at)

    def _rows(
        self, query: sa.Select[Any], values: Mapping[str, object] | None = None
    ) -> list[sa.RowMapping]:
        with self._database.reading() as connection:
            if connection is None:
                return []
            return list(connection.execute(query, values).mappings())


def _new_id() -> str:
    return secrets.token_hex(4)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="surrogateescape")).hexdigest()


def _token(row: sa.RowMapping) -> ServiceToken:
    return ServiceToken(**{name: row[name] for name in ServiceToken.__struct_fields__})


def _subject(token: ServiceToken) -> str:
    return f"{token.id} {token.name} ({token.scope})"

"""``perfgate token`` and ``perfgate baseline log``: the tokens of a service over the store, and the log of its changes."""

from __future__ import annotations

from perfgate.errors import UsageError
from perfgate.judging.store.ledger import AuditEntry, Ledger, NewToken, ServiceToken, TokenScope
from perfgate.judging.store.store import Store, shown_location


def create_token(store: Store, location: str, *, name: str, project: str | None, scope: TokenScope) -> NewToken:
    """Create a token for one project, or for all if it is None. Raises UsageError if the name is empty."""
    if not name.strip():
        raise UsageError("the token needs a name, which identifies its user in the audit log")
    return _ledger(store, location).create_token(name.strip(), project, scope)


def list_tokens(store: Store, location: str) -> list[ServiceToken]:
    """All tokens of all projects, the revoked ones too, newest first."""
    return _ledger(store, location).tokens()


def revoke_token(store: Store, location: str, token_id: str) -> ServiceToken:
    """Revoke a token for good. Raises StoreError if there is none with this id."""
    return _ledger(store, location).revoke(token_id)


def audit_log(store: Store, location: str, *, project: str | None, limit: int) -> list[AuditEntry]:
    """The newest changes of a project, or of all, newest first."""
    return _ledger(store, location).entries(project=project, limit=limit)


def _ledger(store: Store, location: str) -> Ledger:
    ledger = store.ledger()
    if ledger is None:
        raise UsageError(
            "{place} keeps no tokens and no audit log; a database does: give a file or postgresql://USER@HOST/DATABASE",
            place=shown_location(location),
        )
    return ledger

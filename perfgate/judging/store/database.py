"""The Protocol of a store's database, which hides the differences between SQLite and
PostgreSQL.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Protocol, TypeAlias

import sqlalchemy as sa

if TYPE_CHECKING:
    from sqlalchemy.dialects import postgresql, sqlite

    Insert: TypeAlias = sqlite.Insert | postgresql.Insert


class StoreDatabase(Protocol):
    """Connections to the database of a store; its errors become a StoreError with a
    remedy.

    ``name`` is the place for messages, without a password, and ``restore`` the remedy
    for damaged content.
    """

    @property
    def name(self) -> str: ...

    @property
    def restore(self) -> str: ...

    def insert(self, table: sa.Table) -> Insert:
        """An insert that can have a rule for rows that exist; SQLAlchemy has one for
        each database.
        """

    def reading(self) -> AbstractContextManager[sa.Connection | None]:
        """A connection to read with; None if there is no store yet, and none is
        created.
        """

    def writing(self) -> AbstractContextManager[sa.Connection]:
        """A transaction that is committed at the end, on tables that are created or
        brought up to date first.
        """

    def write(self, work: Callable[[sa.Connection], None]) -> None:
        """Do some work in such a transaction, all of it or none, perhaps in one with
        the work of other threads.

        It may be undone and called again.
        """

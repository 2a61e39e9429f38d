"""The PostgreSQL database of a store: its address, its connections, its first use by
many at once, and its errors.
"""

from __future__ import annotations

import os
import re
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.store.store import shown_location
from perfgate.judging.store.tables import (
    STORE_VERSION,
    has_tables,
    is_current,
    prepare_tables,
    stored_version,
)
from perfgate.locale import Activity

PREFIXES = ("postgresql://", "postgres://")
DRIVER = "postgresql+psycopg"
# What the address does not set itself (libpq, "Parameter Key Words"): a server that is
# gone is noticed within half a minute. Statements are not prepared, because a pooler
# may pass the next one to another connection (psycopg, "Prepared statements").
OPTIONS: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 10,
    "application_name": "perfgate",
    "client_encoding": "utf8",
    "prepare_threshold": None,
}
WAIT_FOR_LOCKS = "SET LOCAL lock_timeout = '30s'"
# The number of the lock that the first writers take in turn; any number that no other
# program on the database uses.
FIRST_USE = int.from_bytes(b"perfgate", "big") >> 1
LONGEST_TEXT = 400


class PostgresDatabase:
    """A store in a database of a PostgreSQL server.

    A forked process opens new connections.
    """

    restore = "restore the database from a backup, or copy what is intact of it to a new one with `perfgate store copy`"

    def __init__(self, location: str) -> None:
        self.name = shown_location(location)
        self._url = parse_address(location)
        self._has_tables = False

    @staticmethod
    def insert(table: sa.Table) -> postgresql.Insert:
        return postgresql.insert(table)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection | None]:
        with clear_errors(self.name), self._engine.connect() as connection:
            # One query sees one state of the database by itself; a transaction would
            # cost two more journeys to the server.
            connection.execution_options(isolation_level="AUTOCOMMIT")
            # Outside a transaction a failed query does no harm, and all names of tables
            # take longer to read than a version.
            is_known = False
            with suppress(sa.exc.ProgrammingError):
                is_known = is_current(connection)
            self._has_tables = is_known or has_tables(connection, self.name)
            if self._has_tables:
                yield connection
            else:
                yield None

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        with clear_errors(self.name), self._engine.begin() as connection:
            connection.execute(sa.text(WAIT_FOR_LOCKS))
            is_known = self._has_tables and is_current(connection)
            if not is_known and stored_version(connection, self.name) != STORE_VERSION:
                connection.execute(sa.select(sa.func.pg_advisory_xact_lock(FIRST_USE)))
                prepare_tables(
                    connection, self.name
                )  # unless another process has done so since
            yield connection
        self._has_tables = True

    def write(self, work: Callable[[sa.Connection], None]) -> None:
        """Do some work in a new transaction; the server groups commits of several
        connections.
        """
        with self.writing() as connection:
            work(connection)

    @cached_property
    def _engine(self) -> sa.Engine:
        options = {
            name: value
            for name, value in OPTIONS.items()
            if name not in self._url.query
        }
        try:
            # No table has the type hstore; SQLAlchemy would ask the server for it on
            # every first connection.
            engine = sa.create_engine(
                self._url,
                connect_args=options,
                pool_pre_ping=True,
                use_native_hstore=False,
            )
        except ImportError as error:
            raise StoreError(
                "the store {place} needs psycopg, which cannot be imported ({error}); run pip install 'perfgate[postgres]'",
                place=self.name,
                error=error,
            ) from error
        _leave_inherited(engine)
        process = os.getpid()
        weakref.finalize(self, lambda: engine.dispose(close=os.getpid() == process))
        return engine


def parse_address(location: str) -> sa.URL:
    """Read ``postgresql://USER:PASSWORD@HOST:PORT/DATABASE``.

    Raises StoreError, which does not repeat it, for another text.
    """
    url = None
    # SQLAlchemy ends the password at the first @ and takes the rest for a host, which
    # messages show.
    if location.count("@") < 2:
        with suppress(sa.exc.ArgumentError, ValueError):
            url = sa.make_url(location).set(drivername=DRIVER)
    if url is None or not (url.database or {"dbname", "service"} & url.query.keys()):
        raise StoreError(
            "the address of the store cannot be read; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, and in the "
            "password %40 for @, %3A for :, %2F for / and %25 for %"
        )
    return url


class DatabaseTrouble(NamedTuple):
    """A kind of error: the beginnings of its SQLSTATEs, words of its message, and
    whether the server refused a correct call.
    """

    remedy: Activity
    states: tuple[str, ...] = ()
    words: str = "(?!)"
    is_refusal: bool = False


# SQLSTATEs are in PostgreSQL's documentation, "PostgreSQL Error Codes"; the words are
# from version 15.
_TROUBLES = (
    DatabaseTrouble(
        Activity(
            "check the user and password in the address, or set PGPASSWORD; the server's pg_hba.conf defines "
            "who may connect"
        ),
        states=("28",),
        words='password authentication failed|no password supplied|pg_hba.conf|role "',
    ),
    DatabaseTrouble(
        Activity(
            "let the owner of the database grant the rights: SELECT on its tables to read, also INSERT, UPDATE and DELETE "
            "to record, and CREATE on its schema for the first use"
        ),
        states=("42501",),
        words="permission denied",
    ),
    DatabaseTrouble(
        Activity(
            "create the database first, on its server with createdb, or correct its name in the address"
        ),
        states=("3D000",),
        words='database "',
    ),
    DatabaseTrouble(
        Activity(
            "a table or column of the store is missing: restore the database from a backup, or choose another one "
            "if a commit of perfgate before its first release wrote it"
        ),
        states=("42P01", "42703"),
    ),
    DatabaseTrouble(
        Activity(
            "this server is a copy that only reads; give the address of the primary"
        ),
        states=("25006",),
    ),
    DatabaseTrouble(
        Activity(
            "the server has no more space or memory: free some, then run the command again"
        ),
        states=("531", "532"),
        is_refusal=True,
    ),
    DatabaseTrouble(
        Activity(
            "the database is in use by others; run the command again, and if this persists, raise the "
            "server's connection limit"
        ),
        states=("533", "55P03", "40", "57014"),
        words="too many clients|remaining connection slots|QueuePool limit",
        is_refusal=True,
    ),
    DatabaseTrouble(
        Activity(
            "this database cannot keep a text of the run: shorten a name of thousands of characters, or create the "
            "database with ENCODING 'UTF8'"
        ),
        states=("22021", "22P05", "54"),
        words="NUL|codec",
    ),
    DatabaseTrouble(
        Activity("correct the options behind the ? of the address"),
        words="connection option|sslmode",
    ),
    DatabaseTrouble(
        Activity(
            "the connection was lost; run the command again, a run that arrived is not stored twice"
        ),
        states=("08", "57P"),
        words="server closed the connection|connection is lost|terminating connection|connection is closed",
        is_refusal=True,
    ),
    DatabaseTrouble(
        Activity(
            "is the server running and reachable from here, and the address right? then run the command again"
        ),
        words="connection|resolve|timeout|SSL",
        is_refusal=True,
    ),
)
_UNKNOWN_TROUBLE = DatabaseTrouble(Activity("if it happens again, please report it"))


@contextmanager
def clear_errors(name: str) -> Iterator[None]:
    """Convert errors of the database into a StoreError with a remedy.

    The text of none of them has a password.
    """
    try:
        yield
    except (sa.exc.SQLAlchemyError, OSError, ValueError) as error:
        original = getattr(error, "orig", None) or error
        state = getattr(original, "sqlstate", None) or ""
        text = str(original)
        if state and hasattr(original, "diag"):
            # The words of the server alone; psycopg adds the statement.
            text = original.diag.message_primary or text
        text = " ".join(text.split())[:LONGEST_TEXT]
        trouble = _trouble_of(state, text)
        kind = StoreRefusedError if trouble.is_refusal else StoreError
        why = Activity(
            "the store {place} cannot be used: {text}", place=name, text=text
        )
        raise kind("{why}; {remedy}", why=why, remedy=trouble.remedy) from error


def _trouble_of(state: str, text: str) -> DatabaseTrouble:
    """The first that fits counts.

    An error while connecting has no SQLSTATE, only libpq's and the server's words.
    """
    for trouble in _TROUBLES:
        if state and state.startswith(trouble.states):
            return trouble
        if not state and re.search(trouble.words, text):
            return trouble
    return _UNKNOWN_TROUBLE


def _leave_inherited(engine: sa.Engine) -> None:
    """Leave a connection to the process that opened it (SQLAlchemy, "Using Connection
    Pools with Multiprocessing").
    """

    @sa.event.listens_for(engine, "connect")
    def note_process(_connection: Any, record: Any) -> None:
        record.info["process"] = os.getpid()

    @sa.event.listens_for(engine, "checkout")
    def refuse_inherited(_connection: Any, record: Any, proxy: Any) -> None:
        if record.info["process"] != os.getpid():
            record.dbapi_connection = proxy.dbapi_connection = None
            raise sa.exc.DisconnectionError(
                "this connection belongs to another process"
            )

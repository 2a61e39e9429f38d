"""A real PostgreSQL server of this machine's own, on a Unix socket in a scratch folder."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import psycopg
import pytest

from perfgate.system.processes import die_with_parent
from tests.waiting import wait_until

# Debian keeps the programs of a server out of the PATH.
DEBIAN = Path("/usr/lib/postgresql")
OWNER, READER, NOBODY = "perfgate", "reader", "stranger"
PASSWORD = "hunter2/ü%:"
# Sorted otherwise than by code points, as the databases of most servers are.
LOCALE = ("--encoding=UTF8", "--locale=C.UTF-8", "--locale-provider=icu", "--icu-locale=en")
ACCESS = "local all postgres trust\nlocal all all scram-sha-256\n"
SETTINGS = (
    "listen_addresses=",
    "max_connections=60",
    "shared_buffers=16MB",
    "autovacuum=off",
    "logging_collector=off",
)
# Nothing outlives a crash of the machine, which no test causes.
QUICK = ("fsync=off", "full_page_writes=off")


class PostgresServer:
    """A server with three roles: the owner of every database, one that may read, and one without rights."""

    def __init__(self, programs: Path, folder: Path, user: str | None, *, durable: bool) -> None:
        self._programs, self._folder, self._user = programs, folder, user
        self._settings = SETTINGS if durable else (*SETTINGS, *QUICK)
        self._names = (f"store_{number}" for number in itertools.count())
        self._process: subprocess.Popen[bytes] | None = None

    def initialize(self) -> None:
        self._run("initdb", "--pgdata", str(self._data), "--auth=trust", "--username=postgres", "--no-sync", *LOCALE)
        (self._data / "pg_hba.conf").write_text(ACCESS)

    def start(self) -> None:
        options = [word for setting in self._settings for word in ("-c", setting)]
        command = [str(self._programs / "postgres"), "-D", str(self._data), "-k", str(self._folder), *options]
        with (self._folder / "log").open("ab") as log:
            # A test process that crashes leaves no server behind.
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd="/",
                preexec_fn=partial(die_with_parent, os.getpid()),  # noqa: PLW1509 - no other thread is started yet
                **self._as_user(),
            )
        wait_until(self._answers)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self) -> None:
        """Stop at once, as after a crash (PostgreSQL's documentation, "Shutting Down the Server", SIGQUIT)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def create_roles(self) -> None:
        for role in (OWNER, READER, NOBODY):
            self.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{PASSWORD}'")

    def create_database(self) -> str:
        """Create an empty database; return its name."""
        name = next(self._names)
        self.execute(f"CREATE DATABASE {name} OWNER {OWNER}")
        return name

    def address(self, database: str, user: str = OWNER, password: str = PASSWORD) -> str:
        return f"postgresql://{user}:{quote(password, safe='')}@/{database}?host={self._folder}"

    def execute(self, *statements: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run statements as the server's administrator; return the rows of the last one."""
        with psycopg.connect(
            host=str(self._folder), user="postgres", dbname=database, autocommit=True, client_encoding="utf8"
        ) as connection:
            for statement in statements:
                cursor = connection.execute(statement)  # type: ignore[call-overload]
            return cursor.fetchall() if cursor.description else []

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self._folder / "log").read_text()
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._programs / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", **self._as_user())
        assert done.returncode == 0, done.stdout + done.stderr

    def _as_user(self) -> dict[str, object]:
        return (
            {}
            if self._user is None
            else {"user": self._user, "group": pwd.getpwnam(self._user).pw_gid, "extra_groups": []}
        )


@contextmanager
def running_postgres(*, durable: bool = False) -> Iterator[PostgresServer]:
    """A new server, which survives a crash of the machine if ``durable``; skips where none is installed."""
    programs = _programs()
    if programs is None:
        pytest.skip("PostgreSQL's server is not installed (Debian: postgresql), so stores in PostgreSQL are not tested")
    user = _unprivileged_user() if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="pg-", dir="/tmp") as name:  # the path of a socket is short
        if user is not None:
            os.chown(name, pwd.getpwnam(user).pw_uid, -1)
        server = PostgresServer(programs, Path(name), user, durable=durable)
        server.initialize()
        server.start()
        try:
            server.create_roles()
            yield server
        finally:
            server.stop()


def _programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    folders += sorted(DEBIAN.glob("*/bin"), key=lambda folder: int(folder.parent.name.partition(".")[0]), reverse=True)
    return next((folder for folder in folders if (folder / "postgres").exists()), None)


def _unprivileged_user() -> str:
    """The server refuses to run as root."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in ("postgres", "nobody") if name in names)

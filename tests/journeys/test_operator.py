"""Journey 6: docs/operate.md word for word: two projects on a bare machine, a restored backup, PostgreSQL and an upgrade."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import requests

from perfgate.errors import StoreError
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.postgres import PostgresDatabase
from perfgate.judging.store.runs import record_run, stored_runs
from perfgate.judging.store.store import StorePlace, open_location
from tests.docs.blocks import Block, read_blocks
from tests.docs.machine import Machine
from tests.fakes.postgres import running_postgres
from tests.journeys.installation import build_wheel
from tests.unit.document.minimal import minimal_run
from tests.unit.store.test_migration import SECOND

DATABASE = "postgresql://perfgate@db.example.com/perfgate"
# What no machine of the tests does: build an image, and measure for half an hour.
LEFT_OUT = ("podman", "benchmarks/store")
# Of no release, so that a package index has neither.
OLDER, NEWER = "98.0.0", "99.0.0"


def make_older(sources: Path) -> None:
    _replace(sources / "perfgate" / "version.py", r'__version__ = "[^"]+"', f'__version__ = "{OLDER}"')


def make_newer(sources: Path) -> None:
    """Turn the sources into those of a later release, whose tables have a column more."""
    _replace(sources / "perfgate" / "version.py", r'__version__ = "[^"]+"', f'__version__ = "{NEWER}"')
    store = sources / "perfgate" / "judging" / "store"
    _replace(store / "tables.py", "STORE_VERSION = 1\n", "STORE_VERSION = 2\n")
    (store / "migrations" / "versions" / "v2_runner.py").write_text(SECOND)


def _replace(path: Path, pattern: str, text: str) -> None:
    changed, count = re.subn(pattern, text, path.read_text())
    assert count == 1, path
    path.write_text(changed)


class Operator:
    """Somebody who types the blocks of the page, in order, on a bare machine."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._constraint = folder / "constraint.txt"
        # The package index of this machine, which the desk has not, and our wheels.
        of_desk = [name for name in machine.environment if name.startswith(("PIP_", "UV_"))]
        for name in of_desk:
            del machine.environment[name]
        of_tests = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        places = [of_tests.get("PIP_FIND_LINKS", ""), *(str(folder / version / "wheels") for version in (OLDER, NEWER))]
        machine.environment.update(of_tests)
        machine.environment["PIP_FIND_LINKS"] = " ".join(places)
        machine.environment["PIP_CONSTRAINT"] = str(self._constraint)
        self.database = ""
        self._blocks = [block for block in read_blocks("operate.md") if block.language in ("sh", "text")]
        self._output = ""

    def offers(self, version: str) -> None:
        """Let the package index have this perfgate alone."""
        self._constraint.write_text(f"perfgate=={version}\n")

    def types_until(self, words: str) -> str:
        """Type the blocks up to the one with these words, and return what the last one printed."""
        while self._blocks:
            block = self._blocks.pop(0)
            self._type(block)
            if words in block.text:
                return self._output
        raise AssertionError(f"the page has no further block with {words!r}")

    def waits(self) -> None:
        """Wait until the service answers, as the page does after a start."""
        done = self.machine.run(
            "curl --fail --silent --retry 30 --retry-connrefused --retry-delay 1 http://127.0.0.1:8787/api/v1/health"
        )
        assert done.returncode == 0, done.stdout

    def _type(self, block: Block) -> None:
        if block.language == "text":
            assert all(line in self._output for line in block.text.splitlines()), (block.name, self._output)
            return
        if any(words in block.text for words in LEFT_OUT):
            return
        done = self.machine.run(block.text.replace(DATABASE, self.database))
        self._output = done.stdout
        assert done.returncode == 0, f"{block.name} ended with {done.returncode}:\n{done.stdout}"


@contextmanager
def operator_of(folder: Path) -> Iterator[Operator]:
    (folder / "machine").mkdir()
    machine = Machine(folder / "machine", bare=True)
    try:
        yield Operator(machine, folder)
    finally:
        machine.close()


def upload(operator: Operator, token: str, project: str, session: str) -> str:
    """Record a run as a runner does."""
    place = StorePlace(operator.machine.folder, {"PERFGATE_STORE_TOKEN": token})
    store = open_location(operator.machine.address, place)
    return record_run(store, minimal_run(project=project, session=session))


def page_of(operator: Operator, project: str) -> str:
    """The list of a project's runs, as a reader of all projects sees it."""
    token = (operator.machine.folder / "etc" / "perfgate" / "serve.env").read_text().strip().partition("=")[2]
    answer = requests.get(
        f"{operator.machine.address}/projects/{project}/runs/index.html",
        headers={"Authorization": f"Bearer {token}"},
        timeout=60,
    )
    assert answer.status_code == 200, answer.text
    return answer.text


def store_version(operator: Operator) -> str:
    with closing(sqlite3.connect(operator.machine.folder / "lib" / "perfgate" / "store.db")) as connection:
        (version,) = connection.execute("SELECT version_num FROM perfgate_store").fetchone()
        return str(version)


@pytest.mark.journey
def test_operator__page_typed_word_for_word__two_projects_a_restored_store_postgresql_and_an_upgrade(
    tmp_path: Path,
) -> None:
    build_wheel(tmp_path / OLDER, make_older)
    build_wheel(tmp_path / NEWER, make_newer)
    with operator_of(tmp_path) as operator, running_postgres(durable=True) as postgres:
        operator.offers(OLDER)
        operator.database = postgres.address(postgres.create_database())
        printed = operator.types_until("token list")
        shop, bank = re.findall(r"\bperfgate_[\w-]+", printed)
        first = upload(operator, shop, "shop", "first")
        assert first[:12] in page_of(operator, "shop")
        upload(operator, bank, "bank", "first")
        with pytest.raises(StoreError, match="token"):
            upload(operator, bank, "shop", "of another project")

        (replaced,) = re.findall(r"\bperfgate_[\w-]+", operator.types_until("token revoke"))
        with pytest.raises(StoreError, match="token"):
            upload(operator, shop, "shop", "by a revoked token")

        # Nginx, the backup, and its restoration: runs, and tokens that were not replaced, are there.
        operator.types_until("damaged")
        assert first[:12] in page_of(operator, "shop")
        second = upload(operator, replaced, "shop", "second")

        operator.types_until(DATABASE)
        copied = SqlStore(PostgresDatabase(operator.database))
        assert {run.id for run in stored_runs(copied, "shop")} == {first, second}

        # The upgrade: the tables are the new ones before a runner writes.
        assert store_version(operator) == "1"
        operator.offers(NEWER)
        operator.types_until("--upgrade")
        operator.waits()
        assert store_version(operator) == "2"
        assert second[:12] in page_of(operator, "shop")
        third = upload(operator, replaced, "shop", "third")
        assert third[:12] in page_of(operator, "shop")
        assert "perfgate_last_run_timestamp_seconds" in operator.types_until("prometheus")

        # Back again, as the page says: the older version, and the backup from before the upgrade.
        machine = operator.machine
        operator.offers(OLDER)
        machine.run("systemctl stop perfgate.service && /opt/perfgate/bin/pip install 'perfgate[serve,postgres]'")
        machine.run("cd /var/lib/perfgate && mkdir newer && mv store.db* newer/")
        copy = "/opt/perfgate/bin/perfgate store copy /var/lib/perfgate-backup/before-upgrade.db /var/lib/perfgate/store.db"
        copied_back = machine.run(copy)
        assert copied_back.returncode == 0, copied_back.stdout
        machine.run("systemctl start perfgate.service")
        operator.waits()
        assert second[:12] in page_of(operator, "shop")
        assert store_version(operator) == "1"

"""The file under trouble: foreign, newer, corrupt, read-only, full."""

import gc
import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sqlalchemy as sa

from perfgate.document.files import write_document
from perfgate.document.run import RunDocument
from perfgate.errors import SessionKeptError, StoreError
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.index import FollowedLog
from perfgate.judging.store.runs import prune_runs, record_run, stored_run, stored_runs
from perfgate.judging.store.sqlite import SqliteFile
from perfgate.judging.store.store import StorePlace, open_location
from tests.forking import exit_code, forked
from tests.unit.document.minimal import minimal_run
from tests.waiting import wait_until


def execute(path: Path, *statements: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        for statement in statements:
            connection.execute(statement)


def assert_refused(path: Path, message: str) -> None:
    for use in (lambda: record_run(SqlStore(path), minimal_run()), lambda: stored_runs(SqlStore(path), "shop")):
        with pytest.raises(StoreError, match=message):
            use()


def record_sessions(store: SqlStore, count: int) -> None:
    for number in range(count):
        record_run(store, minimal_run(session=f"another-{number}"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    mount = ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(tmp_path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system can be mounted by root only")
    yield tmp_path
    gc.collect()  # SQLAlchemy 2.0.0 leaves it to the collector to close a connection that could not begin
    # Whoever walks through the folders of this machine keeps it busy for a moment.
    wait_until(lambda: subprocess.run(["umount", str(tmp_path)], check=False).returncode == 0)


def test_store__new__keeps_a_write_ahead_log(tmp_path: Path) -> None:
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    with closing(sqlite3.connect(tmp_path / "store.db")) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_store__empty_file__is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    os.truncate(tmp_path / "store.db", 0)
    for leftover in tmp_path.glob("store.db-*"):
        leftover.unlink()
    assert_refused(tmp_path / "store.db", "store.db is a file of 0 bytes.* restore a copy, or remove the file")
    assert (tmp_path / "store.db").stat().st_size == 0


def record_until(path: Path, run: RunDocument, steps: int) -> None:
    """Record a run, and die before Python's audit has seen ``steps`` operations on files."""
    seen = 0

    def watch(event: str, _: object) -> None:
        nonlocal seen
        if event in ("open", "sqlite3.connect", "os.link", "os.mkdir", "os.rename", "os.remove", "os.rmdir"):
            seen += 1
            if seen > steps:
                os._exit(9)

    sys.addaudithook(watch)
    record_run(SqlStore(path), run)


def test_store__killed_while_it_is_created__the_next_writer_begins_anew(tmp_path: Path) -> None:
    run = minimal_run()
    record_run(SqlStore(tmp_path / "first"), run)  # everything is imported
    codes = []
    while not codes or codes[-1]:
        path = tmp_path / f"{len(codes)}.db"
        codes.append(exit_code(forked(lambda: record_until(path, run, len(codes)))))  # noqa: B023 - done before the next
        assert not path.exists() or path.stat().st_size
        record_run(SqlStore(path), run)
        assert len(stored_runs(SqlStore(path), "shop")) == 1
    assert len(codes) > 3
    assert set(codes[:-1]) == {9}


def test_store__many_first_writers_at_once__lose_nothing(tmp_path: Path) -> None:
    runs = [minimal_run(session=f"first-{number}") for number in range(8)]
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        reading, writing = os.pipe()

        def write_first(run: RunDocument, path: Path, gate: int, closed: int) -> None:
            os.close(closed)
            os.read(gate, 1)  # until the parent closes its end
            record_run(SqlStore(path), run)

        children = [
            forked(lambda: write_first(run, folder / "store.db", reading, writing))  # noqa: B023 - forked at once
            for run in runs
        ]
        os.close(writing)
        assert [exit_code(child) for child in children] == [0] * len(runs)
        os.close(reading)
        assert len(stored_runs(SqlStore(folder / "store.db"), "shop")) == len(runs)
        assert [path.name for path in folder.iterdir() if not path.name.startswith("store.db")] == []


def written_together(store: SqlStore, *work: Callable[[], object]) -> list[BaseException | None]:
    """Do it in threads that all wait in this order for their turn to write; return the error of each."""
    database = store._database
    assert isinstance(database, SqliteFile)
    with ThreadPoolExecutor(len(work)) as threads:
        futures = []
        with database.writing():
            for each in work:
                futures.append(threads.submit(each))
                wait_until(lambda: len(database._turns._waiting) == len(futures))
        return [future.exception() for future in futures]


def test_record__threads_that_wait_for_their_turn__one_refused_and_the_others_stored(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "store.db")
    record_run(store, minimal_run(session="s2", value=0.009))
    runs = [minimal_run(session=f"s{number}") for number in range(5)]
    errors = written_together(store, *(partial(record_run, store, run) for run in runs))
    assert [type(error) for error in errors if error] == [SessionKeptError]
    assert errors[2] is not None
    assert {run.session for run in stored_runs(store, "shop")} == {f"s{number}" for number in range(5)}
    assert len([entry for entry in store.ledger().entries(limit=9) if entry.action == "run recorded"]) == 5


def test_record__error_that_ends_the_transaction_of_all__none_is_acknowledged_or_stored(tmp_path: Path) -> None:
    store = SqlStore(tmp_path / "store.db")
    record_run(store, minimal_run())

    def disk_is_full(connection: sa.Connection) -> None:
        connection.exec_driver_sql("ROLLBACK")  # as SQLite does by itself then
        raise OSError("No space left on device")

    errors = written_together(
        store,
        lambda: record_run(store, minimal_run(session="before")),
        lambda: store._database.write(disk_is_full),
        lambda: record_run(store, minimal_run(session="after")),
    )
    assert ["free space on its disk" in str(error) for error in errors] == [True] * 3
    assert [run.session for run in stored_runs(store, "shop")] == ["s1"]
    record_run(store, minimal_run(session="later"))


def test_store__file_of_something_else__refused(tmp_path: Path) -> None:
    (tmp_path / "store.db").write_bytes(b"not a database at all" * 500)
    assert_refused(tmp_path / "store.db", "file is not a database; the store is damaged: restore a copy, or move")


def test_store__pages_overwritten__refused(tmp_path: Path) -> None:
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    with (tmp_path / "store.db").open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 20_000)
    assert_refused(tmp_path / "store.db", "the store is damaged")


def test_store__database_of_something_else__refused_and_untouched(tmp_path: Path) -> None:
    execute(tmp_path / "store.db", "CREATE TABLE customers (name TEXT)")
    before = (tmp_path / "store.db").read_bytes()
    assert_refused(
        tmp_path / "store.db", r"is a database of something else \(it holds 'customers'\); choose another one"
    )
    assert (tmp_path / "store.db").read_bytes() == before


def test_store__newer_version__refused_and_untouched(tmp_path: Path) -> None:
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    execute(tmp_path / "store.db", "UPDATE perfgate_store SET version_num = '9'")
    assert_refused(tmp_path / "store.db", r"newer perfgate \(store version 9, this one knows 1\); upgrade perfgate")
    execute(tmp_path / "store.db", "UPDATE perfgate_store SET version_num = '1'")
    assert len(stored_runs(SqlStore(tmp_path / "store.db"), "shop")) == 1


@pytest.mark.parametrize(
    "change",
    ["DROP TABLE log", "DROP TABLE log; ALTER TABLE perfgate_store RENAME COLUMN version_num TO version"],
)
def test_store__of_a_commit_before_the_first_release__refused_and_untouched(tmp_path: Path, change: str) -> None:
    record_run(SqlStore(tmp_path / "store.db"), minimal_run())
    for statement in change.split(";"):
        execute(tmp_path / "store.db", statement)
    before = (tmp_path / "store.db").read_bytes()
    assert_refused(tmp_path / "store.db", "written by a commit of perfgate before its first release")
    assert (tmp_path / "store.db").read_bytes() == before


@pytest.mark.parametrize(
    ("column", "message"),
    [("document = x'ffff'", "cannot be read"), ("document = x'00'", "differs from the recorded document")],
)
def test_show__stored_document_damaged__refused(tmp_path: Path, column: str, message: str) -> None:
    store = SqlStore(tmp_path / "store.db")
    run_id = record_run(store, minimal_run())
    execute(tmp_path / "store.db", f"UPDATE run_documents SET {column}")
    with pytest.raises(StoreError, match=message):
        stored_run(store, "shop", run_id)


@pytest.mark.parametrize("place", ["/dev/null/store.db", "/proc/store.db", "/proc/no/store.db"])
def test_record__place_cannot_be_written__says_what_to_set(place: str) -> None:
    with pytest.raises(StoreError, match="a folder that can be written: set PERFGATE_STORE to another path"):
        record_run(SqlStore(Path(place)), minimal_run())


def test_store__path_of_a_folder__refused_with_a_path_that_can_be_one(tmp_path: Path) -> None:
    assert_refused(tmp_path, rf"the store {tmp_path} is a folder; name a file in it, e\.g\. {tmp_path}/store\.db")


def test_prune__path_that_no_file_can_have__says_what_to_set(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"File name too long.*set PERFGATE_STORE to another path"):
        prune_runs(SqlStore(tmp_path / ("x" * 300)), "shop", keep=1)


def test_record__disk_full__clear_error_and_the_kept_runs_stay(small_disk: Path) -> None:
    store = SqlStore(small_disk / "store.db")
    record_run(store, minimal_run())
    (small_disk / "ballast").write_bytes(os.urandom(4096) * 20)
    with pytest.raises(StoreError, match="free space on its disk, or set PERFGATE_STORE"):
        record_sessions(store, 1000)
    (small_disk / "ballast").unlink()
    kept = stored_runs(store, "shop")
    assert kept
    assert stored_run(store, "shop", kept[-1].id).project == "shop"


def test_store__file_system_read_only__says_what_to_set(small_disk: Path) -> None:
    record_run(SqlStore(small_disk / "store.db"), minimal_run())
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(StoreError, match="set PERFGATE_STORE to another path"):
        record_run(SqlStore(small_disk / "store.db"), minimal_run(session="s2"))


FULL = """
import resource, sys
from pathlib import Path
from perfgate.cli.main import main
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
sys.argv = ["perfgate", "baseline", "record", "--run", sys.argv[1], "-C", sys.argv[2]]
main()
"""


def test_record__no_room_on_the_disk__exit_4_and_the_store_stays_readable(tmp_path: Path) -> None:
    """As a disk that is full: no file of this process may grow beyond 20 kB, and SQLite is told so."""
    store = SqlStore(tmp_path / "store.db")
    kept = record_run(store, minimal_run(session="before"))
    (tmp_path / "perfgate.toml").write_text('project = "shop"\nworkload = "w.py:encoder"\n')
    write_document(tmp_path / "run.json", minimal_run(session="after"))
    environ = {**os.environ, "PERFGATE_STORE": str(tmp_path / "store.db")}
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path / "run.json"), str(tmp_path)],
        env=environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 4, done.stdout + done.stderr
    assert "free space on its disk" in done.stderr
    assert [run.id for run in stored_runs(store, "shop")] == [kept]


@pytest.mark.parametrize("log", [False, True], ids=["at rest", "with a log"])
def test_runs__folder_and_file_that_cannot_be_written__read_all_the_same(log: bool) -> None:
    with TemporaryDirectory() as name:  # a folder that another user may enter, unlike tmp_path
        folder = Path(name)
        store = SqlStore(folder / "store.db")
        kept = [record_run(store, minimal_run(session="one"))]
        with closing(sqlite3.connect(folder / "store.db")) as writer:
            if log:
                # A reader keeps the log from being folded into the file.
                writer.execute("BEGIN")
                writer.execute("SELECT count(*) FROM sqlite_master").fetchone()
                kept.append(record_run(store, minimal_run(session="two")))
            for path in (*folder.iterdir(), folder):
                path.chmod(0o555 if path.is_dir() else 0o444)
            assert sorted(
                _as_nobody(lambda: [run.id for run in stored_runs(SqlStore(folder / "store.db"), "shop")])
            ) == sorted(kept)
            folder.chmod(0o755)


def _as_nobody(read: Callable[[], list[str]]) -> list[str]:
    """Return what a function finds in a process without rights; root's own would write everywhere."""
    ours, theirs = os.pipe()
    process = os.fork()
    if process == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            os.write(theirs, json.dumps(read()).encode())
        except BaseException as error:  # noqa: BLE001 - the other process tells it
            os.write(theirs, json.dumps([repr(error)]).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as said:
        found: list[str] = json.loads(said.read())
    os.waitpid(process, 0)
    return found


def test_store__of_a_service_and_replaced__its_kept_connections_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    served = open_location(str(path), StorePlace(tmp_path, {}, is_served=True))
    record_run(served, minimal_run(session="before"))
    assert path.with_name("store.db-wal").exists()
    record_run(SqlStore(tmp_path / "other.db"), minimal_run(session="restored"))
    for part in tmp_path.glob("store.db*"):
        part.unlink()
    (tmp_path / "other.db").rename(path)
    record_run(served, minimal_run(session="after"))
    assert {run.session for run in stored_runs(SqlStore(path), "shop")} == {"restored", "after"}
    del served
    assert not path.with_name("store.db-wal").exists()


def test_revision__store_begun_anew_at_its_place__another_one_and_read_anew(tmp_path: Path) -> None:
    log = FollowedLog("shop")
    seen: list[tuple[str, list[str]]] = []
    for session in ("old", "new"):
        for file in tmp_path.iterdir():
            file.unlink()
        store = SqlStore(tmp_path / "store.db")
        record_run(store, minimal_run(session=session))
        seen.append((store.revision("shop"), [run.session for run in log.read(store).index.runs]))
    assert seen[0][0] != seen[1][0]
    assert [sessions for _, sessions in seen] == [["old"], ["new"]]

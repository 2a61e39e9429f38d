"""Exports read column by column: every cell is what SQLite holds, and what is no number is refused."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate import trace
from perfgate.errors import DocumentError
from perfgate.trace.model.arithmetic import NO_NUMBER
from perfgate.trace.model.events import MAX_NS
from perfgate.trace.model.kernel_table import KernelTable
from perfgate.trace.readers.ascend import database as databases
from perfgate.trace.readers.ascend.columns import TableColumns
from perfgate.trace.readers.ascend.database import open_database

_numbers = st.integers(-9, 9) | st.sampled_from([MAX_NS, -MAX_NS, 1 << 53, 1_764_000_000_000_000_001])
_likely = st.none() | _numbers | _numbers.map(str) | st.integers(-9, 9).map(float)
_strange = st.sampled_from(
    ["", " 7", "7.0", "007", "7x", "N/A", "1.5", 1.5, math.inf, b"7", MAX_NS + 1, str(MAX_NS + 1)]
)
STRINGS = "CREATE TABLE STRING_IDS (id INTEGER PRIMARY KEY, value TEXT)"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For all examples of a test: a folder for each takes longer than to read it."""
    return tmp_path_factory.mktemp("examples")


def written(path: Path, *statements: str | tuple[str, Sequence[Sequence[Any]]]) -> Path:
    connection = sqlite3.connect(path)
    for statement in statements:
        if isinstance(statement, str):
            connection.execute(statement)
        else:
            connection.executemany(*statement)
    connection.commit()
    connection.close()
    return path


def read(path: Path, wholes: Sequence[str], reals: Sequence[str] = ()) -> TableColumns:
    with open_database(path) as database:
        return database.columns("t", wholes, reals=reals)


def spelled(cell: object, declared: str) -> object:
    """A cell of a column of text as SQLite compares it with a number."""
    if declared == "TEXT" and isinstance(cell, str):
        try:
            number = Decimal(cell)
        except InvalidOperation:
            return cell
        return int(number) if number.is_finite() and number == number.to_integral_value() else cell
    return cell


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(_likely, _likely), max_size=6)
    | st.lists(st.tuples(_likely | _strange, _likely | _strange), max_size=3),
    declared=st.sampled_from(["", "INTEGER", "TEXT", "NUMERIC", "varchar(9)"]),
)
def test_columns__any_cells__as_each_cell_alone(folder: Path, rows: list[tuple[object, object]], declared: str) -> None:
    (folder / "a.db").unlink(missing_ok=True)
    path = written(
        folder / "a.db",
        f"CREATE TABLE t (a {declared}, b {declared})",
        ("INSERT INTO t VALUES (?, ?)", rows),
    )
    with open_database(path) as database:
        try:
            alone = [[spelled(cell, declared) for cell in row] for row in database.rows("t", ("a", "b"))]
            expected = [tuple(map(database.whole, row)) for row in alone]
        except DocumentError:
            with pytest.raises(DocumentError, match="a whole number is expected"):
                database.columns("t", ("a", "b"))
            return
        columns = database.columns("t", ("a", "b"))

    cells = zip(columns.wholes("a").tolist(), columns.wholes("b").tolist())
    assert [tuple(None if cell == NO_NUMBER else cell for cell in row) for row in cells] == expected


def test_columns__real_numbers__null_is_none(tmp_path: Path) -> None:
    path = written(
        tmp_path / "a.db", "CREATE TABLE t (a INTEGER, b)", "INSERT INTO t VALUES (1, 2), (NULL, 0.5), (3, NULL)"
    )
    columns = read(path, ("a",), ("b",))

    assert columns.wholes("a").tolist() == [1, NO_NUMBER, 3]
    assert columns.real("b").tolist()[:2] == [2.0, 0.5]
    assert math.isnan(columns.real("b")[2])
    with pytest.raises(DocumentError, match="'x' found where a number is expected"):
        read(written(tmp_path / "b.db", "CREATE TABLE t (b)", "INSERT INTO t VALUES ('x')"), (), ("b",))


def test_columns__missing_column_or_table__nothing_is_known(tmp_path: Path) -> None:
    path = written(tmp_path / "a.db", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2)")
    columns = read(path, ("a", "other"), ("size",))

    assert columns.wholes("other").tolist() == [NO_NUMBER, NO_NUMBER]
    assert columns.real("size").size == 2
    with open_database(path) as database:
        assert database.columns("another", ("a",)).rows == 0


def test_columns__more_rows_than_at_once__in_the_order_of_the_table(tmp_path: Path) -> None:
    # An index would give them in another.
    path = written(
        tmp_path / "a.db",
        "CREATE TABLE t (a INTEGER)",
        "CREATE INDEX i ON t (a)",
        ("INSERT INTO t VALUES (?)", [(number * 7919 % 10_007,) for number in range(10_000)]),
    )

    assert read(path, ("a",)).wholes("a").tolist() == [number * 7919 % 10_007 for number in range(10_000)]


def test_columns__too_many_rows__refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "MAX_TABLE_ROWS", 2)
    path = written(tmp_path / "a.db", "CREATE TABLE t (a)", "INSERT INTO t VALUES (1), (2), (3)")

    with pytest.raises(DocumentError, match="table t has more than 2 rows"):
        read(path, ("a",))


def export(path: Path) -> Path:
    return written(
        path,
        STRINGS,
        "INSERT INTO STRING_IDS VALUES (1,'mm1'),(2,'MatMul'),(3,'KERNEL_AICORE'),(4,'aic_mac_time'),(5,'aic_mac_ratio')",
        "INSERT INTO STRING_IDS VALUES (6,'add1'),(7,'aic_total_time')",
        "CREATE TABLE TASK (startNs INTEGER, endNs INTEGER, deviceId INTEGER, globalTaskId INTEGER, taskType INTEGER)",
        "INSERT INTO TASK VALUES (200,260,0,8,3),(100,150,0,7,3),(300,310,0,9,3)",
        "CREATE TABLE COMPUTE_TASK_INFO (name INTEGER, globalTaskId INTEGER, opType INTEGER)",
        "INSERT INTO COMPUTE_TASK_INFO VALUES (1,7,2),(6,8,NULL),(1,9,2)",
        "CREATE TABLE TASK_PMU_INFO (globalTaskId INTEGER, name INTEGER, value NUMERIC)",
        "INSERT INTO TASK_PMU_INFO VALUES (7,4,1500),(7,5,0.5),(8,5,0.25),(9,4,NULL),(7,7,2000),(99,5,1)",
    )


def kernels_of(path: Path) -> KernelTable:
    (timeline,) = trace.read(path).timelines
    return KernelTable.of(timeline.kernels or ())


def test_export__counters__those_of_each_task_in_the_words_of_the_tables(tmp_path: Path) -> None:
    kernels = kernels_of(export(tmp_path / "ascend_pytorch_profiler_0.db"))

    assert [(kernel.name, dict(kernel.counters)) for kernel in kernels] == [
        ("mm1", {"aic_mac_time(us)": 1.5, "aic_mac_ratio": 0.5, "aicore_time(us)": 2.0}),
        ("add1", {"aic_mac_ratio": 0.25}),
        ("mm1", {}),
    ]


def test_export__written_again_before_its_counters_are_asked_for__refused(tmp_path: Path) -> None:
    path = export(tmp_path / "ascend_pytorch_profiler_0.db")
    kernels = kernels_of(path)
    written(path, "CREATE TABLE another (a)")

    assert [kernel.duration_ns for kernel in kernels] == [50, 60, 10]
    with pytest.raises(DocumentError, match="was written again while it was read"):
        kernels.counters.columns("aic_mac_ratio")


def test_export__damaged_table_of_counters__the_rest_is_read_all_the_same(tmp_path: Path) -> None:
    path = export(tmp_path / "ascend_pytorch_profiler_0.db")
    written(path, "INSERT INTO TASK_PMU_INFO VALUES (8, 5, 'x')")
    kernels = kernels_of(path)

    assert len(kernels) == 3
    with pytest.raises(DocumentError, match="'x' found where a number is expected"):
        kernels.counters.columns("aic_mac_ratio")


@pytest.mark.parametrize(
    "what", ["-- nothing", "DROP TABLE COMPUTE_TASK_INFO", "DROP TABLE TASK_PMU_INFO", "DELETE FROM TASK"]
)
def test_export__without_some_tables__what_there_is(what: str, tmp_path: Path) -> None:
    path = export(tmp_path / "ascend_pytorch_profiler_0.db")
    written(path, what)
    (timeline,) = trace.read(path).timelines

    assert len(timeline.events) == (0 if "DELETE" in what else 3)
    assert (timeline.kernels is None) == ("COMPUTE" in what)
    if isinstance(timeline.kernels, KernelTable):
        counters = timeline.kernels.counters.columns("aic_mac_ratio").values()
        assert [column.size for column in counters] == ([] if "PMU" in what else [len(timeline.kernels)])


def test_export__allocations_and_readings__by_operator_and_in_the_order_of_time(tmp_path: Path) -> None:
    path = written(
        export(tmp_path / "ascend_pytorch_profiler_0.db"),
        "INSERT INTO STRING_IDS VALUES (20,'aten::mm'),(21,'read'),(22,'write')",
        "CREATE TABLE OP_MEMORY (name INTEGER, size INTEGER, allocationTime INTEGER, releaseTime INTEGER, deviceId INTEGER)",
        "INSERT INTO OP_MEMORY VALUES (20,100,10,20,0),(20,50,NULL,15,0),(20,-50,10,20,0),(20,30,20,NULL,0),(NULL,9,1,2,0)",
        "CREATE TABLE AICORE_FREQ (deviceId INTEGER, timestampNs NUMERIC, freq NUMERIC)",
        "INSERT INTO AICORE_FREQ VALUES (0,300,1800),(0,100,1000.5),(1,100,5)",
        "CREATE TABLE HBM (deviceId INTEGER, timestampNs INTEGER, bandwidth NUMERIC, hbmId INTEGER, type INTEGER)",
        "INSERT INTO HBM VALUES (0,100,10,0,21),(0,100,5.5,1,21),(0,200,1,0,21),(0,100,2,0,22),(0,NULL,2,0,22)",
    )
    (timeline,) = trace.read(path).timelines
    assert timeline.memory.allocations is not None

    (total,) = timeline.memory.allocations
    assert (total.name, total.count, total.total_bytes, total.largest_bytes, total.held_bytes) == (
        "aten::mm",
        3,
        180.0,
        100.0,
        150.0,
    )
    assert {name: (read.time.tolist(), read.value.tolist()) for name, read in timeline.readings.items()} == {
        "core clock": ([100, 300], [1.0005e9, 1.8e9]),
        "memory read": ([100], [15.5]),
        "memory write": ([100], [2.0]),
    }


def test_read__prof_folder_exported_as_databases__the_newest_one(tmp_path: Path) -> None:
    """As msprof --type=db leaves it: next to the raw data, and next to those of earlier exports."""
    profile = tmp_path / "PROF_000001_20251120110536_ABC"
    (profile / "device_0").mkdir(parents=True)
    (profile / "msprof_20251120110536.db").write_bytes(b"SQLite format 3\0, cut off")
    newest = export(profile / "msprof_20251120110901.db")

    for path in (profile, tmp_path):
        recording = trace.read(path)
        assert (recording.path, recording.format) == (path, "ascend-db")
        assert list(recording.timelines[0].kernels or ()) == list(kernels_of(newest))

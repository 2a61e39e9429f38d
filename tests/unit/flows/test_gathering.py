"""Tables from processes of this machine and from clusters: who runs a task, and what happens to one whose worker dies."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from perfgate.cli.main import cli
from perfgate.errors import ClusterRefusedError, PerfgateError, UsageError
from perfgate.flows.trace.executors import Cluster, Task, completed, read_cluster
from perfgate.flows.trace.executors.local import LocalExecutor
from perfgate.flows.trace.gathering import Place, place_of
from perfgate.flows.trace.reducing import KEPT, TaskAnswer, read_answer
from perfgate.system.interrupts import SIGNALS
from perfgate.system.interrupts import install as install_signals
from tests.command import run_perfgate
from tests.fakes.deadly_reader import install, kill_readers
from tests.fakes.training import MS, Training
from tests.waiting import left_in_the_end, wait_until


def answer(number: int) -> bytes:
    return b"%d" % number


def die() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def die_once(marker: Path) -> bytes:
    if marker.exists():
        return b"alive"
    marker.touch()
    return die()


def wait_for_the_pools_end_then_die_once(folder: Path) -> bytes:
    starts = len(list(folder.iterdir()))
    (folder / str(starts)).touch()
    if starts == 0:
        time.sleep(600)
    return die() if starts == 1 else b"alive"


def die_beside(folder: Path) -> bytes:
    while not list(folder.iterdir()):
        time.sleep(0.01)
    return die()


def test_completed__worker_dies_beside_another__the_death_is_not_counted_for_the_other(tmp_path: Path) -> None:
    deadly, beside = (Task(partial(call, tmp_path)) for call in (die_beside, wait_for_the_pools_end_then_die_once))
    assert dict(completed(LocalExecutor(2), [deadly, beside])) == {deadly: None, beside: b"alive"}


def touch(marker: Path) -> bytes:
    marker.touch()
    return b"idle"


def die_beside_idle(marker: Path) -> bytes:
    while not marker.exists():
        time.sleep(0.01)
    time.sleep(0.3)  # until the other worker waits for a task
    return die()


def test_completed__worker_dies_beside_an_idle_one__prints_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    install_signals()
    try:
        deadly, idle = (Task(partial(call, tmp_path / "marker")) for call in (die_beside_idle, touch))
        assert dict(completed(LocalExecutor(2), [deadly, idle])) == {deadly: None, idle: b"idle"}
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    assert capfd.readouterr() == ("", "")


ENDLESS = """
import time
from functools import partial
from pathlib import Path
from perfgate.flows.trace.executors import Task, completed
from perfgate.flows.trace.executors.local import LocalExecutor

def sleep(folder):
    import os
    (folder / str(os.getpid())).touch()
    time.sleep(600)

list(completed(LocalExecutor(2), [Task(partial(sleep, Path(FOLDER))) for _ in range(2)]))
"""


def test_completed__command_is_killed__its_workers_end_too(tmp_path: Path) -> None:
    script = ENDLESS.replace("FOLDER", repr(str(tmp_path)))
    with subprocess.Popen([sys.executable, "-c", script]) as command:
        wait_until(lambda: len(list(tmp_path.iterdir())) == 2)
        command.kill()
    pids = [path.name for path in tmp_path.iterdir()]
    assert left_in_the_end(lambda: [pid for pid in pids if runs(pid)]) == []


def runs(pid: str) -> bool:
    with suppress(OSError):
        return Path("/proc", pid, "cmdline").read_bytes() != b""  # that of a dead process nobody waited for
    return False


def test_completed__workers_die__only_the_task_that_kills_each_worker_has_no_answer(tmp_path: Path) -> None:
    tasks = [Task(partial(answer, number)) for number in range(4)]
    deadly, once = Task(die), Task(partial(die_once, tmp_path / "marker"))
    found = dict(completed(LocalExecutor(2), [*tasks[:2], deadly, once, *tasks[2:]]))
    assert found == {**dict(zip(tasks, (b"0", b"1", b"2", b"3"))), deadly: None, once: b"alive"}


def test_ranks__recording_kills_its_readers__listed_and_the_others_judged(tmp_path: Path) -> None:
    packages = install(tmp_path / "packages")
    recordings = Training(ranks=4, tensor=4, steps=2, layers=1).write(tmp_path / "job")
    kill_readers(recordings / "job_0.pt.trace.json", 1)
    kill_readers(recordings / "job_3.pt.trace.json", 1000)
    done = run_perfgate(
        "trace",
        "ranks",
        "job",
        "--workers",
        "2",
        cwd=tmp_path,
        environment={**os.environ, "PYTHONPATH": str(packages), "COLUMNS": "400"},
    )
    assert done.returncode == 0, done.stderr
    assert "1 of 4 recordings left out: job/job_3.pt.trace.json: the process that read it was killed" in done.stdout


@pytest.mark.parametrize(
    ("text", "cluster"),
    [
        ("ray://head:10001", Cluster("ray", "head:10001")),
        ("dask://[::1]:8786", Cluster("dask", "[::1]:8786")),
        ("slurm", Cluster("slurm")),
    ],
)
def test_read_cluster__known__engine_and_address(text: str, cluster: Cluster) -> None:
    assert read_cluster(text) == cluster


@pytest.mark.parametrize("text", ["ray", "ray://head", "dask://:x", "slurm://x", "tcp://head:1", ""])
def test_read_cluster__unknown__what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="write ray://HOST:PORT, dask://HOST:PORT or slurm"):
        read_cluster(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("job/a b", Place(Path("job/a b"))),
        ("file:///data/job", Place(Path("/data/job"))),
        ("file://localhost/data/job", Place(Path("/data/job"))),
        ("file://node1/data/a%20b", Place(Path("/data/a b"), "node1")),
    ],
)
def test_place_of__path_or_url__path_and_node(text: str, place: Place) -> None:
    assert place_of(text) == place


@pytest.mark.parametrize("text", ["s3://bucket/job", "file://node1"])
def test_place_of__another_url__what_to_write(text: str) -> None:
    with pytest.raises(UsageError, match="write a path, or file://HOST/PATH"):
        place_of(text)


@pytest.mark.parametrize(
    ("on", "missing", "extra"),
    [("ray://head:1", "ray", "ray"), ("dask://head:1", "distributed", "dask"), ("slurm", "submitit", "slurm")],
)
def test_ranks__package_of_the_cluster_is_missing__what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on: str, missing: str, extra: str
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    Training(ranks=1, tensor=1, steps=1, layers=1).write(tmp_path)
    error = refused("ranks", str(tmp_path), "--on", on)
    assert f"pip install 'perfgate[{extra}]'" in str(error)
    assert error.exit_code == 2


def test_ranks__node_or_workers_without_sense__what_to_write(tmp_path: Path) -> None:
    assert "name the cluster with --on" in str(refused("ranks", "file://node1/job"))
    both = refused("reduce", str(tmp_path), "--on", "slurm", "--workers", "2")
    assert "the cluster decides how many tasks run" in str(both)


def refused(*arguments: str) -> PerfgateError:
    error = CliRunner().invoke(cli, ["trace", *arguments]).exception
    assert isinstance(error, PerfgateError)
    return error


def test_read_answer__of_another_version__which_of_them_to_install() -> None:
    made = msgspec.msgpack.encode(TaskAnswer("0.0.9, layout 1"))
    with pytest.raises(
        ClusterRefusedError, match=r"run perfgate 0\.0\.9, layout 1, this is .*install the same version there"
    ):
        read_answer(made)


def test_reduce__several_folders__tables_of_each_under_its_number(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Training(ranks=1, tensor=1, steps=1, layers=1).write(tmp_path / name)
    (tmp_path / "empty").mkdir()
    folders = [str(tmp_path / name) for name in ("a", "empty", "b")]
    done = CliRunner().invoke(cli, ["trace", "reduce", *folders, "--workers", "1", "--out", str(tmp_path / "tables")])
    assert done.exit_code == 0, done.output
    names = sorted(file.name for file in (tmp_path / "tables").iterdir())
    assert names == [f"{number}__job_0.pt.trace.json{KEPT}" for number in (0, 2)]
    assert "empty: holds no recordings of ranks" in done.stderr


def test_reduce__paths_that_give_one_name__every_table_is_kept(tmp_path: Path) -> None:
    recordings = tmp_path / "recordings"
    Training(ranks=2, tensor=2, steps=1, layers=1).write(recordings)
    (recordings / "node").mkdir()
    (recordings / "job_0.pt.trace.json").rename(recordings / "node__rank.json")
    (recordings / "job_1.pt.trace.json").rename(recordings / "node" / "rank.json")
    tables = tmp_path / "tables"
    arguments = ["trace", "reduce", str(recordings), "--workers", "1", "--out", str(tables)]
    for _ in range(2):
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert len(list(tables.iterdir())) == 2
    done = CliRunner().invoke(cli, ["trace", "ranks", str(tables), "--json"])
    assert [row["rank"] for row in json.loads(done.stdout)["ranks"]] == [0, 1]


def test_ranks__tables_in_a_folder_below_the_recordings__each_rank_once(tmp_path: Path) -> None:
    slow = Training(ranks=4, tensor=4, extra=lambda rank, step, layer: 2 * MS if rank == 2 else 0.0)
    recordings = slow.write(tmp_path / "recordings")
    tables = recordings / "tables"
    for _ in range(2):
        arguments = ["trace", "reduce", str(recordings), "--workers", "1", "--out", str(tables)]
        done = CliRunner().invoke(cli, arguments)
        assert done.exit_code == 0, done.output
        assert sorted(done.stdout.split()) == sorted(map(str, tables.iterdir()))
        assert len(list(tables.iterdir())) == 4
    done = CliRunner().invoke(cli, ["trace", "ranks", str(recordings), "--workers", "1", "--json"])
    document = json.loads(done.stdout)
    assert [row["rank"] for row in document["ranks"]] == [0, 1, 2, 3]
    assert [row["rank"] for row in document["delays"]] == [2]
    assert document["gaps"]["repeated"] == []

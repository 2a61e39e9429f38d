"""`perfgate trace ranks --on CLUSTER` on real clusters of several workers, some of which are killed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from perfgate.flows.trace.reducing import KEPT
from tests.cluster.clusters import HOST, STARTED, RunningCluster
from tests.command import run_perfgate
from tests.fakes.deadly_reader import install, kill_readers
from tests.fakes.training import MS, Training

SLOW = 2
RANKS = 8


class Desk(NamedTuple):
    """The recordings of a training whose rank 2 is slow, on a file system that the cluster shares."""

    cluster: RunningCluster
    recordings: Path
    environment: dict[str, str]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_perfgate("trace", *arguments, cwd=self.recordings.parent, environment=self.environment)

    def answer(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        done = self.run("ranks", *arguments, "--json")
        assert done.returncode == code, done.stderr
        return dict(json.loads(done.stdout))

    def forget(self) -> None:
        for kept in self.recordings.rglob(f"*{KEPT}"):
            kept.unlink()


@pytest.fixture(scope="module", params=STARTED)
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    packages = install(tmp_path_factory.mktemp("packages") / "deadly")
    environment = {**os.environ, "PYTHONPATH": str(packages)}
    with STARTED[request.param](tmp_path_factory.mktemp(request.param), environment) as running:
        yield running._replace(environment={**environment, **running.environment})


@pytest.fixture
def desk(cluster: RunningCluster, tmp_path: Path) -> Desk:
    training = Training(
        ranks=RANKS, tensor=4, steps=4, layers=2, extra=lambda rank, step, layer: MS if rank == SLOW else 0.0
    )
    return Desk(cluster, training.write(tmp_path / "job"), dict(cluster.environment))


def test_ranks__on_a_cluster__the_answer_of_this_machine(desk: Desk) -> None:
    expected = desk.answer("job")
    assert expected["delays"][0]["rank"] == SLOW
    found = desk.answer("job", "--on", desk.cluster.on)
    assert _without_paths(found) == _without_paths(expected)
    assert not list(desk.recordings.rglob(f"*{KEPT}"))
    # With the tables beside the recordings the next answer needs no cluster.
    desk.run("reduce", "job", "--on", desk.cluster.on)
    assert len(list(desk.recordings.rglob(f"*{KEPT}"))) == RANKS
    assert _without_paths(desk.answer("job", "--on", "ray://192.0.2.1:1")) == _without_paths(expected)


def test_ranks__workers_die__each_recording_is_tried_again_and_those_that_kill_both_are_listed(desk: Desk) -> None:
    recordings = sorted(desk.recordings.glob("*.pt.trace.json"))
    kill_readers(recordings[0], 1)
    # What shares a worker with these is not left out with them.
    for recording in (recordings[3], recordings[5]):
        kill_readers(recording, 1000)
    recordings[7].write_text("not a recording")
    found = desk.answer("job", "--on", desk.cluster.on)
    assert [row["rank"] for row in found["ranks"]] == [0, 1, 2, 4, 6]
    assert found["delays"][0]["rank"] == SLOW
    *killed, damaged = found["left_out"]
    assert [one["path"] for one in (*killed, damaged)] == [str(recordings[number]) for number in (3, 5, 7)]
    assert all("was killed, and so was the next one" in one["reason"] for one in killed)


def test_reduce__on_the_disk_of_a_node__read_there_and_named_with_the_node(desk: Desk, tmp_path: Path) -> None:
    place = f"file://{HOST}{desk.recordings}"
    found = desk.answer(place, "--on", desk.cluster.on)
    assert found["path"] == place
    assert {row["path"].rpartition("/")[0] for row in found["ranks"]} == {place}
    done = desk.run("reduce", place, f"file://{HOST}{tmp_path}/none", "--on", desk.cluster.on, "--out", "tables")
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.splitlines()) == RANKS
    assert f"file://{HOST}{tmp_path}/none: holds no recordings" in done.stderr
    assert _without_paths(desk.answer("tables")) == _without_paths(found)


def _without_paths(found: dict[str, Any]) -> dict[str, Any]:
    return {**found, "path": "", "ranks": [{**row, "path": ""} for row in found["ranks"]]}


@pytest.mark.parametrize("on", ["ray://127.0.0.1:1", "dask://127.0.0.1:1"])
def test_ranks__cluster_that_does_not_answer__exit_code_4(on: str, tmp_path: Path) -> None:
    pytest.importorskip({"ray": "ray", "dask": "distributed"}[on.partition(":")[0]])
    Training(ranks=2, tensor=2, steps=1, layers=1).write(tmp_path / "job")
    done = run_perfgate("trace", "ranks", "job", "--on", on, cwd=tmp_path)
    assert done.returncode == 4, done.stderr
    assert "cannot be reached" in done.stderr


def test_ranks__node_that_the_cluster_does_not_have__its_nodes_are_named(desk: Desk) -> None:
    if desk.cluster.on == "slurm":
        pytest.skip("sbatch itself refuses an unknown node")
    done = desk.run("ranks", "file://elsewhere/job", "--on", desk.cluster.on)
    assert done.returncode == 2
    assert "elsewhere is not a node of the cluster; its nodes are" in done.stderr
    assert HOST in done.stderr

"""Runs that a service cannot take when they are recorded: they wait, signed, and are sent when it is back."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from perfgate.document.files import canonical_bytes
from perfgate.flows.shared.unsent import unsent_runs
from perfgate.judging.store.runs import record_run, stored_runs
from tests.command import run_perfgate
from tests.fakes.service import Listening, Service, serve_folder
from tests.unit.document.minimal import minimal_run

# Nothing listens on port 1.
DOWN = "postgresql://perfgate@127.0.0.1:1/database"
# So often a command asks a service that cannot answer.
TRIES = 5


class Runner:
    """A machine that records runs of the project ``shop`` at a service."""

    def __init__(self, folder: Path, address: Listening) -> None:
        self._folder, self._address = folder, address
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "perfgate.toml").write_text('project = "shop"\nworkload = "perf/workload.py:encoder"\n')
        self.token = self.up().token("shop")

    def up(self) -> Service:
        return serve_folder(self._address, self._folder)

    def down(self) -> list[str]:
        """Lose the database of the service; return the paths of the requests that come meanwhile."""
        serve_folder(self._address, self._folder, location=DOWN, warn=lambda _: None)
        serving, paths = self._address.application, list[str]()
        assert serving is not None

        async def noting(scope: Scope, receive: Receive, send: Send) -> None:
            paths.append(scope["path"])
            await serving(scope, receive, send)

        self._address.application = noting
        return paths

    @property
    def waiting(self) -> list[Path]:
        return sorted((self._folder / "home" / ".local" / "state" / "perfgate" / "unsent").glob("*/*.run"))

    def types(self, *arguments: str, store: str | None = None, home: str = "home") -> subprocess.CompletedProcess[str]:
        environ = {
            **os.environ,
            "PERFGATE_STORE": store or self._address.url,
            "PERFGATE_STORE_TOKEN": self.token,
            "HOME": str(self._folder / home),
            "XDG_STATE_HOME": "",
        }
        return run_perfgate(*arguments, cwd=self.project, environment=environ)

    def wait_for_service(self, session: str) -> Path:
        """Keep a run as `record` does after its tries, which take eight seconds."""
        environ = {"PERFGATE_STORE_TOKEN": self.token, "HOME": str(self._folder / "home")}
        unsent = unsent_runs(self._address.url, "shop", environ)
        assert unsent is not None
        return unsent.add(minimal_run(session=session))

    def record(self, session: str, home: str = "home") -> subprocess.CompletedProcess[str]:
        path = self._folder / f"{session}.json"
        path.write_bytes(canonical_bytes(minimal_run(session=session), name="the run"))
        return self.types("baseline", "record", "--run", str(path), home=home)


@pytest.fixture
def runner(address: Listening, tmp_path: Path) -> Runner:
    return Runner(tmp_path, address)


@pytest.mark.parametrize("status", [500, 520, 429])
def test_record__failure_of_the_service_or_a_proxy__run_waits(runner: Runner, address: Listening, status: int) -> None:
    serving = address.application
    assert serving is not None

    async def failing(scope: Scope, receive: Receive, send: Send) -> None:
        await (PlainTextResponse("oops", status) if scope["method"] == "PUT" else serving)(scope, receive, send)

    address.application = failing
    failed = runner.record("s1")
    assert (failed.returncode, f"answers HTTP {status}: no reason. The run waits in" in failed.stderr) == (4, True)
    assert len(runner.waiting) == 1
    service = runner.up()
    assert runner.types("store", "push").returncode == 0
    assert [run.session for run in stored_runs(service.store, "shop")] == ["s1"]


def test_record__service_down__run_waits_where_it_can_and_the_next_record_sends_it(
    runner: Runner, tmp_path: Path
) -> None:
    requests = runner.down()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / ".local").write_text("no folder")
    # At once, because each tries again for seven seconds.
    with ThreadPoolExecutor(2) as pool:
        refused, without_place = pool.map(runner.record, ["s1", "s0"], ["home", "full"])
    for done in (refused, without_place):
        assert done.returncode == 4
        assert "cannot be reached" in done.stderr
    assert len(requests) == 2 * TRIES, "the first answer that does not come ends the command"
    assert str(runner.waiting[0]) in refused.stderr
    assert "waits" not in without_place.stderr
    service = runner.up()
    done = runner.record("s2")
    assert done.returncode == 0, done.stdout
    assert "sent runs that had waited for the service" in done.stdout
    assert {run.session for run in stored_runs(service.store, "shop")} == {"s1", "s2"}
    assert runner.waiting == []


def test_push__two_jobs_at_once__each_run_is_sent_and_neither_fails(runner: Runner) -> None:
    for number in range(8):
        runner.wait_for_service(f"s{number}")
    service = runner.up()
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda _: runner.types("store", "push"), range(2)))
    assert [job.returncode for job in done] == [0, 0], [job.stderr for job in done]
    assert len(stored_runs(service.store, "shop")) == 8
    assert runner.waiting == []


def test_push__waiting_run__sent_once(runner: Runner) -> None:
    runner.wait_for_service("s1")
    service = runner.up()
    done = runner.types("store", "push")
    assert (done.returncode, "sent runs that had waited" in done.stdout) == (0, True)
    assert [run.session for run in stored_runs(service.store, "shop")] == ["s1"]
    assert runner.types("store", "push").stdout == "no run waits to be sent\n"


def test_push__file_that_nobody_with_the_token_wrote__refused_and_kept(runner: Runner) -> None:
    path = runner.wait_for_service("s1")
    path.write_bytes(path.read_bytes().replace(b"0.002", b"0.001"))
    service = runner.up()
    done = runner.types("store", "push")
    assert done.returncode == 1
    assert "was not written with the present token" in done.stderr
    assert stored_runs(service.store, "shop") == []
    assert path.with_suffix(".refused").is_file()
    assert runner.types("store", "push").returncode == 0


def test_push__session_that_is_stored_with_other_numbers__refused_and_named(runner: Runner) -> None:
    path = runner.wait_for_service("s1")
    service = runner.up()
    record_run(service.store, minimal_run(session="s1", value=0.5))
    done = runner.types("store", "push")
    assert done.returncode == 1
    assert str(path.with_suffix(".refused")) in done.stderr


def test_push__store_that_is_a_file__says_that_runs_wait_for_a_service_only(runner: Runner) -> None:
    done = runner.types("store", "push", store=str(runner.project / "store.db"))
    assert done.returncode == 2
    assert "runs wait for a service only" in done.stderr

"""The real `perfgate publish` on forges without CI variables, and several of it at once, in processes of their own."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perfgate.document.decision import Policy
from perfgate.document.files import read_run, write_decision, write_run
from perfgate.document.history import History
from perfgate.document.run import CiContext
from perfgate.judging.forge.comment import marker, read_state
from perfgate.judging.gate.decide import decide
from tests.command import COMMAND, run_perfgate
from tests.end_to_end.publishing import Project, make_side
from tests.fakes.forge import BOT, BOT_TOKEN, FakeForge, StoredChange
from tests.fakes.forge_dialects import GitHubDialect
from tests.fakes.forge_similar import GitCodeDialect, GiteaDialect, GiteeDialect

DIALECTS = {"gitcode": GitCodeDialect, "gitea": GiteaDialect, "gitee": GiteeDialect, "github": GitHubDialect}


class Given:
    """A job somewhere: the check folder it has, and what it says of itself by options."""

    def __init__(self, fake: FakeForge, folder: Path, project: Project) -> None:
        self.fake, self.folder, self.project = fake, folder, project
        self.host = fake.dialect.name  # type: ignore[attr-defined]

    def measure(self, run: int, *, ops: int = 40) -> Path:
        """Write what `perfgate check` writes in a job that was told of run ``run``."""
        own = CiContext(
            forge=self.host, repository="team/model", run_id=str(run), run_attempt=1, head_sha=self.project.head
        )
        base = make_side("base", 40, self.project.base, own)
        head = make_side("head", ops, self.project.head, own)
        out = self.folder / f"run-{run}"
        for side, document in (("base", base), ("head", head)):
            (out / side).mkdir(parents=True)
            write_run(out / side / "run.json", document)
        write_decision(out / "decision.json", decide(base, head, policy=Policy(), history=History()))
        return out

    def start(self, folder: Path, run: int, *options: str) -> subprocess.Popen[str]:
        """Start a publisher."""
        return subprocess.Popen(
            [*COMMAND, *self._arguments(folder, run, *options)],
            env=self._environment(),
            cwd=self.project.root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def publish(self, folder: Path, run: int, *options: str) -> subprocess.CompletedProcess[str]:
        arguments = self._arguments(folder, run, *options)
        return run_perfgate(*arguments, cwd=self.project.root, environment=self._environment())

    def _arguments(self, folder: Path, run: int, *options: str) -> list[str]:
        told = ["--forge", self.host, "--repository", "team/model", "--change-request", "7"]
        told += ["--head-sha", self.project.head, "--run", str(run), "--api-url", self.fake.api_url, *options]
        return ["publish", str(folder), *told]

    def _environment(self) -> dict[str, str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return {**plain, "PERFGATE_TOKEN": BOT_TOKEN, "PERFGATE_STORE": str(self.folder / "store.db")}

    def comments(self) -> list[str]:
        return [comment.body for comment in self.fake.comments.get(7, []) if comment.author == BOT]


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path, project: Project) -> Iterator[Given]:
    with FakeForge(DIALECTS[getattr(request, "param", "gitcode")]()) as fake:
        fake.repository = project.root
        fake.changes.append(StoredChange(7, "team", "feature", project.head, base_sha=project.base))
        yield Given(fake, tmp_path, project)
        assert fake.violations == []


@pytest.mark.parametrize("job", sorted(DIALECTS), indirect=True)
def test_publish__event_by_options__comment_and_status(job: Given) -> None:
    done = job.publish(job.measure(123, ops=64), 123)
    assert done.returncode == 1, done.stderr
    (body,) = job.comments()
    state = read_state(body)
    assert body.splitlines()[0] == marker("default")
    assert state is not None
    assert (state.run, state.attempt, state.head, state.verdict) == (123, 1, job.project.head, "FAIL")
    if job.host in ("gitcode", "gitee"):
        assert done.stdout.count("no commit status") == 1
        assert "refused" not in body  # there is no older status that could mislead a reader
    else:
        assert [(status.sha, status.state) for status in job.fake.statuses] == [(job.project.head, "failure")]


def test_publish__artifact_of_another_run__is_not_believed(job: Given) -> None:
    done = job.publish(job.measure(123), 124)
    assert done.returncode == 3
    assert "INCONCLUSIVE" in job.comments()[0]
    assert "'123'" in job.comments()[0]


def test_publish__options_in_part__wrong_use(job: Given) -> None:
    folder = job.measure(123)
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    done = run_perfgate("publish", str(folder), "--forge", job.host, "--run", "123", environment=environ)
    assert done.returncode == 2
    assert "missing: --repository (PERFGATE_REPOSITORY), --head-sha (PERFGATE_HEAD_SHA)" in done.stderr


@pytest.mark.slow
def test_publish__three_processes_at_once__one_comment_of_the_newest(job: Given) -> None:
    folders = {run: job.measure(run, ops=64 if run == 10 else 40) for run in (8, 9, 10)}
    started = [job.start(folders[run], run) for run in (10, 8, 9)]
    ended = [process.communicate(timeout=600) for process in started]
    assert [process.returncode for process in started] == [1, 0, 0], ended
    states = [read_state(body) for body in job.comments()]
    assert [(state.run, state.verdict) for state in states if state is not None] == [(10, "FAIL")]
    # Besides it at most the reply that the verdict turned, once.
    assert len([body for body in job.comments() if "PASS → FAIL" in body]) <= 1
    assert len(job.comments()) <= 2


def test_publish__base_that_is_not_of_main__is_not_believed_where_only_the_clone_can_tell(job: Given) -> None:
    folder = job.measure(123)
    path = folder / "base" / "run.json"
    run = read_run(path)
    write_run(path, msgspec.structs.replace(run, source=msgspec.structs.replace(run.source, commit=job.project.newer)))
    assert job.publish(folder, 123).returncode == 3
    assert "INCONCLUSIVE" in job.comments()[0]


def test_publish__change_request_has_moved_on__writes_no_comment(job: Given) -> None:
    job.fake.changes[:] = [StoredChange(7, "team", "feature", "e" * 40)]
    done = job.publish(job.measure(123, ops=64), 123)
    assert done.returncode == 1, done.stderr
    assert f"No change request has the head {job.project.head[:12]} any more" in done.stdout
    assert job.comments() == []

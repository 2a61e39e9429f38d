"""The real `perfgate publish` in a process of its own, against a forge on this machine that the official API judges."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

import msgspec
import pytest

from perfgate.document.decision import Policy
from perfgate.document.files import read_run, write_decision, write_run
from perfgate.document.history import History
from perfgate.document.run import (
    FROM_PROFILE,
    CiContext,
    CounterSet,
    OpCount,
    RunDocument,
    Session,
    Source,
    WorkloadRecord,
)
from perfgate.document.run import Testbed as _Testbed  # pytest would collect a class named Test...
from perfgate.judging.forge.comment import marker, read_state
from perfgate.judging.gate.decide import decide
from perfgate.version import __version__
from tests.fakes.forge import BOT, BOT_TOKEN, PERSON, FakeForge, Reply, StoredChange
from tests.fakes.forge_dialects import GitHubDialect, GitLabDialect

BASE, HEAD, MERGE, STRANGER = "b" * 40, "a" * 40, "c" * 40, "d" * 40
MARKER = marker("default")
HOSTS = {"github": GitHubDialect, "gitlab": GitLabDialect}


class Job:
    """A CI job of the fake forge: its environment, its event, the check folder it downloaded."""

    def __init__(self, fake: FakeForge, folder: Path) -> None:
        self.fake, self.folder = fake, folder
        self.host = fake.dialect.name  # type: ignore[attr-defined]
        self.artifact = folder / "artifact"
        self.summary = folder / "summary.md"
        self.environ = self._github() if self.host == "github" else self._gitlab()

    def _github(self) -> dict[str, str]:
        self.event({"number": 7, "pull_request": {"number": 7, "head": {"sha": HEAD, "repo": None}}})
        return {
            "GITHUB_ACTIONS": "true",
            "GITHUB_EVENT_NAME": "pull_request",
            "GITHUB_EVENT_PATH": str(self.folder / "event.json"),
            "GITHUB_REPOSITORY": "team/model",
            "GITHUB_SERVER_URL": self.fake.url,
            "GITHUB_API_URL": self.fake.api_url,
            "GITHUB_RUN_ID": "50",
            "GITHUB_RUN_ATTEMPT": "1",
            "GITHUB_SHA": MERGE,
            "GITHUB_STEP_SUMMARY": str(self.summary),
        }

    def _gitlab(self) -> dict[str, str]:
        # A pipeline of a fork: the merge request lives in project 5, not in CI_PROJECT_ID.
        return {
            "GITLAB_CI": "true",
            "CI_SERVER_URL": self.fake.url,
            "CI_API_V4_URL": self.fake.api_url,
            "CI_PROJECT_ID": "99",
            "CI_PROJECT_PATH": "team/model",
            "CI_PIPELINE_ID": "50",
            "CI_PIPELINE_URL": self.fake.url + "/team/model/-/pipelines/50",
            "CI_COMMIT_SHA": MERGE,
            "CI_MERGE_REQUEST_IID": "7",
            "CI_MERGE_REQUEST_PROJECT_ID": "5",
            "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": HEAD,
        }

    def event(self, payload: dict[str, Any]) -> None:
        (self.folder / "event.json").write_text(json.dumps(payload))

    def measure(self, *, ops: int = 40, ci: Any = "own", commit: str = MERGE, policy: Optional[Policy] = None) -> None:
        """Write what `perfgate check` writes: a head that dispatches ``ops`` operators, and a base with 40."""
        own = CiContext(forge=self.host, repository="team/model", run_id="50", run_attempt=1, head_sha=HEAD)
        base = _run("base", 40, BASE, own)
        head = _run("head", ops, commit, own if ci == "own" else ci)
        decision = decide(base, head, policy=policy or Policy(), history=History())
        for side, run in (("base", base), ("head", head)):
            (self.artifact / side).mkdir(parents=True, exist_ok=True)
            write_run(self.artifact / side / "run.json", run)
        write_decision(self.artifact / "decision.json", decision)

    def publish(self, *options: str, token: Optional[str] = BOT_TOKEN) -> subprocess.CompletedProcess[str]:
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        environ = {**plain, **self.environ, **({"PERFGATE_TOKEN": token} if token else {})}
        command = [sys.executable, "-m", "perfgate", "publish", str(self.artifact), *options]
        return subprocess.run(
            command, env=environ, cwd=self.folder, capture_output=True, text=True, timeout=60, check=False
        )

    def comments(self) -> list[str]:
        return [comment.body for comment in self.fake.comments.get(7, []) if comment.author == BOT]

    def statuses(self) -> list[tuple[str, str]]:
        return [(status.sha, status.state) for status in self.fake.statuses]


def _run(side: Any, ops: int, commit: str, ci: Optional[CiContext]) -> RunDocument:
    counted = OpCount(op="aten::linear", count=ops, line="model.py:8")
    counters = CounterSet(
        workload="encoder", shape="short", repeats=3, values={"counters.framework_ops": ops}, ops=[counted]
    )
    times = {"started_at": "2026-11-20T10:00:00Z", "finished_at": "2026-11-20T10:05:00Z"}
    workload = WorkloadRecord(
        name="encoder", reference="perf/workload.py:encoder", sha256="0" * 64, batch=4, shapes=["short"]
    )
    return RunDocument(
        perfgate_version=__version__,
        side=side,
        project="model",
        session=Session(id="s-1", **times, seed=1, command="perfgate check", ci=ci),
        source=Source(commit=commit, branch="feature", subject="a change"),
        testbed=_Testbed(fingerprint="f", device_kind="cpu", comparable={"device.name": "test"}),
        workloads=[workload],
        counters=[counters],
    )


@pytest.fixture(params=sorted(HOSTS))
def job(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Job]:
    with FakeForge(HOSTS[request.param]()) as fake:
        fake.changes.append(StoredChange(7, "team", "feature", HEAD, MERGE))
        yield Job(fake, tmp_path)
        assert fake.violations == []


@pytest.fixture
def github(tmp_path: Path) -> Iterator[Job]:
    with FakeForge(GitHubDialect()) as fake:
        fake.changes.append(StoredChange(7, "mallory", "feature", HEAD, MERGE))
        yield Job(fake, tmp_path)
        assert fake.violations == []


def test_publish__regressed__posts_a_comment_and_fails(job: Job) -> None:
    job.measure(ops=64)
    done = job.publish()
    assert done.returncode == 1, done.stderr
    (body,) = job.comments()
    lines = body.splitlines()
    assert lines[0] == MARKER
    assert next(line for line in lines[2:] if line).startswith("## perfgate: FAIL")
    assert "64" in body
    state = read_state(body)
    assert state is not None
    assert (state.run, state.attempt, state.head, state.verdict) == (50, 1, HEAD, "FAIL")
    assert job.statuses() == [(HEAD, "failure" if job.host == "github" else "failed")]


def test_publish__unchanged_then_regressed__edits_and_replies(job: Job) -> None:
    job.measure()
    assert job.publish().returncode == 0
    job.measure(ops=64)
    assert job.publish().returncode == 1
    comment, reply = job.comments()
    assert "## perfgate: FAIL" in comment
    assert "PASS → FAIL" in reply


def test_publish__newer_comment_there__leaves_it_and_the_status(job: Job) -> None:
    state = '{"run":51,"attempt":1,"head":"x","verdict":"PASS"}'
    newer = job.fake.write(7, f"{MARKER}\n<!-- perfgate:state {state} -->\nnewer", BOT)
    job.measure(ops=64)
    done = job.publish()
    assert done.returncode == 1
    assert newer.body.endswith("newer")
    assert job.statuses() == []
    assert "newer run" in done.stdout


def test_publish__artifact_says_pass_but_samples_say_fail__fails(github: Job) -> None:
    github.measure(ops=64)
    path = github.artifact / "decision.json"
    forged = {**json.loads(path.read_bytes()), "verdict": "PASS", "reasons": [], "comparisons": []}
    path.write_text(json.dumps(forged))
    assert github.publish().returncode == 1
    assert "## perfgate: FAIL" in github.comments()[0]


def test_publish__artifact_recorded_a_lax_policy__checkout_decides(github: Job) -> None:
    lax = Policy(tolerances={"counters.framework_ops": 9.0, "ops.count:aten::linear": 9.0})
    github.measure(ops=64, policy=lax)
    assert github.publish("--dry-run").returncode == 0
    (github.folder / "perfgate.toml").write_text('workload = "perf/workload.py:encoder"\n')
    assert github.publish().returncode == 1


def test_publish__no_artifact__says_so_and_is_inconclusive(job: Job) -> None:
    done = job.publish()
    assert done.returncode == 3, done.stderr
    (body,) = job.comments()
    assert "INCONCLUSIVE" in body
    assert "measuring job" in body
    assert str(job.folder) not in body
    assert job.statuses() == [(HEAD, "error" if job.host == "github" else "failed")]


@pytest.mark.parametrize("damage", [b"", b'{"schema": ', b"[" * 100_000, b'{"schema": "perfgate/run", "x": NaN}'])
def test_publish__damaged_artifact__is_inconclusive(github: Job, damage: bytes) -> None:
    github.measure()
    (github.artifact / "head" / "run.json").write_bytes(damage)
    assert github.publish().returncode == 3
    assert "INCONCLUSIVE" in github.comments()[0]


_FOREIGN = [
    ({"repository": "mallory/model"}, MERGE, "repository"),
    ({"run_id": "49"}, MERGE, "run id"),
    ({"head_sha": STRANGER}, MERGE, "head commit"),
    ({"run_attempt": 2}, MERGE, "attempt 2"),
    ({}, STRANGER, "measured the commit"),
]


@pytest.mark.parametrize(("changes", "commit", "words"), _FOREIGN)
def test_publish__artifact_of_another_run__is_refused(github: Job, changes: Any, commit: str, words: str) -> None:
    own = CiContext(forge=github.host, repository="team/model", run_id="50", run_attempt=1, head_sha=HEAD)
    github.measure(ops=64, ci=msgspec.structs.replace(own, **changes), commit=commit)
    assert github.publish().returncode == 3
    (body,) = github.comments()
    assert "INCONCLUSIVE" in body
    assert "aten" not in body
    assert all(word in body for word in words.split())


def test_publish__measured_outside_ci__is_refused(github: Job) -> None:
    github.measure(ci=None)
    assert github.publish().returncode == 3


def test_publish__made_from_a_recording__is_refused(github: Job) -> None:
    github.measure()
    path = github.artifact / "head" / "run.json"
    head = read_run(path)
    recorded = msgspec.structs.replace(head.session, command=FROM_PROFILE)
    write_run(path, msgspec.structs.replace(head, session=recorded))
    assert github.publish().returncode == 3
    (body,) = github.comments()
    assert "was made from a recording" in body


def test_publish__no_token__prints_and_posts_nothing(job: Job) -> None:
    job.measure(ops=64)
    done = job.publish(token=None)
    assert done.returncode == 1
    assert "## perfgate: FAIL" in done.stdout
    assert "Nothing was posted: no token in PERFGATE_TOKEN" in done.stdout
    assert job.fake.calls == []
    if job.host == "github":
        assert "## perfgate: FAIL" in job.summary.read_text()
        assert done.stdout.startswith("::stop-commands::")


def test_publish__dry_run__posts_nothing_although_there_is_a_token(github: Job) -> None:
    github.measure(ops=64)
    done = github.publish("--dry-run")
    assert done.returncode == 1
    assert "dry run" in done.stdout
    assert github.fake.calls == []
    assert not github.summary.exists()


def test_publish__token_in_another_variable__is_found(github: Job) -> None:
    github.measure()
    github.environ["MY_SECRET"] = BOT_TOKEN
    assert github.publish("--token-env", "MY_SECRET", token=None).returncode == 0
    assert len(github.comments()) == 1


def test_publish__outside_ci__prints(github: Job) -> None:
    github.measure()
    github.environ = {}
    done = github.publish()
    assert done.returncode == 0
    assert "not a CI job" in done.stdout
    assert github.fake.calls == []


def test_publish__two_keys__two_comments(job: Job) -> None:
    job.measure()
    job.publish()
    job.publish("--key", "training")
    assert len(job.comments()) == 2
    assert sorted(status.name for status in job.fake.statuses) == ["perfgate", "perfgate/training"]


def test_publish__token_refused__wrong_use_and_the_token_is_not_shown(job: Job) -> None:
    job.measure()
    done = job.publish(token="stolen-token-424242")
    assert done.returncode == 2
    assert "401" in done.stderr
    assert "stolen-token-424242" not in done.stdout + done.stderr


def test_publish__status_not_permitted__comment_stands(github: Job) -> None:
    github.measure()
    github.fake.script("POST", Reply(403, {"message": "Resource not accessible by integration"}))
    github.fake.write(7, f"{MARKER}\nours already, so that the first POST is the status", BOT)
    done = github.publish()
    assert done.returncode == 0
    assert "status was not set" in done.stdout
    assert "## perfgate: PASS" in github.comments()[0]


def _workflow_run(job: Job, **changes: Any) -> None:
    """Make the job a messenger: the measuring ran in another workflow run, from a fork."""
    run = {
        "id": 50,
        "run_attempt": 1,
        "head_sha": HEAD,
        "event": "pull_request",
        "html_url": "https://x.example",
        "head_branch": "feature",
        "head_repository": {"owner": {"login": "mallory"}},
        "pull_requests": [],
    }
    job.event({"workflow_run": {**run, **changes}})
    job.environ |= {"GITHUB_EVENT_NAME": "workflow_run", "GITHUB_RUN_ID": "77", "GITHUB_SHA": BASE}


def test_publish__workflow_run_of_a_fork__finds_the_pull_request_by_head(github: Job) -> None:
    github.fake.changes[:0] = [StoredChange(5, "mallory", "feature", STRANGER), StoredChange(6, "x", "feature", HEAD)]
    _workflow_run(github)
    github.measure(ops=64)
    done = github.publish()
    assert done.returncode == 1, done.stderr
    assert len(github.comments()) == 1


def test_publish__workflow_run_and_head_moved_on__sets_the_status_only(github: Job) -> None:
    github.fake.changes[:] = [StoredChange(7, "mallory", "feature", STRANGER)]
    _workflow_run(github)
    github.measure(ops=64, commit=HEAD)
    done = github.publish()
    assert done.returncode == 1
    assert "No open change request" in done.stdout
    assert github.statuses() == [(HEAD, "failure")]
    assert github.comments() == []


def test_publish__person_planted_our_marker__left_alone(github: Job) -> None:
    planted = github.fake.write(7, f"{MARKER}\nPASS", PERSON)
    github.measure(ops=64)
    github.publish()
    assert planted.body == f"{MARKER}\nPASS"
    assert len(github.comments()) == 1

"""The store is written by runs of main alone: what a CI job may keep, over a real repository and forge."""

from __future__ import annotations

import io
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.config import load_config
from perfgate.document.files import canonical_bytes, write_document
from perfgate.document.history import Acceptance
from perfgate.document.run import CiContext, CorrectnessResult, RunDocument
from perfgate.document.testbed import fingerprint
from perfgate.errors import InconclusiveError, MeasuringError, PerfgateError, StoreError, UsageError
from perfgate.flows.baseline import (
    BaselineRequest,
    RecordedRun,
    accept_regressions,
    keep,
    record,
)
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store, stored_history
from perfgate.flows.store import prune_runs
from perfgate.judging.store.index import read_index
from perfgate.judging.store.runs import stored_runs
from perfgate.judging.store.store import SeriesPlace
from tests.command import run_perfgate
from tests.fakes.forge import BOT_TOKEN, FakeForge
from tests.fakes.forge_dialects import GitHubDialect
from tests.fakes.records import changed
from tests.fakes.remote import clone_of_empty_remote, git
from tests.unit.document.minimal import minimal_run

DATA = "refs/heads/perfgate-data"


@dataclass
class Project:
    """A clone of team/model whose runs are kept in a branch of it, and the forge that serves it."""

    root: Path
    forge: FakeForge
    head: str
    environ: dict[str, str] = field(default_factory=dict)

    @property
    def remote(self) -> Path:
        return self.root.parent / "remote.git"

    def run(
        self, *, attempt: int = 1, session: str = "s1", value: float = 0.002, day: int = 1, **changes: Any
    ) -> RunDocument:
        """Return what the measuring job of run 555 measured of the head."""
        run = minimal_run(session=session, value=value)
        context = CiContext(
            forge=self.environ["forge"], repository="team/model", run_id="555", run_attempt=attempt, head_sha=self.head
        )
        session_of_job = msgspec.structs.replace(
            run.session,
            ci=msgspec.structs.replace(context, **changes),
            started_at=f"2026-01-{day:02}T00:00:00Z",
        )
        source = msgspec.structs.replace(run.source, commit=self.head)
        testbed = msgspec.structs.replace(run.testbed, fingerprint=fingerprint(run.testbed.comparable))
        return msgspec.structs.replace(run, session=session_of_job, source=source, testbed=testbed)

    def upload(self, run: RunDocument, name: str = "perfgate-default-1") -> None:
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("run.json", canonical_bytes(run, name="run.json"))
        self.forge.upload(555, name, packed.getvalue())

    def record(self, path: Path | None = None) -> RecordedRun:
        request = BaselineRequest(Path("unused"), artifact=path, download=path is None)
        return record(request, load_config(self.root), self.doors, lambda: pytest.fail("nothing is measured"))

    @property
    def doors(self) -> Doors:
        return Doors(self.environ, say=pytest.fail, sleep=lambda _: None, clock=lambda: 0.0)

    def sessions(self) -> list[str]:
        return [run.session for run in stored_runs(open_project_store(load_config(self.root), self.environ), "shop")]

    @property
    def is_written(self) -> bool:
        return DATA in git(self.remote, "for-each-ref", "--format=%(refname)")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    clone = clone_of_empty_remote(tmp_path)
    (clone / "perfgate.toml").write_text(
        'project = "shop"\nworkload = "w.py:encoder"\n[store]\npath = "branch://perfgate-data"\n'
    )
    git(clone, "add", ".")
    git(clone, "commit", "-qm", "a change")
    git(clone, "push", "-q", "origin", "main")
    with FakeForge(GitHubDialect()) as forge:
        forge.repository = tmp_path / "remote.git"
        git(clone, "remote", "set-url", "origin", f"{forge.url}/team/model.git")
        yield Project(clone, forge, git(clone, "rev-parse", "HEAD"))
        assert forge.violations == []


@pytest.fixture
def pushed(project: Project) -> Project:
    """The job that follows the gate's run of a push to main."""
    project.environ = github(project, "workflow_run", workflow_run(project))
    return project


def github(project: Project, name: str, payload: dict[str, Any], **more: str) -> dict[str, str]:
    path = project.root.parent / "event.json"
    path.write_text(json.dumps(payload))
    return {
        "forge": "github",
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": name,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REPOSITORY": "team/model",
        "GITHUB_SERVER_URL": project.forge.url,
        "GITHUB_API_URL": project.forge.api_url,
        "GITHUB_RUN_ID": "999",
        "GITHUB_RUN_ATTEMPT": "1",
        "GITHUB_SHA": project.head,
        "GITHUB_REF": "refs/heads/main",
        "GITHUB_TOKEN": BOT_TOKEN,
        **more,
    }


def workflow_run(project: Project, **changes: Any) -> dict[str, Any]:
    repository = {"id": 5, "full_name": "team/model", "owner": {"login": "team"}, "default_branch": "main"}
    run = {
        "id": 555, "event": "push", "run_attempt": 2, "head_branch": "main", "head_sha": project.head, "pull_requests": [],
        "html_url": "https://forge.example/team/model/actions/runs/555", "head_repository": repository,
    }  # fmt: skip
    return {"action": "completed", "workflow_run": {**run, **changes}, "repository": repository}


def gitlab(project: Project, **more: str) -> dict[str, str]:
    return {
        "forge": "gitlab",
        "GITLAB_CI": "true",
        "CI_SERVER_URL": project.forge.url,
        "CI_API_V4_URL": f"{project.forge.url}/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_PROJECT_PATH": "team/model",
        "CI_PIPELINE_ID": "555",
        "CI_PIPELINE_SOURCE": "push",
        "CI_COMMIT_SHA": project.head,
        "CI_COMMIT_BRANCH": "main",
        "CI_DEFAULT_BRANCH": "main",
        "PERFGATE_TOKEN": BOT_TOKEN,
        **more,
    }


def folder(project: Project, run: RunDocument) -> Path:
    (project.root.parent / "out").mkdir(exist_ok=True)
    write_document(project.root.parent / "out" / "run.json", run)
    return project.root.parent / "out"


def test_record__push_to_main__downloaded_and_kept_by_the_jobs_own_token(pushed: Project) -> None:
    pushed.upload(pushed.run(session="first try"), "perfgate-default-1")
    pushed.upload(pushed.run(attempt=2, session="second try"), "perfgate-default-2")
    pushed.upload(pushed.run(session="other gate"), "perfgate-other-2")
    kept = pushed.record()
    assert pushed.sessions() == ["second try"]
    assert pushed.record().id == kept.id
    assert git(pushed.remote, "rev-list", "--count", DATA) == "1"


def test_record__command_in_the_job__says_what_was_kept(pushed: Project) -> None:
    pushed.upload(pushed.run())
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    command = ("baseline", "record", "--download", "--key", "default", "--directory", str(pushed.root))
    done = run_perfgate(*command, environment={**kept, **pushed.environ})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("kept run ")
    assert done.stdout.endswith(" of shop in branch://perfgate-data\n")
    assert pushed.sessions() == ["s1"]


NOT_MAINS = [
    ({"event": "pull_request"}, "this job runs for 'pull_request'; only runs of the main branch are kept"),
    ({"event": "pull_request_target"}, "this job runs for 'pull_request_target'"),
    ({"event": "repository_dispatch"}, "this job runs for 'repository_dispatch'"),
    ({"head_repository": None}, "this job runs for 'push' of another repository"),
    (
        {"head_repository": {"full_name": "mallory/model", "owner": {"login": "mallory"}}},
        "this job runs for 'push' of another repository",
    ),
    ({"head_branch": "feature"}, "this job runs for 'feature', and runs of 'main' are kept"),
    ({"head_branch": None}, "this job runs for 'no branch', and runs of 'main' are kept"),
]


def test_record__after_a_run_that_is_not_mains__refused_and_nothing_written(pushed: Project) -> None:
    pushed.upload(pushed.run())
    for changes, message in NOT_MAINS:
        pushed.environ = github(pushed, "workflow_run", workflow_run(pushed, **changes))
        with pytest.raises(UsageError, match=message):
            pushed.record()
    assert not pushed.is_written


def test_record__tag_with_the_name_of_the_main_branch__refused_as_its_commit_lies_elsewhere(pushed: Project) -> None:
    git(pushed.root, "checkout", "-q", "-b", "hidden")
    git(pushed.root, "commit", "-q", "--allow-empty", "-m", "not reviewed")
    git(pushed.root, "push", "-q", str(pushed.remote), "hidden:refs/tags/main")
    tip, pushed.head = pushed.head, git(pushed.root, "rev-parse", "HEAD")
    pushed.environ = github(pushed, "workflow_run", workflow_run(pushed), GITHUB_SHA=tip)
    pushed.upload(pushed.run())
    with pytest.raises(UsageError, match=f"{pushed.head[:12]} does not lie on main"):
        pushed.record()
    assert not pushed.is_written


@pytest.mark.parametrize(
    ("name", "payload"),
    [
        ("pull_request", {"pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": None}}}),
        (
            "issue_comment",
            {"issue": {"number": 7}, "repository": {"full_name": "team/model", "default_branch": "main"}},
        ),
        ("workflow_dispatch", {"repository": {"full_name": "team/model", "default_branch": "main"}}),
    ],
)
def test_record__in_a_job_of_another_event__refused_and_nothing_written(
    project: Project, name: str, payload: dict[str, Any]
) -> None:
    project.environ = github(project, name, payload)
    config = load_config(project.root)
    artifact = folder(project, project.run())

    def measure() -> RunDocument:
        raise AssertionError("refused before anything is measured")

    of_file = BaselineRequest(project.root / "o", run_file=artifact / "run.json", allow_dirty=True)
    measured = BaselineRequest(project.root / "o", allow_dirty=True)
    attempts = [
        lambda: project.record(artifact),
        lambda: record(of_file, config, project.doors, measure),
        lambda: record(measured, config, project.doors, measure),
    ]
    for attempt in attempts:
        with pytest.raises(UsageError, match="only runs of the main branch are kept"):
            attempt()
    assert not project.is_written
    assert not (project.root / "o").exists()


def test_prune_and_accept__in_a_job_of_a_pull_request__refused(project: Project) -> None:
    payload = {"pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": None}}}
    project.environ = github(project, "pull_request", payload)
    config = load_config(project.root)
    store = open_project_store(config, project.environ)
    with pytest.raises(UsageError, match="nothing of a change is written to the store"):
        prune_runs(store, config.store.path, "shop", project.environ, keep=0)
    with pytest.raises(UsageError, match="nothing of a change is written to the store"):
        accept_regressions(
            config,
            project.environ,
            metrics=["latency.low"],
            reason="x",
            revision="HEAD",
            accepted_by="mallory",
            folder=None,
            until=None,
        )


FORGED = {
    "run id": {"run_id": "556"},
    "repository": {"repository": "mallory/model"},
    "head commit": {"head_sha": "b" * 40},
    "forge": {"forge": "gitlab"},
    "attempt": {"run_attempt": 3},
    "change request": {"change_request": 7},
}


def test_record__document_of_another_run__inconclusive_and_nothing_written(pushed: Project) -> None:
    for what, changes in FORGED.items():
        pushed.forge.artifacts.clear()
        pushed.upload(pushed.run(**changes))
        message = "is of attempt 3" if what == "attempt" else f"has the {what}"
        with pytest.raises(InconclusiveError, match=rf"artifact: run\.json {message}"):
            pushed.record()
    assert not pushed.is_written


def test_record__document_that_contradicts_itself_or_was_not_measured_here__nothing_written(pushed: Project) -> None:
    run = pushed.run()
    wrong: list[tuple[RunDocument, type[PerfgateError]]] = [
        (msgspec.structs.replace(run, side="head"), InconclusiveError),
        (
            msgspec.structs.replace(run, testbed=msgspec.structs.replace(run.testbed, fingerprint="x")),
            InconclusiveError,
        ),
        (msgspec.structs.replace(run, source=msgspec.structs.replace(run.source, commit="c" * 40)), InconclusiveError),
        (msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, ci=None)), InconclusiveError),
        (
            msgspec.structs.replace(run, session=msgspec.structs.replace(run.session, command="check")),
            InconclusiveError,
        ),
        (msgspec.structs.replace(run, source=msgspec.structs.replace(run.source, dirty=True)), StoreError),
        (msgspec.structs.replace(run, project="other"), UsageError),
        (
            changed(run, correctness=[CorrectnessResult(workload="encoder", shape="short", status="failed")]),
            StoreError,
        ),
        (changed(run, steps=[msgspec.structs.replace(run.checklist.steps[0], status="error")]), MeasuringError),
    ]
    for document, error in wrong:
        pushed.forge.artifacts.clear()
        pushed.upload(document)
        with pytest.raises(error):
            pushed.record()
    assert not pushed.is_written


def test_record__no_artifact_or_a_damaged_one__inconclusive(pushed: Project) -> None:
    with pytest.raises(InconclusiveError, match=r"artifact: run 555 uploaded none named perfgate-default-2") as refused:
        pushed.record()
    assert refused.value.exit_code == 3
    pushed.forge.upload(555, "perfgate-default-1", b"no zip")
    with pytest.raises(InconclusiveError, match="artifact: the archive cannot be read"):
        pushed.record()


def test_record__outside_ci_or_without_a_token__said(pushed: Project, tmp_path: Path) -> None:
    pushed.environ.pop("GITHUB_TOKEN")
    with pytest.raises(UsageError, match="no token in PERFGATE_TOKEN or GITHUB_TOKEN to download"):
        pushed.record()
    pushed.environ = {}
    with pytest.raises(UsageError, match="only a CI job can store an artifact"):
        pushed.record(tmp_path)


def test_record__pipeline_of_gitlabs_default_branch__its_folder_is_kept(project: Project) -> None:
    project.environ = gitlab(project)
    project.record(folder(project, project.run()))
    assert project.sessions() == ["s1"]


OTHER_PIPELINES = [
    {"CI_COMMIT_BRANCH": "feature"},
    {"CI_COMMIT_BRANCH": "", "CI_COMMIT_TAG": "main"},
    {
        "CI_PIPELINE_SOURCE": "merge_request_event",
        "CI_COMMIT_BRANCH": "",
        "CI_MERGE_REQUEST_IID": "7",
        "CI_MERGE_REQUEST_PROJECT_ID": "5",
    },
    {"CI_PIPELINE_SOURCE": "parent_pipeline"},
    {"CI_PIPELINE_SOURCE": "trigger"},
]


def test_record__other_pipelines_of_gitlab__refused_and_nothing_written(project: Project) -> None:
    for more in OTHER_PIPELINES:
        project.environ = gitlab(project, **more)
        with pytest.raises(UsageError, match="are kept"):
            project.record(folder(project, project.run()))
    assert not project.is_written


def test_record__main_branch_named_in_perfgate_toml__that_one_is_kept(project: Project) -> None:
    with (project.root / "perfgate.toml").open("a") as file:
        file.write('main_branch = "origin/release"\n')
    project.environ = gitlab(project, CI_COMMIT_BRANCH="release")
    project.record(folder(project, project.run()))
    assert project.sessions() == ["s1"]


def test_record__forge_that_says_nothing_of_the_job__by_the_branch_it_is_told(project: Project) -> None:
    git(project.root, "remote", "set-url", "origin", str(project.remote))
    told = {
        "forge": "github", "PERFGATE_FORGE": "github", "PERFGATE_REPOSITORY": "team/model", "PERFGATE_RUN_ID": "555",
        "PERFGATE_HEAD_SHA": project.head,
    }  # fmt: skip
    wrong = [
        (
            {},
            "this job runs for 'no branch', and runs of 'main' are kept; .* PERFGATE_BRANCH to the branch of this job",
        ),
        ({"PERFGATE_BRANCH": "feature"}, "this job runs for 'feature', and runs of 'main' are kept"),
        ({"PERFGATE_BRANCH": "main", "PERFGATE_CHANGE_REQUEST": "7"}, "this job runs for change request 7"),
    ]
    for more, message in wrong:
        project.environ = {**told, **more}
        with pytest.raises(UsageError, match=message):
            project.record(folder(project, project.run()))
    assert not project.is_written
    project.environ = {**told, "PERFGATE_BRANCH": "main"}
    project.record(folder(project, project.run()))
    assert project.sessions() == ["s1"]


def test_keep__slower_than_mains_earlier_runs__kept_for_the_trend_but_no_level_for_later_runs_until_accepted(
    project: Project,
) -> None:
    project.environ = {"forge": "none"}
    git(project.root, "remote", "set-url", "origin", str(project.remote))
    config = load_config(project.root)
    fast = [0.00200, 0.00201, 0.00199, 0.00202, 0.00198, 0.00200]
    for number, value in enumerate(fast):
        keep(config, {}, project.run(session=f"s{number}", value=value, day=number + 1), [], allow_dirty=False)
    git(project.root, "commit", "-q", "--allow-empty", "-m", "slower")
    project.head = git(project.root, "rev-parse", "HEAD")
    slower = project.run(session="s6", value=0.0026, day=7)
    kept = keep(config, {}, slower, [], allow_dirty=False)
    assert kept.suspected == ("latency.p50 of encoder/short (30.0 %)",)

    store = open_project_store(config, {})
    place = SeriesPlace("encoder", "short", "latency.p50", "", slower.testbed.fingerprint)
    trend = read_index(store, "shop").history(place)
    assert len(trend) == 7

    def shown() -> list[float]:
        (series,) = stored_history(config, slower, {}, warn=pytest.fail).series
        return series.values

    assert shown() == fast
    said = Acceptance(
        commit=project.head, metric="latency.low@encoder", reason="meant", accepted_by="Li", accepted_at="2026-01-04"
    )
    store.append("shop", [said])
    assert shown() == [0.0026]

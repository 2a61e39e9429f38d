"""What a CI job says about itself; shapes of GitHub's recorded webhook payloads and GitLab's predefined variables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perfgate.errors import UsageError
from perfgate.judging.forge.detect import detect, read_comment
from perfgate.judging.forge.forge import CiEvent, CiJob, ForgeHost
from perfgate.judging.forge.orders import CommentEvent
from perfgate.judging.forge.runner import log_lines
from tests.installed import without_plugins
from tests.samples import recorded

DATA = Path(__file__).parents[2] / "data" / "forge"
HEAD, MERGE, OTHER = "a" * 40, "c" * 40, "d" * 40


def _github(tmp_path: Path, event: str, payload: Any, **more: str) -> CiEvent | None:
    path = tmp_path / "event.json"
    path.write_text(payload if isinstance(payload, str) else json.dumps(payload))
    environ = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_EVENT_NAME": event,
        "GITHUB_EVENT_PATH": str(path),
        "GITHUB_REPOSITORY": "team/model",
        "GITHUB_SERVER_URL": "https://github.com",
        "GITHUB_API_URL": "https://api.github.com",
        "GITHUB_RUN_ID": "9876543210",
        "GITHUB_RUN_ATTEMPT": "2",
        "GITHUB_SHA": MERGE,
    }
    return detect({**environ, **more})


def _gitlab(**more: str) -> CiEvent | None:
    environ = {
        "GITLAB_CI": "true",
        "CI_SERVER_URL": "https://gitlab.example.com",
        "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_PROJECT_PATH": "team/model",
        "CI_PIPELINE_ID": "800",
        "CI_PIPELINE_URL": "https://gitlab.example.com/team/model/-/pipelines/800",
        "CI_COMMIT_SHA": HEAD,
    }
    return detect({**environ, **more})


def _payload(name: str) -> Any:
    return json.loads((DATA / name).read_bytes())


def test_detect__no_ci__none() -> None:
    assert detect({"PATH": "/bin"}) is None


def test_detect__github_pull_request__head_and_merge(tmp_path: Path) -> None:
    event = _github(tmp_path, "pull_request", _payload("github.pull_request.json"))
    assert event == CiEvent(
        forge="github",
        host=ForgeHost(api_url="https://api.github.com", server_url="https://github.com"),
        repository="team/model",
        project="team/model",
        job=CiJob(
            run_id="9876543210",
            run_attempt=2,
            job_url="https://github.com/team/model/actions/runs/9876543210/attempts/2",
            artifact_url="https://github.com/team/model/actions/runs/9876543210#artifacts",
        ),
        head_sha=HEAD,
        built_sha=MERGE,
        change_request=7,
    )


def test_detect__fork_deleted__still_the_same_pull_request(tmp_path: Path) -> None:
    payload = _payload("github.pull_request.json")
    payload["pull_request"]["head"]["repo"] = None
    event = _github(tmp_path, "pull_request", payload)
    assert event is not None
    assert (event.change_request, event.head_sha) == (7, HEAD)


def test_detect__pull_request_target__base_was_checked_out(tmp_path: Path) -> None:
    event = _github(tmp_path, "pull_request_target", _payload("github.pull_request.json"))
    assert event is not None
    assert event.built_sha is None


def test_detect__workflow_run_of_a_fork__is_found_by_branch(tmp_path: Path) -> None:
    event = _github(tmp_path, "workflow_run", _payload("github.workflow_run.json"))
    assert event is not None
    assert (event.job.run_id, event.job.run_attempt, event.head_sha) == ("555", 3, HEAD)
    assert (event.change_request, event.owner, event.branch) == (None, "mallory", "feature")
    assert event.built_sha is None
    assert event.job.job_url == "https://github.com/team/model/actions/runs/555/attempts/3"


@pytest.mark.parametrize(
    ("told", "linked"),
    [
        ("https://github.com/team/model/actions/runs/9876543210/artifacts/2", "runs/9876543210/artifacts/2"),
        ("", "runs/555#artifacts"),
    ],
)
def test_detect__workflow_run__links_what_was_judged_here_rather_than_what_the_fork_uploaded(
    tmp_path: Path, told: str, linked: str
) -> None:
    event = _github(tmp_path, "workflow_run", _payload("github.workflow_run.json"), PERFGATE_ARTIFACT_URL=told)
    assert event is not None
    assert event.job.artifact_url == f"https://github.com/team/model/actions/{linked}"


@pytest.mark.parametrize(("sha", "number"), [(HEAD, 7), (OTHER, None)])
def test_detect__workflow_run_names_a_pull_request__only_with_the_same_head(
    tmp_path: Path, sha: str, number: int | None
) -> None:
    payload = _payload("github.workflow_run.json")
    payload["workflow_run"]["pull_requests"] = [{"number": 7, "head": {"sha": sha}}]
    event = _github(tmp_path, "workflow_run", payload)
    assert event is not None
    assert event.change_request == number


def test_detect__workflow_run_of_a_push__has_no_change_request(tmp_path: Path) -> None:
    payload = _payload("github.workflow_run.json")
    payload["workflow_run"]["event"] = "push"
    event = _github(tmp_path, "workflow_run", payload)
    assert event is not None
    assert (event.change_request, event.owner, event.branch) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "payload", "head"),
    [
        ("push", {"ref": "refs/heads/main", "after": MERGE}, MERGE),
        ("schedule", {"schedule": "0 3 * * 1"}, MERGE),
        ("workflow_dispatch", {"inputs": None}, MERGE),
        ("merge_group", {"merge_group": {"head_sha": OTHER, "base_sha": HEAD}}, OTHER),
    ],
)
def test_detect__other_github_events__no_change_request(tmp_path: Path, name: str, payload: Any, head: str) -> None:
    event = _github(tmp_path, name, payload)
    assert event is not None
    assert (event.head_sha, event.change_request) == (head, None)


def test_detect__merge_group__base_is_that_of_the_event(tmp_path: Path) -> None:
    event = _github(tmp_path, "merge_group", {"merge_group": {"head_sha": OTHER, "base_sha": HEAD}})
    assert event is not None
    assert (event.head_sha, event.base_sha) == (OTHER, HEAD)


def test_detect__how_the_measuring_job_ended__is_known_where_the_job_is_told(tmp_path: Path) -> None:
    told = _github(tmp_path, "push", {}, PERFGATE_MEASURED="cancelled")
    untold = _github(tmp_path, "push", {}, PERFGATE_MEASURED="")
    assert (told and told.job.measured, untold and untold.job.measured) == ("cancelled", None)


@pytest.mark.parametrize("payload", ["", "{", "[]", '{"pull_request": {"number": "7"}}', "[" * 100_000])
def test_detect__payload_damaged__says_which_file(tmp_path: Path, payload: str) -> None:
    with pytest.raises(UsageError, match="GITHUB_EVENT_PATH"):
        _github(tmp_path, "pull_request", payload)


@pytest.mark.parametrize("name", ["GITHUB_SHA", "GITHUB_API_URL", "GITHUB_RUN_ID", "GITHUB_EVENT_PATH"])
def test_detect__variable_missing__says_which(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        _github(tmp_path, "push", {}, **{name: ""})


def test_detect__run_id_is_no_number__refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GITHUB_RUN_ID must be a number"):
        _github(tmp_path, "push", {}, GITHUB_RUN_ID="12 -->")


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://github.com/team/model/actions/runs/1/artifacts/2", True),
        ("https://github.com/mallory/malware/releases/download/1/x.zip", False),
        ("https://github.com/team/model/../../mallory/x", False),
        ("https://github.com/team/model/%2e%2e/%2E%2e/mallory/x", False),
        ("https://github.com.evil.example/x", False),
        ("https://evil.example/x", False),
        ("https://github.com/x) [click](https://evil.example", False),
    ],
)
def test_detect__artifact_url__only_on_the_forge(tmp_path: Path, url: str, taken: bool) -> None:
    event = _github(tmp_path, "push", {}, PERFGATE_ARTIFACT_URL=url)
    assert event is not None
    assert (event.job.artifact_url == url) is taken


def test_detect__gitlab_branch__no_change_request() -> None:
    event = _gitlab()
    assert event is not None
    assert (event.project, event.change_request, event.head_sha, event.built_sha) == ("5", None, HEAD, HEAD)
    assert (event.job.run_id, event.job.run_attempt) == ("800", 1)


def test_detect__gitlab_fork__comment_goes_to_the_target_project() -> None:
    more = {"CI_PROJECT_ID": "99", "CI_PROJECT_PATH": "mallory/model"}
    event = _gitlab(**more, CI_MERGE_REQUEST_IID="7", CI_MERGE_REQUEST_PROJECT_ID="5")
    assert event is not None
    assert (event.project, event.repository, event.change_request) == ("5", "mallory/model", 7)


def test_detect__gitlab_detached__commit_is_the_head() -> None:
    more = {"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_ID": "5", "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": ""}
    event = _gitlab(**more)
    assert event is not None
    assert (event.head_sha, event.built_sha) == (HEAD, HEAD)


def test_detect__gitlab_merged_results__head_and_merge() -> None:
    more = {"CI_MERGE_REQUEST_IID": "7", "CI_MERGE_REQUEST_PROJECT_ID": "5", "CI_COMMIT_SHA": MERGE}
    event = _gitlab(**more, CI_MERGE_REQUEST_SOURCE_BRANCH_SHA=HEAD, CI_SERVER_TLS_CA_FILE="/ca.pem")
    assert event is not None
    assert (event.head_sha, event.built_sha, event.host.ca_file) == (HEAD, MERGE, "/ca.pem")


def test_context__kept_in_the_run_document__names_run_and_head() -> None:
    event = _gitlab()
    assert event is not None
    context = event.context()
    assert (context.forge, context.repository, context.run_id, context.head_sha) == (
        "gitlab",
        "team/model",
        "800",
        HEAD,
    )


def test_log_lines__on_github__commands_are_stopped_by_an_unknown_word() -> None:
    first, again = (log_lines("::error::x", {"GITHUB_ACTIONS": "true"}).splitlines() for _ in range(2))
    word = first[0].removeprefix("::stop-commands::")
    assert len(word) == 32
    assert first == [f"::stop-commands::{word}", "::error::x", f"::{word}::"]
    assert first[0] != again[0]


def test_log_lines__elsewhere__plain() -> None:
    assert log_lines("text", {}) == "text"


RECORDED = {
    "event.pull_request.opened.json": ("pull_request", 2),
    "event.pull_request.fork.json": ("pull_request", 2),
    "event.pull_request.fork-deleted.json": ("pull_request", 2),
    "event.pull_request.hostile.json": ("pull_request", 2),
    "event.push.json": ("push", None),
    "event.merge_group.json": ("merge_group", None),
    "event.workflow_dispatch.json": ("workflow_dispatch", None),
    "event.issue_comment.created.json": ("issue_comment", None),
    "event.schedule.json": ("schedule", None),
    "event.workflow_run.completed.no-pr.json": ("workflow_run", None),
}


@pytest.mark.recordings
@pytest.mark.parametrize("name", RECORDED)
def test_detect__recorded_payload__is_read(tmp_path: Path, name: str) -> None:
    kind, number = RECORDED[name]
    event = _github(tmp_path, kind, recorded("github", name, folder="forge-samples").read_text())
    assert event is not None
    assert event.change_request == number


GIVEN_EVENT = {
    "PERFGATE_FORGE": "github",
    "PERFGATE_REPOSITORY": "team/model",
    "PERFGATE_HEAD_SHA": HEAD,
    "PERFGATE_RUN_ID": "123",
}


def test_detect__event_given__addresses_everybody_uses() -> None:
    more = {"PERFGATE_CHANGE_REQUEST": "7", "PERFGATE_JOB_URL": "https://ci.example/job/perf/123/"}
    assert detect({**GIVEN_EVENT, **more}) == CiEvent(
        forge="github",
        host=ForgeHost(api_url="https://api.github.com", server_url="https://github.com"),
        repository="team/model",
        project="team/model",
        job=CiJob(
            run_id="123",
            run_attempt=1,
            job_url="https://ci.example/job/perf/123/",
            artifact_url="https://ci.example/job/perf/123/",
        ),
        head_sha=HEAD,
        change_request=7,
    )


@pytest.mark.parametrize(
    ("forge", "api", "server"),
    [
        ("github", "https://git.example:3000/api/v3", "https://git.example:3000"),
        ("gitlab", "https://git.example/gitlab/api/v4", "https://git.example/gitlab"),
        ("gitlab", "https://git.example/gitlab/api/v4/", "https://git.example/gitlab"),
        ("github", "https://api.github.com/", "https://github.com"),
    ],
)
def test_detect__event_given_for_a_server_of_ones_own__its_pages_are_where_its_api_is(
    forge: str, api: str, server: str
) -> None:
    event = detect({**GIVEN_EVENT, "PERFGATE_FORGE": forge, "PERFGATE_API_URL": api})
    assert event is not None
    assert (event.host.api_url, event.host.server_url) == (api.rstrip("/"), server)


def test_detect__event_given_in_another_forges_job__what_is_given_counts() -> None:
    event = detect({**GIVEN_EVENT, "GITLAB_CI": "true", "CI_COMMIT_SHA": OTHER, "PERFGATE_RUN_ATTEMPT": "2"})
    assert event is not None
    assert (event.forge, event.head_sha, event.job.run_attempt, event.change_request) == ("github", HEAD, 2, None)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("PERFGATE_REPOSITORY", "", r"missing: PERFGATE_REPOSITORY"),
        ("PERFGATE_HEAD_SHA", "", r"missing: PERFGATE_HEAD_SHA"),
        ("PERFGATE_RUN_ID", "", r"missing: PERFGATE_RUN_ID"),
        ("PERFGATE_RUN_ID", "12 -->", "PERFGATE_RUN_ID must be a number"),
        ("PERFGATE_RUN_ATTEMPT", "one", "PERFGATE_RUN_ATTEMPT must be a number"),
        ("PERFGATE_CHANGE_REQUEST", "#7", "PERFGATE_CHANGE_REQUEST must be a number"),
        ("PERFGATE_HEAD_SHA", "main", "must be a full commit id"),
        ("PERFGATE_HEAD_SHA", HEAD[:12], "must be a full commit id"),
        ("PERFGATE_API_URL", "https://[git.example/api/v3", "PERFGATE_API_URL is not an address"),
        (
            "PERFGATE_FORGE",
            "sourceforge",
            "no forge 'sourceforge'; perfgate posts to gitcode, gitea, gitee, github, gitlab",
        ),
    ],
)
def test_detect__event_given_wrongly__says_what(name: str, value: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        detect({**GIVEN_EVENT, name: value})


@pytest.mark.parametrize("url", ["javascript:alert(1)", "https://x.example/a b", "https://x.example/)[a](b"])
def test_detect__job_address_that_could_break_out__is_no_link(url: str) -> None:
    event = detect({**GIVEN_EVENT, "PERFGATE_JOB_URL": url, "PERFGATE_ARTIFACT_URL": url})
    assert event is not None
    assert (event.job.job_url, event.job.artifact_url) == (None, None)


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("https://github.com/team/model/actions/runs/1/artifacts/2", True),
        ("https://ci.example/job/perf/123/artifact/perfgate.zip", True),
        ("https://github.com/mallory/model/x", False),
        ("https://evil.example/x", False),
        ("https://ci.example/job/perf/123/../9/artifact/x", False),
    ],
)
def test_detect__artifact_address_of_a_given_event__only_of_the_repository_or_the_job(url: str, taken: bool) -> None:
    job = "https://ci.example/job/perf/123/"
    event = detect({**GIVEN_EVENT, "PERFGATE_JOB_URL": job, "PERFGATE_ARTIFACT_URL": url})
    assert event is not None
    assert event.job.artifact_url == (url if taken else job)


def test_detect__gitea_actions_without_its_package__named_with_what_to_install() -> None:
    said = "the forge gitea needs the package perfgate-forges in addition to perfgate; .* pip install perfgate-forges"
    for environ in ({"GITEA_ACTIONS": "true", "GITHUB_ACTIONS": "true"}, {**GIVEN_EVENT, "PERFGATE_FORGE": "gitea"}):
        with without_plugins(), pytest.raises(UsageError, match=said):
            detect(environ)


COMMENT: dict[str, Any] = {
    "id": 71,
    "body": "/perfgate run",
    "user": {"login": "ann", "type": "User"},
    "created_at": "2026-11-20T10:00:00Z",
    "updated_at": "2026-11-20T10:00:00Z",
}


def _comment(tmp_path: Path, event: str = "issue_comment", **changes: Any) -> CommentEvent | None:
    payload = {"action": "created", "issue": {"number": 7, "pull_request": {"url": "x"}}, "comment": COMMENT, **changes}
    path = tmp_path / "event.json"
    path.write_text(json.dumps(payload))
    return read_comment({"GITHUB_ACTIONS": "true", "GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(path)})


def test_read_comment__on_a_pull_request__who_wrote_what(tmp_path: Path) -> None:
    assert _comment(tmp_path) == CommentEvent(7, "/perfgate run", "ann", bot=False, edited=False)


@pytest.mark.parametrize(
    ("changes", "bot", "edited"),
    [
        ({"updated_at": "2026-11-20T10:00:05Z"}, False, True),
        ({"user": {"login": "x[bot]", "type": "Bot"}}, True, False),
        ({"user": None}, True, False),
    ],
)
def test_read_comment__edited_or_a_bots__says_so(tmp_path: Path, changes: Any, bot: bool, edited: bool) -> None:
    found = _comment(tmp_path, comment={**COMMENT, **changes})
    assert found is not None
    assert (found.bot, found.edited) == (bot, edited)


def test_read_comment__on_an_issue__says_so(tmp_path: Path) -> None:
    expected = CommentEvent(7, "/perfgate run", "ann", bot=False, edited=False, on_issue=True)
    assert _comment(tmp_path, issue={"number": 7}) == expected


def test_read_comment__of_another_event__none(tmp_path: Path) -> None:
    assert _comment(tmp_path, action="edited") is None
    assert _comment(tmp_path, event="pull_request") is None
    assert read_comment({"PATH": "/bin"}) is None


@pytest.mark.recordings
def test_read_comment__recorded_payload__is_of_an_issue(tmp_path: Path) -> None:
    payload = json.loads(recorded("github", "event.issue_comment.created.json", folder="forge-samples").read_bytes())
    of_issue = _comment(tmp_path, **payload)
    assert of_issue is not None
    assert of_issue.on_issue
    found = _comment(tmp_path, **{**payload, "issue": {**payload["issue"], "pull_request": {}}})
    assert found == CommentEvent(1, payload["comment"]["body"], "Codertocat", bot=False, edited=False)

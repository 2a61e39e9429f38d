"""What the CI job says about itself. Only here CI variables and event payloads are read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Optional

import msgspec

from perfgate.errors import UsageError
from perfgate.judging.forge.forge import CiEvent

MAX_PAYLOAD_BYTES = 32 * 1024 * 1024
# The measuring job's artifact, as upload-artifact names it in its output `artifact-url`; the job passes it on.
ARTIFACT_URL_VARIABLE = "PERFGATE_ARTIFACT_URL"


def detect(environ: Mapping[str, str]) -> Optional[CiEvent]:
    """Return the event this process runs for; None outside CI. Raises UsageError for a CI that says too little."""
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github(environ)
    if environ.get("GITLAB_CI") == "true":
        return _gitlab(environ)
    return None


def summary_path(environ: Mapping[str, str]) -> Optional[Path]:
    """Return the file whose Markdown GitHub shows on the job's page; None elsewhere."""
    path = environ.get("GITHUB_STEP_SUMMARY", "")
    return Path(path) if path else None


def log_lines(text: str, environ: Mapping[str, str]) -> str:
    """Return a text that may hold outside words, so that printing it commands nothing.

    GitHub's runner executes lines that begin with ``::``, until it is told to stop (docs.github.com, "Workflow commands
    for GitHub Actions", stop-commands); the word that starts it again must not be known to who wrote the text.
    """
    if environ.get("GITHUB_ACTIONS") != "true":
        return text
    word = secrets.token_hex(16)
    return f"::stop-commands::{word}\n{text.rstrip()}\n::{word}::\n"


class _Owner(msgspec.Struct):
    login: str


class _HeadRepository(msgspec.Struct):
    owner: _Owner


class _Head(msgspec.Struct):
    sha: str


class _PullRequest(msgspec.Struct):
    # ``head.repo`` is not read: it is null once the fork is deleted.
    number: int
    head: _Head


class _WorkflowRun(msgspec.Struct):
    id: int
    run_attempt: int
    head_sha: str
    event: str
    html_url: str
    head_branch: Optional[str] = None
    head_repository: Optional[_HeadRepository] = None
    pull_requests: list[_PullRequest] = []


class _MergeGroup(msgspec.Struct):
    head_sha: str


class _Payload(msgspec.Struct):
    pull_request: Optional[_PullRequest] = None
    workflow_run: Optional[_WorkflowRun] = None
    merge_group: Optional[_MergeGroup] = None


def _github(environ: Mapping[str, str]) -> CiEvent:
    payload = _payload(environ)
    event = _github_job(environ)
    if payload.workflow_run is not None:
        return _after_workflow(event, payload.workflow_run)
    if payload.pull_request is not None:
        pull = payload.pull_request
        # In a pull_request job GITHUB_SHA is the test merge of head into base; in a pull_request_target job the base.
        built = event.built_sha if environ.get("GITHUB_EVENT_NAME") == "pull_request" else None
        return replace(event, head_sha=pull.head.sha, built_sha=built, change_request=pull.number)
    if payload.merge_group is not None:
        return replace(event, head_sha=payload.merge_group.head_sha)
    return event


def _github_job(environ: Mapping[str, str]) -> CiEvent:
    repository = _need(environ, "GITHUB_REPOSITORY")
    server = _need(environ, "GITHUB_SERVER_URL").rstrip("/")
    run_id, attempt = _number(environ, "GITHUB_RUN_ID"), _number(environ, "GITHUB_RUN_ATTEMPT")
    run_url = f"{server}/{repository}/actions/runs/{run_id}"
    sha = _need(environ, "GITHUB_SHA")
    return CiEvent(
        forge="github",
        api_url=_need(environ, "GITHUB_API_URL"),
        server_url=server,
        repository=repository,
        project=repository,
        run_id=str(run_id),
        run_attempt=attempt,
        head_sha=sha,
        built_sha=sha,
        job_url=f"{run_url}/attempts/{attempt}",
        artifact_url=_artifact_url(environ, server) or f"{run_url}#artifacts",
    )


def _after_workflow(event: CiEvent, run: _WorkflowRun) -> CiEvent:
    """Return the event of the run that has completed: ours is only the messenger.

    ``pull_requests`` is empty for a run from a fork, and may name one that has moved on since; the head sha decides.
    """
    pulls = [pull.number for pull in run.pull_requests if pull.head.sha == run.head_sha]
    from_pull = run.event in ("pull_request", "pull_request_target")
    return replace(
        event,
        run_id=str(run.id),
        run_attempt=run.run_attempt,
        head_sha=run.head_sha,
        built_sha=None,
        change_request=pulls[0] if len(pulls) == 1 else None,
        owner=run.head_repository.owner.login if from_pull and run.head_repository else None,
        branch=run.head_branch if from_pull else None,
        job_url=f"{event.server_url}/{event.repository}/actions/runs/{run.id}/attempts/{run.run_attempt}",
        artifact_url=f"{event.server_url}/{event.repository}/actions/runs/{run.id}#artifacts",
    )


def _payload(environ: Mapping[str, str]) -> _Payload:
    path = Path(_need(environ, "GITHUB_EVENT_PATH"))
    try:
        if path.stat().st_size > MAX_PAYLOAD_BYTES:
            raise UsageError(f"{path} (GITHUB_EVENT_PATH) is larger than {MAX_PAYLOAD_BYTES} bytes; that is no event")
        return msgspec.json.decode(path.read_bytes(), type=_Payload)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} (GITHUB_EVENT_PATH) is not an event of GitHub Actions: {error}") from error


def _gitlab(environ: Mapping[str, str]) -> CiEvent:
    """Read GitLab's predefined variables (docs.gitlab.com, "Predefined CI/CD variables").

    CI_PROJECT_ID is the fork in a fork's pipeline: the merge request lives in CI_MERGE_REQUEST_PROJECT_ID. In a merged
    results pipeline CI_COMMIT_SHA is the merge and CI_MERGE_REQUEST_SOURCE_BRANCH_SHA the head; else that one is empty.
    A retried job keeps the pipeline and its number, so there is no attempt to tell apart.
    """
    built = _need(environ, "CI_COMMIT_SHA")
    server = _need(environ, "CI_SERVER_URL").rstrip("/")
    iid = environ.get("CI_MERGE_REQUEST_IID")
    project = _need(environ, "CI_MERGE_REQUEST_PROJECT_ID" if iid else "CI_PROJECT_ID")
    return CiEvent(
        forge="gitlab",
        api_url=_need(environ, "CI_API_V4_URL"),
        server_url=server,
        repository=_need(environ, "CI_PROJECT_PATH"),
        project=project,
        run_id=str(_number(environ, "CI_PIPELINE_ID")),
        run_attempt=1,
        head_sha=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or built,
        built_sha=built,
        change_request=_number(environ, "CI_MERGE_REQUEST_IID") if iid else None,
        job_url=environ.get("CI_PIPELINE_URL") or environ.get("CI_JOB_URL"),
        artifact_url=_artifact_url(environ, server),
        ca_file=environ.get("CI_SERVER_TLS_CA_FILE") or None,
    )


def _artifact_url(environ: Mapping[str, str], server: str) -> Optional[str]:
    """Return the address the job was told its artifact has, if it lies on the forge's own server."""
    url = environ.get(ARTIFACT_URL_VARIABLE, "")
    clean = url.isascii() and url.isprintable() and not any(c in url for c in " <>()[]\"'`|\\")
    return url if clean and url.startswith(server + "/") else None


def _need(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise UsageError(f"this looks like a CI job, but {name} is not set; pass the job's environment on to perfgate")
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _need(environ, name)
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise UsageError(f"{name} must be a number, found {text[:40]!r}")
    return int(text)

"""Detection of the CI job and its event.

CI variables and event payloads are read only here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from perfgate.errors import UsageError
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.forge.forge import (
    ACCOUNT_VARIABLE,
    CiEvent,
    CiJob,
    ForgeHost,
    addresses,
    read_event,
)
from perfgate.judging.forge.orders import CommentEvent, CommentPlace
from perfgate.judging.forge.payloads import (
    Commit,
    ForgeRepository,
    PostedComment,
    PostedIssue,
)

P = TypeVar("P")

MAX_PAYLOAD_BYTES = 32 * 1024 * 1024
# The publishing job's own artifact, as upload-artifact names it in its output
# `artifact-url`; the job passes it on.
ARTIFACT_URL_VARIABLE, REPORT_URL_VARIABLE = (
    "PERFGATE_ARTIFACT_URL",
    "PERFGATE_REPORT_URL",
)
# The result of the measuring job, in GitHub's terms: success, failure, cancelled,
# timed_out.
MEASURED_VARIABLE = "PERFGATE_MEASURED"
BRANCH_VARIABLE = "PERFGATE_BRANCH"
# The number of a new comment on the change request, in a job that a webhook started.
PLACE_VARIABLE = "PERFGATE_COMMENT"
# The variables that describe a job on a CI unknown to perfgate (e.g. Jenkins). The
# first one enables them.
_REQUIRED = (
    "PERFGATE_FORGE",
    "PERFGATE_REPOSITORY",
    "PERFGATE_HEAD_SHA",
    "PERFGATE_RUN_ID",
)
# Of GitHub Enterprise Server, GitLab, Gitee and Gitea.
_API_PATH = re.compile(r"/api/v[0-9]+$")
# A comment that starts a job and can be no order: an edited one, or one on something
# other than a change request.
_NO_ORDER = CommentEvent(number=0, body="", author="", bot=False, edited=False)


def detect(environ: Mapping[str, str]) -> CiEvent | None:
    """The event this process runs for; None outside CI.

    Raises UsageError if the CI provides too little.
    """
    event = _read(environ)
    if event is None:
        return None
    return replace(
        event,
        host=replace(event.host, account=environ.get(ACCOUNT_VARIABLE) or None),
        job=replace(
            event.job,
            measured=environ.get(MEASURED_VARIABLE) or None,
            report_url=_own_page(
                environ,
                REPORT_URL_VARIABLE,
                f"{event.host.server_url}/{event.repository}",
                event.job.job_url,
            ),
        ),
    )


def _read(environ: Mapping[str, str]) -> CiEvent | None:
    if environ.get("PERFGATE_FORGE"):
        return _given(environ)
    if environ.get("GITEA_ACTIONS") == "true":
        # Gitea's and Forgejo's runners set GITHUB_ACTIONS and the GITHUB_* variables
        # too.
        return read_event("gitea", environ)
    if environ.get("GITHUB_ACTIONS") == "true":
        return github_event(environ)
    if environ.get("GITLAB_CI") == "true":
        return _gitlab(environ)
    return None


def is_draft(environ: Mapping[str, str]) -> bool:
    """Whether the change request of this job is a draft, as far as the CI host tells.

    GitLab has CI_MERGE_REQUEST_DRAFT since 17.10; before, the title marks a draft
    (docs.gitlab.com, "Draft merge requests").
    """
    if environ.get("GITHUB_ACTIONS") == "true" and environ.get("GITHUB_EVENT_PATH"):
        pull = _read_payload(environ, _Payload).pull_request
        return pull is not None and pull.draft
    if marked := environ.get("CI_MERGE_REQUEST_DRAFT"):
        return marked == "true"
    title = environ.get("CI_MERGE_REQUEST_TITLE", "").lower()
    return title.startswith(("draft:", "[draft]", "(draft)"))


def read_comment(environ: Mapping[str, str]) -> CommentEvent | CommentPlace | None:
    """The new comment on a change request or an issue that this process runs for; None
    for any other event.
    """
    if environ.get("PERFGATE_FORGE"):
        if not (environ.get(PLACE_VARIABLE) and environ.get("PERFGATE_CHANGE_REQUEST")):
            return None
        return CommentPlace(
            _number(environ, "PERFGATE_CHANGE_REQUEST"),
            _number(environ, PLACE_VARIABLE),
        )
    if environ.get("GITLAB_CI") == "true":
        return _gitlab_note(environ)
    if environ.get("GITEA_ACTIONS") == "true":
        return _gitea_comment(environ)
    if (
        environ.get("GITHUB_ACTIONS") != "true"
        or environ.get("GITHUB_EVENT_NAME") != "issue_comment"
    ):
        return None
    payload = _read_payload(environ, _CommentPayload)
    comment = payload.comment
    if payload.action != "created":
        return None
    return CommentEvent(
        number=payload.issue.number,
        body=comment.body or "",
        # The account may be deleted already.
        author=comment.user.login if comment.user else "",
        bot=comment.user is None or comment.user.type != "User",
        edited=comment.updated_at != comment.created_at,
        on_issue=payload.issue.pull_request is None,
    )


def _gitea_comment(environ: Mapping[str, str]) -> CommentEvent | CommentPlace | None:
    """The place of a new comment on a pull request; accounts in Gitea's payloads have
    no type, so the forge is asked.

    The event is named as the workflow's trigger (docs.gitea.com, "Comparison to GitHub
    Actions").
    """
    if environ.get("GITHUB_EVENT_NAME") not in (
        "issue_comment",
        "pull_request_comment",
    ):
        return None
    payload = _read_payload(environ, _CommentPayload)
    if payload.action != "created" or payload.issue.pull_request is None:
        return _NO_ORDER
    return CommentPlace(payload.issue.number, payload.comment.id)


def _gitlab_note(environ: Mapping[str, str]) -> CommentEvent | CommentPlace | None:
    """The place of a new note on a merge request, from the webhook that started this
    pipeline.

    A webhook of comment events may call a pipeline trigger; its payload is in the file
    TRIGGER_PAYLOAD (docs.gitlab.com, "Trigger pipelines with the API", "Webhook
    events"). ``action`` is sent since 16.11, edited notes too.
    """
    if environ.get("CI_PIPELINE_SOURCE") != "trigger" or not environ.get(
        "TRIGGER_PAYLOAD"
    ):
        return None
    payload = _read_payload(environ, _NotePayload, "TRIGGER_PAYLOAD")
    note, request = payload.object_attributes, payload.merge_request
    if payload.object_kind != "note" or note is None:
        return None
    if request is None or note.action not in (None, "create"):
        return _NO_ORDER
    return CommentPlace(request.iid, note.id)


def _read_payload(
    environ: Mapping[str, str], kind: type[P], variable: str = "GITHUB_EVENT_PATH"
) -> P:
    """The payload of the CI job's event, decoded as ``kind``.

    Raises UsageError for a malformed one.
    """
    path = Path(_need(environ, variable))
    try:
        if path.stat().st_size > MAX_PAYLOAD_BYTES:
            raise UsageError(
                "{path} ({variable}) is larger than {most_bytes} bytes; that is no event",
                path=path,
                variable=variable,
                most_bytes=MAX_PAYLOAD_BYTES,
            )
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(
            "{path} ({variable}) is not the event of a CI job: {error}",
            path=path,
            variable=variable,
            error=error,
        ) from error


@dataclass(frozen=True)
class Trigger:
    """The event that started a pipeline. ``kind`` is the forge's own term, e.g. push.

    ``branch`` is None for a tag or a change request. ``own`` is true if the commit came
    from the repository itself, not from a fork. In a job that runs after the pipeline,
    ``tip`` is the newest commit of the default branch, and ``branch`` may also be the
    name of a tag.
    """

    kind: str
    branch: str | None = None
    default_branch: str | None = None
    own: bool = True
    tip: str | None = None


def read_trigger(environ: Mapping[str, str]) -> Trigger | None:
    """The trigger of this job's pipeline, or of the pipeline that it follows; None
    outside CI.

    With PERFGATE_FORGE, the branch comes from PERFGATE_BRANCH.
    """
    if environ.get("PERFGATE_FORGE"):
        kind = "push"
        if environ.get("PERFGATE_CHANGE_REQUEST"):
            kind = "change request"
        return Trigger(kind, environ.get(BRANCH_VARIABLE) or None)
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github_trigger(environ)
    if environ.get("GITLAB_CI") == "true":
        # CI_COMMIT_BRANCH is set only in branch pipelines.
        return Trigger(
            environ.get("CI_PIPELINE_SOURCE", ""),
            environ.get("CI_COMMIT_BRANCH") or None,
            environ.get("CI_DEFAULT_BRANCH") or None,
            own=not environ.get("CI_MERGE_REQUEST_IID"),
        )
    return None


class _PullRequest(msgspec.Struct):
    # ``head.repo`` is not read: it is null once the fork is deleted.
    number: int
    head: Commit
    draft: bool = False


class _WorkflowRun(msgspec.Struct):
    id: int
    run_attempt: int
    head_sha: str
    event: str
    head_branch: str | None = None
    # Null once the fork is deleted.
    head_repository: ForgeRepository | None = None
    pull_requests: list[_PullRequest] = []


class _MergeGroup(msgspec.Struct):
    head_sha: str
    base_sha: str


class _NewComment(PostedComment, kw_only=True):
    created_at: str
    updated_at: str


class _NoteAttributes(msgspec.Struct):
    id: int
    action: str | None = None


class _NotedRequest(msgspec.Struct):
    iid: int


class _NotePayload(msgspec.Struct):
    object_kind: str = ""
    object_attributes: _NoteAttributes | None = None
    # Set only for notes on merge requests.
    merge_request: _NotedRequest | None = None


class _CommentPayload(msgspec.Struct):
    action: str
    issue: PostedIssue
    comment: _NewComment


class _Payload(msgspec.Struct):
    # A scheduled run's payload may name no repository.
    repository: ForgeRepository | None = None
    pull_request: _PullRequest | None = None
    workflow_run: _WorkflowRun | None = None
    merge_group: _MergeGroup | None = None


def github_event(environ: Mapping[str, str]) -> CiEvent:
    """The event of a job of GitHub Actions, or of a CI with the same variables and
    payloads.
    """
    payload = _read_payload(environ, _Payload)
    event = _github_job(environ)
    if payload.workflow_run is not None:
        return _after_workflow(
            event,
            payload.workflow_run,
            own_artifact_url(environ, f"{event.host.server_url}/{event.repository}"),
        )
    if payload.pull_request is not None:
        pull = payload.pull_request
        # In a pull_request job GITHUB_SHA is the test merge of head into base; in a
        # pull_request_target job the base.
        built = None
        if environ.get("GITHUB_EVENT_NAME") == "pull_request":
            built = event.built_sha
        return replace(
            event, head_sha=pull.head.sha, built_sha=built, change_request=pull.number
        )
    if payload.merge_group is not None:
        return replace(
            event,
            head_sha=payload.merge_group.head_sha,
            base_sha=payload.merge_group.base_sha,
        )
    return event


def _github_job(environ: Mapping[str, str]) -> CiEvent:
    repository = _need(environ, "GITHUB_REPOSITORY")
    server = _need(environ, "GITHUB_SERVER_URL").rstrip("/")
    run_id = _number(environ, "GITHUB_RUN_ID")
    attempt = _number(environ, "GITHUB_RUN_ATTEMPT")
    project_url = f"{server}/{repository}"
    run_url = f"{project_url}/actions/runs/{run_id}"
    sha = _need(environ, "GITHUB_SHA")
    return CiEvent(
        forge="github",
        host=ForgeHost(api_url=_need(environ, "GITHUB_API_URL"), server_url=server),
        repository=repository,
        project=repository,
        job=CiJob(
            run_id=str(run_id),
            run_attempt=attempt,
            job_url=f"{run_url}/attempts/{attempt}",
            artifact_url=own_artifact_url(environ, project_url)
            or f"{run_url}#artifacts",
        ),
        head_sha=sha,
        built_sha=sha,
    )


def _after_workflow(
    event: CiEvent, run: _WorkflowRun, judged_here: str | None
) -> CiEvent:
    """The event of the completed run; the current run only reports it.

    The report link still goes to this run's own artifact, because only the samples of
    the other run's artifact are trusted.

    ``pull_requests`` is empty for a run from a fork, and may name one that has moved on
    since; the head SHA decides.
    """
    run_url = f"{event.host.server_url}/{event.repository}/actions/runs/{run.id}"
    owner = None
    change_request = branch = None
    pulls = [pull.number for pull in run.pull_requests if pull.head.sha == run.head_sha]
    if len(pulls) == 1:
        change_request = pulls[0]
    if run.event in ("pull_request", "pull_request_target"):
        branch = run.head_branch
        if run.head_repository and run.head_repository.owner:
            owner = run.head_repository.owner.login
    return replace(
        event,
        job=replace(
            event.job,
            run_id=str(run.id),
            run_attempt=run.run_attempt,
            job_url=f"{run_url}/attempts/{run.run_attempt}",
            artifact_url=judged_here or f"{run_url}#artifacts",
        ),
        head_sha=run.head_sha,
        built_sha=None,
        change_request=change_request,
        owner=owner,
        branch=branch,
    )


def _given(environ: Mapping[str, str]) -> CiEvent:
    missing = [name for name in _REQUIRED if not environ.get(name)]
    if missing:
        raise UsageError(
            "the event of this job is incomplete; missing: {missing}",
            missing=", ".join(missing),
        )
    forge, repository = environ["PERFGATE_FORGE"], environ["PERFGATE_REPOSITORY"]
    usual_api, usual_server = addresses(forge)
    api = environ.get("PERFGATE_API_URL", "").rstrip("/") or usual_api
    if api is None:
        raise UsageError(
            "every {forge} server has its own address; set PERFGATE_API_URL to the address of its API",
            forge=forge,
        )
    if api != usual_api or usual_server is None:
        usual_server = _server_of(api)
    server = (environ.get("PERFGATE_SERVER_URL") or usual_server).rstrip("/")
    sha = environ["PERFGATE_HEAD_SHA"]
    if not COMMIT_ID.fullmatch(sha):
        raise UsageError(
            "PERFGATE_HEAD_SHA must be a full commit id in lower case, found {commit!r}",
            commit=sha[:70],
        )
    job_url = _link(environ, "PERFGATE_JOB_URL")
    attempt = _optional_number(environ, "PERFGATE_RUN_ATTEMPT")
    ca_file = None
    if forge == "gitlab":  # its runners only name the certificate of their server
        ca_file = environ.get("CI_SERVER_TLS_CA_FILE") or None
    return CiEvent(
        forge=forge,
        host=ForgeHost(api_url=api, server_url=server, ca_file=ca_file),
        repository=repository,
        project=repository,
        job=CiJob(
            run_id=str(_number(environ, "PERFGATE_RUN_ID")),
            run_attempt=1 if attempt is None else attempt,
            job_url=job_url,
            artifact_url=own_artifact_url(environ, f"{server}/{repository}", job_url)
            or job_url,
        ),
        head_sha=sha,
        change_request=_optional_number(environ, "PERFGATE_CHANGE_REQUEST"),
    )


def _server_of(api: str) -> str:
    """The address of the server with an API: it may have a path of its own, below which
    the API has its usual one.
    """
    try:
        parts = urlsplit(api)
    except ValueError as error:
        raise UsageError(
            "PERFGATE_API_URL is not an address: {error}", error=error
        ) from None
    path = _API_PATH.sub("", parts.path.rstrip("/"))
    return f"{parts.scheme}://{parts.netloc}{path}"


def _gitlab(environ: Mapping[str, str]) -> CiEvent:
    """Read GitLab's predefined variables (docs.gitlab.com, "Predefined CI/CD
    variables").

    CI_PROJECT_ID is the fork in a fork's pipeline: the merge request lives in
    CI_MERGE_REQUEST_PROJECT_ID. In a merged results pipeline CI_COMMIT_SHA is the merge
    and CI_MERGE_REQUEST_SOURCE_BRANCH_SHA the head; otherwise the latter is empty. A
    retried job keeps the pipeline and its number, so there are no attempts to
    distinguish.
    """
    built = _need(environ, "CI_COMMIT_SHA")
    server = _need(environ, "CI_SERVER_URL").rstrip("/")
    merge_request = _optional_number(environ, "CI_MERGE_REQUEST_IID")
    project = (
        "CI_PROJECT_ID" if merge_request is None else "CI_MERGE_REQUEST_PROJECT_ID"
    )
    repository = _need(environ, "CI_PROJECT_PATH")
    return CiEvent(
        forge="gitlab",
        host=ForgeHost(
            api_url=_need(environ, "CI_API_V4_URL"),
            server_url=server,
            ca_file=environ.get("CI_SERVER_TLS_CA_FILE") or None,
        ),
        repository=repository,
        project=_need(environ, project),
        job=CiJob(
            run_id=str(_number(environ, "CI_PIPELINE_ID")),
            run_attempt=1,
            job_url=environ.get("CI_PIPELINE_URL") or environ.get("CI_JOB_URL"),
            artifact_url=own_artifact_url(environ, f"{server}/{repository}"),
        ),
        head_sha=environ.get("CI_MERGE_REQUEST_SOURCE_BRANCH_SHA") or built,
        built_sha=built,
        change_request=merge_request,
        is_check=True,
    )


def _github_trigger(environ: Mapping[str, str]) -> Trigger:
    """Read GitHub's payload and variables (docs.github.com, "Webhook events and
    payloads", "Variables reference").
    """
    payload = _read_payload(environ, _Payload)
    default = None
    if payload.repository:
        default = payload.repository.default_branch or None
    if (run := payload.workflow_run) is not None:
        # The head repository is null once the fork is deleted.
        target, source = payload.repository, run.head_repository
        own = bool(
            target
            and source
            and source.full_name
            and source.full_name == target.full_name
        )
        # "GITHUB_SHA: last commit on default branch" (docs.github.com, "Events that
        # trigger workflows", workflow_run).
        return Trigger(
            run.event, run.head_branch, default, own, tip=environ.get("GITHUB_SHA", "")
        )
    kind = environ.get("GITHUB_EVENT_NAME", "")
    prefix, _, branch = environ.get("GITHUB_REF", "").partition("refs/heads/")
    if prefix or not branch:
        return Trigger(kind, None, default, not kind.startswith("pull_request"))
    # "Scheduled workflows run on the latest commit on the default branch"
    # (docs.github.com, "Events that trigger workflows").
    if default is None and kind == "schedule":
        default = branch
    return Trigger(kind, branch, default, not kind.startswith("pull_request"))


def own_artifact_url(environ: Mapping[str, str], *places: str | None) -> str | None:
    """The page of this job's artifact as the job passes it on, if it lies below one of
    the places.
    """
    return _own_page(environ, ARTIFACT_URL_VARIABLE, *places)


def _own_page(
    environ: Mapping[str, str], variable: str, *places: str | None
) -> str | None:
    """The address that the job passes on in a variable, if it lies below the project or
    the job.
    """
    url = _link(environ, variable)
    for place in places:
        below = None
        if place:
            below = f"{place.rstrip('/')}/"
        if (
            url
            and below
            and url.startswith(below)
            and ".." not in url[len(below) :]
            and "%" not in url[len(below) :]
        ):
            return url
    return None


def _link(environ: Mapping[str, str], name: str) -> str | None:
    url = environ.get(name, "")
    clean = (
        url.isascii()
        and url.isprintable()
        and not any(c in url for c in " <>()[]\"'`|\\")
    )
    if clean and url.startswith(("https://", "http://")):
        return url
    return None


def _need(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name, "")
    if not value:
        raise UsageError(
            "this looks like a CI job, but {name} is not set; pass the job's environment on to perfgate",
            name=name,
        )
    return value


def _number(environ: Mapping[str, str], name: str) -> int:
    text = _need(environ, name)
    if not (text.isascii() and text.isdecimal() and len(text) <= 18):
        raise UsageError(
            "{name} must be a number, found {text!r}", name=name, text=text[:40]
        )
    return int(text)


def _optional_number(environ: Mapping[str, str], name: str) -> int | None:
    if not environ.get(name):
        return None
    return _number(environ, name)

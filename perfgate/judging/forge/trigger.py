"""What started the pipeline whose measurement is to be kept: a push to which branch, and of whose repository."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from perfgate.judging.forge.detect import read_payload

BRANCH_VARIABLE = "PERFGATE_BRANCH"


@dataclass(frozen=True)
class Trigger:
    """``kind`` is in the forge's own word, e.g. push; ``branch`` None where it was none (a tag, a change request).

    ``own`` says that the commit came from the repository itself, not from a fork. In a job that runs when the pipeline has
    ended ``tip`` is the newest commit of the default branch, and ``branch`` may also be the name of a tag.
    """

    kind: str
    branch: str | None = None
    default_branch: str | None = None
    own: bool = True
    tip: str | None = None


def read_trigger(environ: Mapping[str, str]) -> Trigger | None:
    """What started the pipeline this job belongs to, or the one it follows; None outside CI.

    Where perfgate was told of the event in so many words, PERFGATE_BRANCH names the branch.
    """
    if environ.get("PERFGATE_FORGE"):
        kind = "change request" if environ.get("PERFGATE_CHANGE_REQUEST") else "push"
        return Trigger(kind, environ.get(BRANCH_VARIABLE) or None)
    if environ.get("GITHUB_ACTIONS") == "true":
        return _github(environ)
    if environ.get("GITLAB_CI") == "true":
        return _gitlab(environ)
    return None


class _Repository(msgspec.Struct):
    full_name: str
    default_branch: str | None = None


class _WorkflowRun(msgspec.Struct):
    event: str
    head_branch: str | None = None
    head_repository: _Repository | None = None


class _Payload(msgspec.Struct):
    # A scheduled run's payload may name no repository.
    repository: _Repository | None = None
    workflow_run: _WorkflowRun | None = None


def _github(environ: Mapping[str, str]) -> Trigger:
    """Read GitHub's payload and variables (docs.github.com, "Webhook events and payloads", "Variables reference")."""
    payload = read_payload(environ, _Payload)
    default = payload.repository.default_branch if payload.repository else None
    if (run := payload.workflow_run) is not None:
        # The head repository is null once the fork is deleted.
        target, source = payload.repository, run.head_repository
        own = target is not None and source is not None and source.full_name == target.full_name
        # "GITHUB_SHA: last commit on default branch" (docs.github.com, "Events that trigger workflows", workflow_run).
        return Trigger(run.event, run.head_branch, default, own, tip=environ.get("GITHUB_SHA", ""))
    kind = environ.get("GITHUB_EVENT_NAME", "")
    prefix, _, branch = environ.get("GITHUB_REF", "").partition("refs/heads/")
    there = branch if branch and not prefix else None
    # "Scheduled workflows run on the latest commit on the default branch" (docs.github.com, "Events that trigger workflows").
    return Trigger(kind, there, default or (there if kind == "schedule" else None), not kind.startswith("pull_request"))


def _gitlab(environ: Mapping[str, str]) -> Trigger:
    """Read GitLab's variables: CI_COMMIT_BRANCH is there in pipelines of branches only."""
    return Trigger(
        environ.get("CI_PIPELINE_SOURCE", ""),
        environ.get("CI_COMMIT_BRANCH") or None,
        environ.get("CI_DEFAULT_BRANCH") or None,
        own=not environ.get("CI_MERGE_REQUEST_IID"),
    )

"""Options that tell a command of the CI event, on a CI whose variables perfgate does not know."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])

_META = "perfgate.event"
# Each option, the variable that says the same (judging/forge/detect.py, GIVEN), and what it is.
OPTIONS: tuple[tuple[str, str, str, click.IntRange | None, str], ...] = (
    (
        "--forge",
        "PERFGATE_FORGE",
        "NAME",
        None,
        "gitee, gitcode, gitea, github or gitlab, where no CI of theirs runs this.",
    ),
    ("--repository", "PERFGATE_REPOSITORY", "OWNER/NAME", None, "The repository on that forge."),
    ("--change-request", "PERFGATE_CHANGE_REQUEST", "N", click.IntRange(1), "The number of the pull or merge request."),
    ("--head-sha", "PERFGATE_HEAD_SHA", "SHA", None, "The commit under review."),
    ("--run", "PERFGATE_RUN_ID", "N", click.IntRange(0), "The number of this CI run; a later run has a higher one."),
    ("--attempt", "PERFGATE_RUN_ATTEMPT", "N", click.IntRange(1), "Which try of that run this is.  [default: 1]"),
    ("--api-url", "PERFGATE_API_URL", "URL", None, "The forge's API, for a server of your own."),
    ("--server-url", "PERFGATE_SERVER_URL", "URL", None, "The forge's pages, for a server of your own."),
    ("--job-url", "PERFGATE_JOB_URL", "URL", None, "The page of this CI job, which the comment links to."),
)


def event_options(command: F) -> F:
    """Give a command these options; ``event_environ`` has what they were."""
    for option, variable, metavar, kind, words in reversed(OPTIONS):
        keep = click.option(
            option,
            variable,
            metavar=metavar,
            type=kind,
            expose_value=False,
            callback=_keep,
            help=f"{words} ({variable})",
        )
        command = keep(command)
    return command


def event_environ() -> Mapping[str, str]:
    """Return the environment, with what the options of the running command say of the event in it."""
    from perfgate.judging.forge.detect import given

    return given(click.get_current_context().meta.get(_META, {}), os.environ)


def _keep(context: click.Context, parameter: click.Parameter, value: object | None) -> None:
    context.meta.setdefault(_META, {})[parameter.name] = value

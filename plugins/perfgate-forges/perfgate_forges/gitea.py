"""Gitea and Forgejo: pull requests, issue comments, commit statuses.

Not tested on a server; see similar.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from perfgate.judging.forge.detect import github_event, own_artifact_url
from perfgate.judging.forge.forge import CiEvent
from perfgate_forges.similar import SimilarDialect, connect_similar

NAME = "gitea"
API_URL, SERVER_URL = None, None
LINE = "{repository}/src/commit/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN")
connect = partial(
    connect_similar,
    dialect=SimilarDialect(
        "Gitea",
        talk="issues",
        pushing=frozenset({"write", "admin", "owner"}),
        page_size="limit",
        scheme="token",
        has_statuses=True,
    ),
)


def read_event(environ: Mapping[str, str]) -> CiEvent:
    """Read the GITHUB_* variables of Gitea Actions; a run's address uses its number in
    the repository.
    """
    event = github_event(
        {**environ, "GITHUB_RUN_ATTEMPT": environ.get("GITHUB_RUN_ATTEMPT") or "1"}
    )
    number = environ.get("GITHUB_RUN_NUMBER", "")
    project_url = f"{event.host.server_url}/{event.repository}"
    job_url = f"{project_url}/actions/runs/{number}" if number.isdecimal() else None
    return replace(
        event,
        forge=NAME,
        job=replace(
            event.job,
            job_url=job_url,
            artifact_url=own_artifact_url(environ, project_url) or job_url,
        ),
    )

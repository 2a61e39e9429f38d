"""Gitea and Forgejo: pull requests, issue comments, commit statuses. Not tried on a server; see forge/dialects.py."""

from __future__ import annotations

from perfgate.judging.forge import dialects
from perfgate.judging.forge.forge import CiEvent, Clock, Sleep

NAME = "gitea"
API_URL, SERVER_URL = None, None
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN")
DIALECT = dialects.Dialect("Gitea", talk="issues", page_size="limit", scheme="token", has_statuses=True)


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> dialects.DialectForge:
    return dialects.connect(event, token, DIALECT, sleep=sleep, clock=clock)

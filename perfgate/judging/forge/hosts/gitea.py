"""Gitea and Forgejo: pull requests, issue comments, commit statuses. Not tried on a server; see forge/similar.py."""

from __future__ import annotations

from perfgate.judging.forge import similar
from perfgate.judging.forge.forge import CiEvent
from perfgate.judging.forge.limits import Clock, Sleep

NAME = "gitea"
API_URL, SERVER_URL = None, None
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN")
MANNER = similar.Manner("Gitea", talk="issues", page_size="limit", scheme="token", has_statuses=True)


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> similar.SimilarForge:
    """Return the repository of an event."""
    return similar.connect(event, token, MANNER, sleep=sleep, clock=clock)

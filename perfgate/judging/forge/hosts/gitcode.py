"""GitCode and AtomGit: pull requests and their comments (docs.gitcode.com). Not tried on a server; see forge/similar.py."""

from __future__ import annotations

from perfgate.judging.forge import similar
from perfgate.judging.forge.forge import CiEvent
from perfgate.judging.forge.limits import Clock, Sleep

NAME = "gitcode"
API_URL, SERVER_URL = "https://api.gitcode.com/api/v5", "https://gitcode.com"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITCODE_ACCESS_TOKEN")
MANNER = similar.Manner("GitCode", talk="pulls", page_size="per_page", scheme="Bearer", has_statuses=False)


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> similar.SimilarForge:
    """Return the repository of an event."""
    return similar.connect(event, token, MANNER, sleep=sleep, clock=clock)

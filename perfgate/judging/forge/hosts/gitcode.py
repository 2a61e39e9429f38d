"""GitCode and AtomGit: pull requests and their comments (docs.gitcode.com). Not tried on a server; see forge/dialects.py."""

from __future__ import annotations

from perfgate.judging.forge import dialects
from perfgate.judging.forge.forge import CiEvent, Clock, Sleep

NAME = "gitcode"
API_URL, SERVER_URL = "https://api.gitcode.com/api/v5", "https://gitcode.com"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITCODE_ACCESS_TOKEN")
DIALECT = dialects.Dialect("GitCode", talk="pulls", page_size="per_page", scheme="Bearer", has_statuses=False)


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> dialects.DialectForge:
    return dialects.connect(event, token, DIALECT, sleep=sleep, clock=clock)

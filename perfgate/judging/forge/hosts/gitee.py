"""Gitee: pull requests and their comments (gitee.com/api/v5). Not tried on a server; see forge/dialects.py."""

from __future__ import annotations

from perfgate.judging.forge import dialects
from perfgate.judging.forge.forge import CiEvent, Clock, Sleep

NAME = "gitee"
API_URL, SERVER_URL = "https://gitee.com/api/v5", "https://gitee.com"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEE_TOKEN")
DIALECT = dialects.Dialect("Gitee", talk="pulls", page_size="per_page", scheme="Bearer", has_statuses=False)


def connect(event: CiEvent, token: str, *, sleep: Sleep, clock: Clock) -> dialects.DialectForge:
    return dialects.connect(event, token, DIALECT, sleep=sleep, clock=clock)

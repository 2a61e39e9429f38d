"""Gitea and Forgejo: pull requests, issue comments, commit statuses. Not tested on a server; see forge/dialects.py."""

from __future__ import annotations

from functools import partial

from perfgate.judging.forge.dialects import Dialect, connect_dialect

NAME = "gitea"
API_URL, SERVER_URL = None, None
LINE = "{repository}/src/commit/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEA_TOKEN", "GITHUB_TOKEN")
connect = partial(
    connect_dialect, dialect=Dialect("Gitea", talk="issues", page_size="limit", scheme="token", has_statuses=True)
)

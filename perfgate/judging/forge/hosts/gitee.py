"""Gitee: pull requests and their comments (gitee.com/api/v5). Not tested on a server; see forge/dialects.py."""

from __future__ import annotations

from functools import partial

from perfgate.judging.forge.dialects import Dialect, connect_dialect

NAME = "gitee"
API_URL, SERVER_URL = "https://gitee.com/api/v5", "https://gitee.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEE_TOKEN")
connect = partial(
    connect_dialect, dialect=Dialect("Gitee", talk="pulls", page_size="per_page", scheme="Bearer", has_statuses=False)
)

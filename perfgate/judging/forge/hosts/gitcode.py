"""GitCode and AtomGit: pull requests and their comments (docs.gitcode.com). Not tested on a server; see forge/dialects.py."""

from __future__ import annotations

from functools import partial

from perfgate.judging.forge.dialects import Dialect, connect_dialect

NAME = "gitcode"
API_URL, SERVER_URL = "https://api.gitcode.com/api/v5", "https://gitcode.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITCODE_ACCESS_TOKEN")
connect = partial(
    connect_dialect, dialect=Dialect("GitCode", talk="pulls", page_size="per_page", scheme="Bearer", has_statuses=False)
)

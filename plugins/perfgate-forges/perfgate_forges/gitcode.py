"""GitCode and AtomGit: pull requests and their comments (docs.gitcode.com). Not tested on a server; see similar.py."""

from __future__ import annotations

from functools import partial

from perfgate_forges.similar import SimilarDialect, connect_similar

NAME = "gitcode"
API_URL, SERVER_URL = "https://api.gitcode.com/api/v5", "https://gitcode.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITCODE_ACCESS_TOKEN")
connect = partial(connect_similar, dialect=SimilarDialect("GitCode", talk="pulls"))

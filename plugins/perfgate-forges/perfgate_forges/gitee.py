"""Gitee: pull requests and their comments (gitee.com/api/v5).

Not tested on a server; see similar.py.
"""

from __future__ import annotations

from functools import partial

from perfgate_forges.similar import SimilarDialect, connect_similar

NAME = "gitee"
API_URL, SERVER_URL = "https://gitee.com/api/v5", "https://gitee.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITEE_TOKEN")
connect = partial(connect_similar, dialect=SimilarDialect("Gitee", talk="pulls"))

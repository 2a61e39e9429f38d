"""GitCode and AtomGit: pull requests and their comments (docs.gitcode.com).

Not tested on a server; see similar.py.
"""

from __future__ import annotations

from functools import partial

from perfgate_forges.similar import SimilarDialect, connect_similar

NAME = "gitcode"
API_URL, SERVER_URL = "https://api.gitcode.com/api/v5", "https://gitcode.com"
LINE = "{repository}/blob/{commit}/{path}#L{line}"
TOKEN_VARIABLES = ("PERFGATE_TOKEN", "GITCODE_ACCESS_TOKEN")
# "push" is the word of its documentation for adding a member; no answer about a member
# was available.
connect = partial(
    connect_similar,
    dialect=SimilarDialect(
        "GitCode",
        talk="pulls",
        pushing=frozenset({"push", "write", "admin"}),
        head_ref="refs/merge-requests/{number}/head",
    ),
)

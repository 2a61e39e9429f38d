"""The name of a project in an address: a slash in it is sent as %2F, which must not
count as one of the address.

`/projects/team%2Fruns/index.html` is the overview of `team/runs`, and
`/projects/team/runs/index.html` lists the runs of `team`; the path of a request is the
same for both once it is decoded.
"""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import Scope

_PLACES = ("/projects/", "/api/v1/projects/")
# A code point that no text contains (Unicode, "Noncharacters").
_SLASH = "\ufdd0"


def with_whole_name(scope: Scope) -> Scope:
    """A request with a name that is one part of its path; any other as it is."""
    address = scope.get("raw_path", b"").decode("latin-1")
    for place in _PLACES:
        name, slash, rest = address.removeprefix(place).partition("/")
        if address.startswith(place) and "/" in unquote(name):
            whole = unquote(name).replace("/", _SLASH)
            return {**scope, "path": f"{place}{whole}{slash}{unquote(rest)}"}
    return scope


def name_in(part: str) -> str:
    """The name of a project that is one part of a path."""
    return part.replace(_SLASH, "/")

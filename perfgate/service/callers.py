"""The sender of a request and its rights, which every route that needs some declares as
a dependency.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated

from fastapi import Depends, HTTPException, Path
from starlette.requests import Request

from perfgate.judging.store.ledger import Ledger
from perfgate.judging.store.store import Store
from perfgate.locale import Activity
from perfgate.service.project_names import name_in

# PostgreSQL stores no NUL in a text.
NO_NUL = r"^[^\x00]*$"


@dataclass(frozen=True)
class Caller:
    """``name`` stands in the audit log; without a ``project`` everything may be read,
    the recordings too.

    ``form_key`` is for forms in the pages of a browser with a token that may write;
    empty for others.
    """

    name: str
    project: str | None = None
    may_write: bool = False
    form_key: str = ""


NEIGHBOUR = Caller("anyone on this machine")
# A load balancer, which learns that the service runs; no project has an empty name.
PROBE = Caller("anyone", project="")


class Authenticator:
    """Finds callers by their secrets: the token of this server, which reads everything,
    or one of the store's.
    """

    def __init__(self, own: str | None, ledger: Ledger | None = None) -> None:
        self._own = own
        self._ledger = ledger

    @property
    def is_open(self) -> bool:
        """Whether every user of this machine may read without a token."""
        return self._own is None

    def caller(self, secret: str) -> Caller | None:
        if not secret:
            return None
        if self._own is not None and is_same_secret(secret, self._own):
            return Caller("the token of the server")
        if self._ledger is None or (token := self._ledger.find(secret)) is None:
            return None
        return Caller(
            f"token {token.id} {token.name}",
            token.project,
            may_write=token.scope == "write",
        )


def form_key(secret: str) -> str:
    """The key of the forms in our pages: a foreign page, which knows the address but
    not the cookie, cannot make it.
    """
    return hmac.new(_bytes(secret), b"a form of perfgate", hashlib.sha256).hexdigest()


def is_same_secret(sent: str, secret: str) -> bool:
    return hmac.compare_digest(_bytes(sent), _bytes(secret))


def caller_of(request: Request) -> Caller:
    caller: Caller = request.state.caller
    return caller


def readable_projects(request: Request, store: Store) -> list[str]:
    """The projects of a store that the caller may read."""
    only = caller_of(request).project
    return [project for project in store.projects() if only in (None, project)]


# FastAPI hands a dependency that is not a coroutine to a thread, which takes longer
# than to compare two names.
async def reader(
    request: Request, project: Annotated[str, Path(min_length=1, pattern=NO_NUL)]
) -> str:
    """The project of the address, which the caller may read."""
    project = name_in(project)
    if caller_of(request).project not in (None, project):
        raise HTTPException(
            HTTPStatus.FORBIDDEN, Activity("this token is for another project")
        )
    return project


async def writer(request: Request, project: Annotated[str, Depends(reader)]) -> str:
    """The project of the address, which the caller may write to."""
    if not caller_of(request).may_write:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            "writing needs a token with scope write in an Authorization header; this request has none",
        )
    return project


async def reader_of_all(request: Request) -> None:
    if caller_of(request).project is not None:
        raise HTTPException(
            HTTPStatus.FORBIDDEN,
            Activity("the token of a project reads its runs alone"),
        )


ReadProject = Annotated[str, Depends(reader)]
WrittenProject = Annotated[str, Depends(writer)]


def _bytes(secret: str) -> bytes:
    return secret.encode(errors="surrogateescape")

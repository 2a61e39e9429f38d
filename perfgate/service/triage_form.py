"""The form by which a person gives a regression of main a state on the pages of the
service.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, get_args

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from perfgate.document.history import TriageState
from perfgate.errors import UsageError
from perfgate.flows.trust.acceptance import give_state
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.report.render.served import render_refusal
from perfgate.judging.report.render.site.page import OPEN, TRIAGE, commit_anchor
from perfgate.locale import Language, sentence, speaking
from perfgate.service.bodies import bounded_body
from perfgate.service.callers import Authenticator, Caller, ReadProject, caller_of
from perfgate.service.forms import (
    MOST_FORM_BYTES,
    form_answer,
    form_body,
    form_fields,
    form_sender,
)
from perfgate.service.part import ServicePart
from perfgate.service.served_store import ServedStore

_STATES: Mapping[str, TriageState] = {state: state for state in get_args(TriageState)}


class TriageForm(ServicePart):
    """The route that takes the form of the page with the open regressions."""

    def __init__(
        self,
        served: ServedStore,
        authenticator: Authenticator,
        language: Language,
        renew_pages: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._served = served
        self._authenticator = authenticator
        self._language = language
        self._renew_pages = renew_pages

    def router(self) -> APIRouter:
        router = APIRouter()
        router.post(
            f"/projects/{{project:path}}/{TRIAGE}",
            status_code=HTTPStatus.SEE_OTHER,
            responses=form_answer("Stored; to the page of open regressions."),
            openapi_extra=form_body(_FIELDS, ["commit", "state", "author"]),
            summary="Give the regressions that began with a commit a state.",
        )(self.change)
        return router

    async def change(self, request: Request, project: ReadProject) -> Response:
        """Store the state and redirect to the page, so that a reload does not store it
        again.
        """
        fields = form_fields(await bounded_body(request, MOST_FORM_BYTES))
        return await run_in_threadpool(
            self._change, caller_of(request), project, fields
        )

    def _change(
        self, caller: Caller, project: str, fields: Mapping[str, str]
    ) -> Response:
        with speaking(self._language):
            writer = form_sender(self._authenticator, caller, fields, project=project)
            if writer is None:
                reason = sentence(
                    "the state was not changed: that takes a token of this project with scope write"
                )
                return self._refused(reason, HTTPStatus.FORBIDDEN)
            try:
                commit = self._give(project, fields, writer.name)
            except UsageError as error:
                return self._refused(error.shown, HTTPStatus.UNPROCESSABLE_ENTITY)
            self._renew_pages(project)
        return RedirectResponse(f"{OPEN}#{commit_anchor(commit)}", HTTPStatus.SEE_OTHER)

    def _give(self, project: str, fields: Mapping[str, str], writer: str) -> str:
        """Store the state in the fields and return its commit.

        Raises UsageError for fields that no form of ours sends.
        """
        state, commit = _STATES.get(fields.get("state", "")), fields.get("commit", "")
        if state is None or not COMMIT_ID.fullmatch(commit):
            raise UsageError(
                "the form names no commit or no state; open the page again"
            )
        reason, author = fields.get("reason", ""), fields.get("author", "")
        store = self._served.store()
        give_state(
            store,
            project,
            commit=commit,
            state=state,
            reason=reason,
            author=author,
            actor=writer,
        )
        return commit

    def _refused(self, error: str, status: HTTPStatus) -> Response:
        return HTMLResponse(render_refusal(error, OPEN, self._language), status)


_FIELDS: dict[str, Any] = {
    "commit": {"type": "string", "description": "The first bad commit, in full."},
    "state": {"type": "string", "enum": list(_STATES)},
    "reason": {"type": "string"},
    "author": {"type": "string"},
}

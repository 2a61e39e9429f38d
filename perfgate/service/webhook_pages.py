"""The state of the webhooks as a page and as JSON: messages that wait, were delivered,
or are dead letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from fastapi import APIRouter, Depends
from fastapi.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from perfgate.document.served import ServedWebhook
from perfgate.judging.report.render.served import render_refusal, render_webhooks
from perfgate.locale import Language, sentence, speaking
from perfgate.service.answers import as_json, as_page, json_answer, page_answer
from perfgate.service.bodies import bounded_body
from perfgate.service.callers import Authenticator, caller_of, reader_of_all
from perfgate.service.forms import (
    MOST_FORM_BYTES,
    form_answer,
    form_body,
    form_fields,
    form_sender,
)
from perfgate.service.part import ServicePart
from perfgate.service.served_store import ServedStore
from perfgate.service.webhook import Webhook

WEBHOOKS = "/webhooks"


class WebhookPages(ServicePart):
    """The routes of all webhooks, for readers of all projects."""

    records = (ServedWebhook,)

    def __init__(
        self,
        webhooks: Sequence[Webhook],
        authenticator: Authenticator,
        served: ServedStore,
        language: Language,
    ) -> None:
        self._webhooks = webhooks
        self._authenticator = authenticator
        self._served = served
        self._language = language

    def router(self) -> APIRouter:
        router = APIRouter(dependencies=[Depends(reader_of_all)])
        router.get(
            WEBHOOKS,
            responses=page_answer(),
            summary="The webhooks with their dead letters.",
        )(self.page)
        router.post(
            WEBHOOKS,
            status_code=HTTPStatus.SEE_OTHER,
            responses=form_answer("Queued; to the page of the webhooks."),
            openapi_extra=form_body({}, []),
            summary="Send all dead letters again; a token with scope write for all projects may.",
        )(self.redeliver)
        router.get(
            "/api/v1/webhooks",
            responses=json_answer(list[ServedWebhook]),
            summary="The messages of each webhook since the service started, and its dead letters.",
        )(self.states)
        return router

    def page(self, request: Request) -> Response:
        return as_page(
            render_webhooks(
                self._states(), self._language, form_key=caller_of(request).form_key
            )
        )

    def states(self) -> Response:
        return as_json(self._states())

    async def redeliver(self, request: Request) -> Response:
        """Queue the dead letters and redirect to the page, so that a reload does not
        send them again.
        """
        fields = form_fields(await bounded_body(request, MOST_FORM_BYTES))
        return await run_in_threadpool(self._redeliver, request, fields)

    def _redeliver(self, request: Request, fields: dict[str, str]) -> Response:
        sender = form_sender(
            self._authenticator, caller_of(request), fields, project=None
        )
        if sender is None:
            with speaking(self._language):
                reason = sentence(
                    "nothing was sent: that takes a token of all projects with scope write"
                )
                return HTMLResponse(
                    render_refusal(reason, WEBHOOKS, self._language),
                    HTTPStatus.FORBIDDEN,
                )
        ledger = self._served.store().ledger()
        for webhook in self._webhooks:
            queued = webhook.redeliver()
            if queued and ledger is not None:
                subject = f"{queued} to {webhook.state().receiver}"
                ledger.record(
                    "dead letters redelivered", "", subject, actor=sender.name
                )
        return RedirectResponse(WEBHOOKS, HTTPStatus.SEE_OTHER)

    def _states(self) -> list[ServedWebhook]:
        return [webhook.state() for webhook in self._webhooks]

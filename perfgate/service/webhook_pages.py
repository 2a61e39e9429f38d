"""The state of the webhooks as a page and as JSON: messages that wait, were delivered, or are dead letters."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Depends
from starlette.responses import Response

from perfgate.document.served import ServedWebhook
from perfgate.judging.report.render.served import render_webhooks
from perfgate.locale import Language
from perfgate.service.answers import as_json, as_page, json_answer, page_answer
from perfgate.service.callers import reader_of_all
from perfgate.service.part import ServicePart
from perfgate.service.webhook import Webhook

WEBHOOKS = "/webhooks"


class WebhookPages(ServicePart):
    """The routes of all webhooks, for readers of all projects."""

    records = (ServedWebhook,)

    def __init__(self, webhooks: Sequence[Webhook], language: Language) -> None:
        self._webhooks, self._language = webhooks, language

    def router(self) -> APIRouter:
        router = APIRouter(dependencies=[Depends(reader_of_all)])
        router.get(WEBHOOKS, responses=page_answer(), summary="The webhooks with their dead letters.")(self.page)
        router.get(
            "/api/v1/webhooks",
            responses=json_answer(list[ServedWebhook]),
            summary="The messages of each webhook since the service started, and its dead letters.",
        )(self.states)
        return router

    def page(self) -> Response:
        return as_page(render_webhooks(self._states(), self._language))

    def states(self) -> Response:
        return as_json(self._states())

    def _states(self) -> list[ServedWebhook]:
        return [webhook.state() for webhook in self._webhooks]

"""The audit log of a store as a page: the changes with their time and actor."""

from __future__ import annotations

from http import HTTPStatus

from fastapi import APIRouter, HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perfgate.judging.report.render.served import AuditRow, render_audit
from perfgate.locale import Activity, Language
from perfgate.service.answers import as_page, page_answer
from perfgate.service.callers import caller_of
from perfgate.service.part import ServicePart
from perfgate.service.served_store import ServedStore
from perfgate.service.store_api import Before

AUDIT = "/audit"
_ON_A_PAGE = 100


class AuditPage(ServicePart):
    """The page of one store; the token of a project shows the changes of this project."""

    def __init__(self, served: ServedStore, language: Language) -> None:
        self._served = served
        self._language = language

    def router(self) -> APIRouter:
        router = APIRouter()
        router.get(
            AUDIT, responses=page_answer(), summary="Who changed what, newest first."
        )(self.page)
        return router

    def page(self, request: Request, before: Before | None = None) -> Response:
        ledger = self._served.store().ledger()
        if ledger is None:
            raise HTTPException(
                HTTPStatus.NOT_FOUND,
                Activity("this store keeps no audit log; a database does"),
            )
        entries = ledger.entries(
            project=caller_of(request).project, limit=_ON_A_PAGE + 1, before=before
        )
        older = ""
        if len(entries) > _ON_A_PAGE:
            entries.pop()
            older = f"{AUDIT}?before={entries[-1].number}"
        rows = [
            AuditRow(entry.at, entry.actor, entry.project, entry.action, entry.subject)
            for entry in entries
        ]
        return as_page(render_audit(rows, self._language, older=older))

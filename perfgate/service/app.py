"""The FastAPI application: the routes of its parts, its health, and one response for
each kind of error.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from http import HTTPStatus
from itertools import chain
from typing import cast

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ExceptionHandler

from perfgate.errors import (
    ArgumentError,
    ForbiddenError,
    PerfgateError,
    SessionKeptError,
    StoreError,
    UnfitRunError,
    UnknownRunError,
    UsageError,
)
from perfgate.locale import Language
from perfgate.service.admission import HEALTH
from perfgate.service.answers import (
    DescribedApp,
    as_json,
    described,
    refused,
    refused_request,
)
from perfgate.service.part import ServicePart
from perfgate.service.trouble_log import TroubleLog

# The most specific class of an error counts.
_STATUSES: Mapping[type[Exception], HTTPStatus] = {
    ArgumentError: HTTPStatus.BAD_REQUEST,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    UsageError: HTTPStatus.NOT_FOUND,
    UnknownRunError: HTTPStatus.NOT_FOUND,
    SessionKeptError: HTTPStatus.CONFLICT,
    UnfitRunError: HTTPStatus.UNPROCESSABLE_ENTITY,
    StoreError: HTTPStatus.SERVICE_UNAVAILABLE,
    PerfgateError: HTTPStatus.UNPROCESSABLE_ENTITY,
}
_NOT_NOW = HTTPStatus.SERVICE_UNAVAILABLE
_ABOUT = "Recordings of profilers, and the runs of main."


def create_app(
    parts: Sequence[ServicePart], troubles: TroubleLog, language: Language
) -> DescribedApp:
    """The application without admission, which wraps it."""

    @asynccontextmanager
    async def closing(_: DescribedApp) -> AsyncIterator[None]:
        yield
        for part in parts:
            part.close()

    def health() -> Response:
        try:
            for part in parts:
                part.check()
        except PerfgateError as error:
            # Without a token neither the place of the store nor its error is shown.
            troubles.note(str(error))
            return refused(
                "the served data cannot be read; the log of perfgate serve has the reason",
                _NOT_NOW,
            )
        return as_json({"status": "ok"})

    records = list(chain.from_iterable(part.records for part in parts))
    app = DescribedApp(
        records=records, description=_ABOUT, lifespan=closing, redirect_slashes=False
    )
    for part in parts:
        app.include_router(part.router())
    app.get(
        HEALTH,
        responses=described({"type": "object"}),
        summary="Whether all of this can be read.",
    )(health)

    app.add_exception_handler(PerfgateError, _failure(parts, troubles, language))
    app.add_exception_handler(RequestValidationError, _wrong_parameter(language))
    app.add_exception_handler(HTTPException, _refused_by_route(language))
    return app


def _failure(
    parts: Sequence[ServicePart], troubles: TroubleLog, language: Language
) -> ExceptionHandler:
    """The response to an error of ours; those of the store are the operator's, too."""

    async def failed(request: Request, error: Exception) -> Response:
        kinds = [kind for kind in type(error).__mro__ if kind in _STATUSES]
        status, text = _STATUSES[kinds[0]], str(error)
        on_page = cast("PerfgateError", error).shown
        if status == _NOT_NOW:
            troubles.note(text)
        for part in parts:
            text, on_page = part.public(text), part.public(on_page)
        return refused_request(request, text, status, language, on_page=on_page)

    return failed


def _wrong_parameter(language: Language) -> ExceptionHandler:
    async def wrong(request: Request, error: Exception) -> Response:
        problems = [
            f"{problem['loc'][-1]}: {problem['msg']}"
            for problem in cast("RequestValidationError", error).errors()
        ]
        return refused_request(
            request, "; ".join(problems), HTTPStatus.BAD_REQUEST, language
        )

    return wrong


def _refused_by_route(language: Language) -> ExceptionHandler:
    """For refusals of our routes and of the router itself, which names the methods that
    it allows.
    """

    async def refuse(request: Request, error: Exception) -> Response:
        refusal = cast("HTTPException", error)
        response = refused_request(
            request, refusal.detail, refusal.status_code, language
        )
        response.headers.update(refusal.headers or {})
        return response

    return refuse

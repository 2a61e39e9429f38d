"""The FastAPI application: its routes, and one response for each kind of error."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from perfgate.errors import PerfgateError, UsageError
from perfgate.service.answers import DescribedApp, refused
from perfgate.service.recordings import RecordingPages


def create_app(recordings: RecordingPages) -> DescribedApp:
    """The application without admission, which wraps it."""

    @asynccontextmanager
    async def closing(_: DescribedApp) -> AsyncIterator[None]:
        yield
        recordings.close()

    app = DescribedApp(
        records=recordings.RECORDS, description="Recordings of profilers.", lifespan=closing, redirect_slashes=False
    )
    app.include_router(recordings.router())

    async def wrong_parameter(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return refused("; ".join(map(_worded, error.errors())), HTTPStatus.BAD_REQUEST)

    async def unknown(_: Request, error: Exception) -> Response:
        return refused(recordings.without_folder(str(error)), HTTPStatus.NOT_FOUND)

    async def failed(_: Request, error: Exception) -> Response:
        return refused(recordings.without_folder(str(error)), HTTPStatus.UNPROCESSABLE_ENTITY)

    async def no_route(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        response = refused(str(error.detail), error.status_code)
        response.headers.update(error.headers or {})
        return response

    app.add_exception_handler(RequestValidationError, wrong_parameter)
    app.add_exception_handler(UsageError, unknown)
    app.add_exception_handler(PerfgateError, failed)
    app.add_exception_handler(HTTPException, no_route)
    return app


def _worded(error: dict[str, object]) -> str:
    place = error["loc"]
    assert isinstance(place, tuple)
    return f"{place[-1]}: {error['msg']}"

"""The bodies of requests: read as a stream, within bounds of bytes, time and memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from io import BytesIO

import anyio
from fastapi import HTTPException
from starlette.requests import Request

MOST_UPLOAD_BYTES = 32 * 1024 * 1024
# Larger uploads are rare. At most this many are in memory at once; the others wait, and
# their clients stop sending.
_LARGE_BYTES = 1024 * 1024
_LARGE_AT_ONCE = 2
# A large upload that takes longer ends, so that a slow client does not hold up the
# others.
_SECONDS_OF_LARGE = 120.0


class Uploads:
    """Reads uploads so that many large ones at once take no more memory than two."""

    def __init__(self) -> None:
        self._large = asyncio.Semaphore(_LARGE_AT_ONCE)

    @asynccontextmanager
    async def body(self, request: Request) -> AsyncIterator[bytes]:
        """The body, while it is used.

        Raises HTTPException for one that is too large or too slow.
        """
        _refuse_announced(request, MOST_UPLOAD_BYTES)
        stream, body = request.stream(), BytesIO()
        async for chunk in stream:
            body.write(chunk)
            if body.tell() > _LARGE_BYTES:
                break
        else:
            yield body.getvalue()
            return
        async with self._large:
            try:
                with anyio.fail_after(_SECONDS_OF_LARGE):
                    async for chunk in stream:
                        _add(body, chunk, MOST_UPLOAD_BYTES)
            except TimeoutError:
                # Clients repeat a request that was answered with 503.
                raise HTTPException(
                    HTTPStatus.SERVICE_UNAVAILABLE,
                    "the upload took too long; send it again",
                ) from None
            yield body.getvalue()


async def bounded_body(request: Request, most: int) -> bytes:
    """The body of a request.

    Raises HTTPException above ``most`` bytes, before they are read if they are
    announced.
    """
    _refuse_announced(request, most)
    body = BytesIO()
    async for chunk in request.stream():
        _add(body, chunk, most)
    return body.getvalue()


def _refuse_announced(request: Request, most: int) -> None:
    announced = request.headers.get("Content-Length", "")
    if announced.isascii() and announced.isdecimal() and int(announced[:20]) > most:
        raise _too_large(most)


def _add(body: BytesIO, chunk: bytes, most: int) -> None:
    body.write(chunk)
    if body.tell() > most:
        raise _too_large(most)


def _too_large(most: int) -> HTTPException:
    return HTTPException(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"more than {most} bytes are not accepted here",
    )

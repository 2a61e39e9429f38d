"""Bodies of requests: bounded in bytes, and few large ones in memory at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi import HTTPException
from starlette.requests import Request

from perfgate.service.bodies import Uploads, bounded_body

HEADERS: dict[str, Any] = {"type": "http", "headers": []}


class Client:
    """Sends parts of a body; the last one once it is allowed to."""

    def __init__(self, *parts: bytes) -> None:
        self._parts = list(parts)
        self.sent = 0

    async def __call__(self) -> dict[str, Any]:
        self.sent += 1
        part = self._parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self._parts)}


def test_bounded_body__larger_than_allowed__ends_above_the_bound() -> None:
    client = Client(*[b"0" * 100] * 50)
    with pytest.raises(HTTPException, match="413"):
        asyncio.run(bounded_body(Request(HEADERS, client), 250))
    assert client.sent == 3


def test_upload__endless__ends_above_the_bound() -> None:
    client = Client(*[bytes(1_000_000)] * 50)

    async def read() -> None:
        async with Uploads().body(Request(HEADERS, client)):
            pass

    with pytest.raises(HTTPException, match="413"):
        asyncio.run(read())
    assert client.sent == 34


def test_uploads__many_large_at_once__two_are_read_and_small_ones_do_not_wait() -> None:
    async def read_together() -> tuple[list[int], int]:
        uploads, done = Uploads(), asyncio.Event()
        large = [Client(bytes(2_000_000), b"end") for _ in range(4)]
        small = Client(b"small")

        async def read(client: Client, until: asyncio.Event | None = None) -> int:
            async with uploads.body(Request(HEADERS, client)) as body:
                if until is not None:
                    await until.wait()
                return len(body)

        readers = [asyncio.create_task(read(client, done)) for client in large]
        size = await read(small)
        for _ in range(20):
            await asyncio.sleep(0)
        sent = [client.sent for client in large]
        done.set()
        assert await asyncio.gather(*readers) == [2_000_003] * 4
        return sent, size

    assert asyncio.run(read_together()) == ([2, 2, 1, 1], 5)

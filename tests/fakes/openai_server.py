"""A server that streams completions as OpenAI's API does, and fails in the ways that such servers do.

The shapes of its chunks are those of OpenAI's API reference ("Create completion" and "Create chat completion", streamed), which
tests/unit/load/test_openai_shapes.py checks with the types of the ``openai`` package where that is installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Literal

from aiohttp import web

Fault = Literal[
    "none",
    "status",
    "aborts",
    "hang",
    "truncated",
    "content_type",
    "no_usage",
    "silent",
    "json",
    "in_stream",
    "after_done",
    "split",
    "whole",
]


@dataclass
class FakeOpenAI:
    """``seconds`` pass before the first token and between tokens; with ``queues`` requests are answered one after the other.

    Of requests it refuses those that have a field which it ``rejects``, with the words of ``refusal``. With ``closes`` it keeps
    connections open, and closes them as soon as a second request arrives. ``received`` holds bodies and headers of requests.
    """

    fault: Fault = "none"
    seconds: float = 0.0
    received: list[tuple[dict[str, Any], Mapping[str, str]]] = field(default_factory=list)
    open_streams: int = 0
    url: str = ""
    queues: bool = False
    rejects: frozenset[str] = frozenset()
    refusal: str = "Unexpected fields in the request: {{'{field}'}}"
    closes: bool = False
    _answered: set[object] = field(default_factory=set)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self._closing])
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_route("*", "/echo/{rest:.*}", self._echo)
        return app

    @web.middleware
    async def _closing(self, request: web.Request, handler: Any) -> web.StreamResponse:
        transport = request.transport
        if self.closes and transport in self._answered:
            assert transport is not None
            transport.abort()
            await asyncio.Event().wait()  # until the lost connection cancels this
        self._answered.add(transport)
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _echo(self, request: web.Request) -> web.Response:
        text = await request.text()
        self.received.append(
            ({"method": request.method, "path": request.raw_path, "body": text}, request.headers.copy())
        )
        return web.Response(text=text, status=503 if self.fault == "status" else 200)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        body = await request.json()
        self.received.append((body, request.headers.copy()))
        if self.fault == "status":
            return web.json_response({"error": {"message": "out of memory", "code": 500}}, status=500)
        if rejected := sorted(self.rejects & body.keys()):
            return web.Response(text=self.refusal.format(field=rejected[0]), status=422)
        kind = "application/json" if self.fault == "content_type" else "text/event-stream"
        response = web.StreamResponse(headers={"Content-Type": kind})
        await response.prepare(request)
        self.open_streams += 1
        try:
            async with self._turn if self.queues else nullcontext():
                await self._stream(request, response, body, chat=chat)
        finally:
            self.open_streams -= 1
        return response

    async def _stream(
        self, request: web.Request, response: web.StreamResponse, body: dict[str, Any], *, chat: bool
    ) -> None:
        events = self._events(body, chat=chat)
        for number, event in enumerate([*events, "[DONE]"]):
            if self.fault == "aborts" and number == 2:
                os.abort()
            if self.fault == "hang" and number == 2:
                await asyncio.sleep(3600)
            if self.seconds:
                await asyncio.sleep(self.seconds)
            data = f"data: {event}\n\n".encode()
            if self.fault == "truncated" and number == 2:
                await response.write(data[:20])
                return
            for part in (data[:7], data[7:]) if self.fault == "split" else (data,):
                await response.write(part)
        if self.fault == "after_done":
            await response.write(f"data: {events[0]}\n\n".encode())

    def _events(self, body: dict[str, Any], *, chat: bool) -> list[str]:
        events = [json.dumps(chunk) for chunk in chunks(body, chat=chat, fault=self.fault)]
        if self.fault == "whole":
            return ["\n\ndata: ".join(events)]
        if self.fault == "json":
            events[1] = '{"choices": [{"text":'
        if self.fault == "in_stream":
            events[1] = '{"error": {"message": "the engine died", "code": 500}}'
        return events


# What answers are made of.
WORD = "w"


def chunks(body: dict[str, Any], *, chat: bool, fault: Fault = "none") -> Iterator[dict[str, Any]]:
    """One chunk a token, the last with the reason why it ended, then the usage; words stand for tokens."""
    tokens = body["max_tokens"]
    common = {
        "id": "cmpl-1",
        "created": 1_700_000_000,
        "model": body["model"],
        "object": "chat.completion.chunk" if chat else "text_completion",
    }
    for number in range(tokens):
        text = "" if fault == "silent" else f"{WORD}{number} "
        content: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
        if chat and number == 0:
            content["delta"]["role"] = "assistant"
        choice = {"index": 0, "logprobs": None, "finish_reason": "length" if number == tokens - 1 else None, **content}
        yield {**common, "choices": [choice]}
    if fault != "no_usage":
        prompt = len(body["messages"][0]["content"].split() if chat else body["prompt"].split())
        usage = {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}
        yield {**common, "choices": [], "usage": usage}


@contextmanager
def serving(server: FakeOpenAI) -> Iterator[FakeOpenAI]:
    """Serve in a thread of its own, at ``server.url``."""
    started = threading.Event()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        started.set()
        await ended.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    try:
        assert started.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()

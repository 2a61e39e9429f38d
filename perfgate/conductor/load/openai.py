"""Streamed requests of the OpenAI completions and chat API, as vLLM, SGLang, MindIE and
others serve it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from perfgate.conductor.load.event_stream import EventStream, EventStreamError
from perfgate.conductor.load.http import (
    LONGEST_BODY,
    AnswerError,
    HttpRequest,
    HttpServer,
    failure_text,
)
from perfgate.conductor.load.plan import PlannedRequest
from perfgate.conductor.load.record import Clock, Exchange, shortened

if TYPE_CHECKING:
    import aiohttp

Api = Literal["completions", "chat"]

_PATHS: dict[Api, str] = {
    "completions": "/v1/completions",
    "chat": "/v1/chat/completions",
}
_DONE = "[DONE]"
_EVENT_STREAM = "text/event-stream"
# What makes requests alike and their tokens countable, and what a server may do
# without.
_OPTIONAL = {
    "ignore_eos": True,
    "temperature": 0,
    "seed": 0,
    "stream_options": {"include_usage": True},
}


@dataclass(frozen=True)
class OpenAITarget(HttpServer):
    """A server that is asked for greedy answers of exactly as many tokens as planned.

    ``ignore_eos`` keeps the model from ending early; servers other than vLLM and SGLang
    may reject the parameter. ``extra`` goes into every request body and overrides
    perfgate's own fields.
    """

    model: str
    api: Api = "completions"
    ignore_eos: bool = True
    extra: Mapping[str, Any] = field(default_factory=dict)

    def http_request(self, request: PlannedRequest) -> HttpRequest:
        body: dict[str, Any] = {"model": self.model}
        if self.api == "completions":
            body["prompt"] = request.prompt
        else:
            body["messages"] = [{"role": "user", "content": request.prompt}]
        body["max_tokens"], body["stream"] = request.output_tokens, True
        for name in self._optional():
            body[name] = _OPTIONAL[name]
        encoded = msgspec.json.encode({**body, **self.extra})
        return HttpRequest("POST", _PATHS[self.api], encoded)

    def _optional(self) -> Iterator[str]:
        for name in _OPTIONAL:
            is_wanted = name != "ignore_eos" or self.ignore_eos
            if is_wanted and name not in self.without and name not in self.extra:
                yield name

    def _rejected(self, status: int, answer: str) -> str:
        """The field of ours that a refusal names; empty if it names none.

        A field of the body that it quotes does not count.
        """
        if 400 <= status < 500:
            for name in self._optional():
                if re.search(rf"(?<!\w){name}(?!\w)(?![\"']\s*:)", answer):
                    return name
        return ""

    async def read(
        self, response: aiohttp.ClientResponse, exchange: Exchange, clock: Clock
    ) -> None:
        if response.status != 200:
            text = await failure_text(response)
            exchange.rejected = self._rejected(response.status, text)
            raise AnswerError(text)
        if response.content_type != _EVENT_STREAM:
            text = await failure_text(response)
            raise AnswerError(
                f"expected {_EVENT_STREAM}, received {response.content_type}: {text}"
            )
        answer = _Answer(exchange, self.api, clock)
        try:
            await answer.read(response.content)
        finally:
            exchange.text = "".join(answer.texts)


class _Delta(msgspec.Struct, frozen=True):
    content: str | None = None
    # A model's reasoning is output too: vLLM's older and newer name for it.
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(msgspec.Struct, frozen=True):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct, frozen=True):
    prompt_tokens: Annotated[int, msgspec.Meta(ge=0)]
    completion_tokens: Annotated[int, msgspec.Meta(ge=0)]
    prompt_tokens_details: Any = None

    @property
    def cached_tokens(self) -> int | None:
        """The prompt tokens found in a prefix cache; servers differ in whether, and
        how, they report them.
        """
        if not isinstance(self.prompt_tokens_details, dict):
            return None
        cached = self.prompt_tokens_details.get("cached_tokens")
        if isinstance(cached, int) and 0 <= cached <= self.prompt_tokens:
            return cached
        return None


class _Chunk(msgspec.Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_DECODER = msgspec.json.Decoder(_Chunk)


class _Answer:
    """Reads one streamed answer into an exchange."""

    def __init__(self, exchange: Exchange, api: Api, clock: Clock) -> None:
        self._exchange = exchange
        self._api = api
        self._clock = clock
        self.texts: list[str] = []
        self._done = False
        # The stream of `transformers serve` ends with a chunk that has the finish
        # reason, without [DONE].
        self._finished = False

    async def read(self, content: aiohttp.StreamReader) -> None:
        """Raises EventStreamError for a stream that is malformed or cut off, or that
        reports an error.
        """
        stream = EventStream()
        size = 0
        async for received in content.iter_any():
            arrived = self._clock.now()
            size += len(received)
            if size > LONGEST_BODY:
                raise EventStreamError(
                    f"the answer is longer than {LONGEST_BODY} bytes"
                )
            for event in stream.feed(received):
                self._take(event, arrived)
        stream.end()
        if not (self._done or self._finished):
            raise EventStreamError(
                f"the event stream ended without {_DONE} or a finish_reason: it was cut off"
            )

    def _take(self, event: str, arrived: float) -> None:
        if self._done:
            raise EventStreamError(f"the event stream goes on after {_DONE}")
        if event == _DONE:
            self._done = True
            return
        try:
            chunk = _DECODER.decode(event)
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
            raise EventStreamError(
                f"a chunk of the answer is malformed: {error}: {shortened(event)}"
            ) from None
        if chunk.error is not None:
            raise EventStreamError(
                f"the server reports an error in the stream: {shortened(event)}"
            )
        self._note(chunk, arrived, event)

    def _note(self, chunk: _Chunk, arrived: float, event: str) -> None:
        exchange = self._exchange
        if chunk.usage is not None:
            exchange.input_tokens = chunk.usage.prompt_tokens
            exchange.output_tokens = chunk.usage.completion_tokens
            exchange.cached_tokens = chunk.usage.cached_tokens
        if not chunk.choices:
            if chunk.usage is None:
                raise EventStreamError(
                    f"a chunk of the answer has neither choices nor usage: {shortened(event)}"
                )
            return
        # A chunk may hold no text because a character is not complete yet: its token
        # has arrived all the same.
        exchange.last = arrived
        self._finished |= all(choice.finish_reason for choice in chunk.choices)
        text = "".join(self._text(choice, event) for choice in chunk.choices)
        if text:
            if exchange.first is None:
                exchange.first = arrived
            exchange.tokens.append(arrived)
            self.texts.append(text)

    def _text(self, choice: _Choice, event: str) -> str:
        if self._api == "completions" and choice.text is not None:
            return choice.text
        if self._api == "chat" and choice.delta is not None:
            delta = choice.delta
            return (delta.reasoning_content or delta.reasoning or "") + (
                delta.content or ""
            )
        raise EventStreamError(
            f"a chunk is not one of the {self._api} API: {shortened(event)}"
        )

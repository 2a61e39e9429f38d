"""The questions as routes: `GET /api/v1/ask/NAME` with the arguments in the query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import msgspec
from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from perfgate.flows.ask.questions import Question, questions_for
from perfgate.service.answers import as_json, json_answer
from perfgate.service.asking import ServedSources
from perfgate.service.callers import NEIGHBOUR, caller_of
from perfgate.service.library import within
from perfgate.service.part import ServicePart


class AskApi(ServicePart):
    """The routes of those questions that this service can answer."""

    def __init__(self, sources: ServedSources) -> None:
        self._sources = sources
        self._questions = questions_for(sources.of(NEIGHBOUR))
        self.records = tuple(question.answer for question in self._questions)

    def public(self, text: str) -> str:
        return self._sources.public(text)

    def router(self) -> APIRouter:
        router = APIRouter(prefix="/api/v1/ask")
        for question in self._questions:
            router.get(
                f"/{question.name}",
                responses=json_answer(question.answer),
                openapi_extra={
                    "parameters": msgspec.to_builtins(list(_parameters(question)))
                },
                summary=question.about,
            )(self._route(question))
        return router

    def _route(self, question: Question[Any, Any]) -> Callable[[Request], Response]:
        def answer(request: Request) -> Response:
            sources = self._sources.of(caller_of(request))
            arguments = dict(request.query_params)
            return as_json(
                within(partial(question.ask, arguments, sources, as_text=True))
            )

        return answer


class _Parameter(msgspec.Struct, frozen=True, rename={"place": "in"}):
    """A parameter as OpenAPI describes it."""

    name: str
    required: bool
    schema: Any
    place: str = "query"


def _parameters(question: Question[Any, Any]) -> Iterator[_Parameter]:
    schema = question.schema()
    needed = schema.get("required", [])
    for name, about in schema["properties"].items():
        yield _Parameter(name, name in needed, about)

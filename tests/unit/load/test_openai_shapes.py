"""The fake server's chunks are those of the API that it stands for."""

from __future__ import annotations

import pytest

from tests.fakes.openai_server import chunks

types = pytest.importorskip(
    "openai.types", reason="the openai package, whose types are the API's own, is not installed"
)


def test_chunks__completions__are_completions() -> None:
    for chunk in chunks({"model": "tiny", "max_tokens": 3, "prompt": "a b"}, chat=False):
        for choice in chunk["choices"]:
            # The type stands for the whole answer, which has ended; a streamed chunk before the last has null here.
            choice["finish_reason"] = choice["finish_reason"] or "length"
        types.Completion.model_validate(chunk, strict=True)


def test_chunks__chat__are_chat_completion_chunks() -> None:
    body = {"model": "tiny", "max_tokens": 3, "messages": [{"role": "user", "content": "a b"}]}
    for chunk in chunks(body, chat=True):
        types.chat.ChatCompletionChunk.model_validate(chunk, strict=True)

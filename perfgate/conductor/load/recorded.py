"""Requests that were recorded elsewhere: a log with their times, or a dataset of conversations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from perfgate.errors import ConfigError
from perfgate.load_settings import MOST_WORDS
from perfgate.locale import Activity

_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORDS)]
# The roles of question and answer in ShareGPT and OpenAI's messages.
_ASKING, _ANSWERING = {"human", "user"}, {"gpt", "assistant", "chatgpt", "bing", "bard"}


class RecordedRequest(msgspec.Struct, frozen=True):
    """One request, as a line of a log: its ``prompt``, or only its length in words, ``input``.

    ``at`` is in seconds, 0 if no time is recorded; ``output`` is in tokens.
    """

    at: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    output: _Count
    prompt: str | None = None
    input: _Count | None = None


def read_log(path: Path) -> Sequence[RecordedRequest]:
    """The requests of a log in its order. Raises ConfigError for a malformed line, with its number."""
    return _read(path, Activity("log"))


def read_dataset(path: Path) -> Sequence[RecordedRequest]:
    """The first question of every conversation, with the words of its answer as output.

    Conversations without both are left out, as vLLM's benchmark leaves them out.
    """
    return _read(path, Activity("dataset"))


def _read(path: Path, kind: str) -> Sequence[RecordedRequest]:
    try:
        status = path.stat()
        return _read_version(path, kind, (status.st_mtime_ns, status.st_size))
    except OSError as error:
        raise ConfigError(
            "the {kind} {path} cannot be read: {error}",
            kind=kind,
            path=path,
            error=error,
        ) from error


@lru_cache(maxsize=2)
def _read_version(
    path: Path, kind: str, _version: tuple[int, int]
) -> Sequence[RecordedRequest]:
    """Every turn needs the file; it is read again if ``_version`` changed."""
    content = path.read_bytes()
    return tuple(_log(content, path) if kind == "log" else _dataset(content, path))


def _log(content: bytes, path: Path) -> Iterator[RecordedRequest]:
    decoder = msgspec.json.Decoder(RecordedRequest)
    before = -math.inf
    for number, text in enumerate(content.split(b"\n"), start=1):
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise ConfigError(
                '{path}:{number}: {error}; a line reads {{"at": 0.25, "prompt": "text", "output": 16}}',
                path=path,
                number=number,
                error=error,
            ) from error
        if (line.prompt is None) == (line.input is None):
            raise ConfigError(
                '{path}:{number}: a request has either "prompt", its text, or "input", its number of words',
                path=path,
                number=number,
            )
        if line.at < before:
            raise ConfigError(
                "{path}:{number}: at = {at} is before the line above, {before}; sort the log by at",
                path=path,
                number=number,
                at=line.at,
                before=before,
            )
        before = line.at
        yield line


def _dataset(content: bytes, path: Path) -> Iterator[RecordedRequest]:
    try:
        if content.lstrip()[:1] == b"[":
            conversations = msgspec.json.decode(content, type=list[Any])
        else:
            conversations = [
                msgspec.json.decode(line)
                for line in content.split(b"\n")
                if line.strip()
            ]
    except msgspec.DecodeError as error:
        raise ConfigError(
            "{path}: {error}; a dataset is a JSON list, or lines, of "
            '{{"conversations": [{{"from": "human", "value": "text"}}, {{"from": "gpt", "value": "text"}}]}}, or of '
            '{{"messages": [{{"role": "user", "content": "text"}}, …]}}',
            path=path,
            error=error,
        ) from error
    for conversation in conversations:
        for (role, question), (next_role, answer) in pairwise(_turns(conversation)):
            if role in _ASKING and next_role in _ANSWERING:
                if question.strip() and answer.strip():
                    yield RecordedRequest(
                        at=0.0, output=len(answer.split()), prompt=question
                    )
                break


def _turns(conversation: Any) -> Iterator[tuple[str, str]]:
    """The roles and texts of a conversation; malformed entries are left out."""
    if not isinstance(conversation, dict):
        return
    for entry in (
        conversation.get("conversations") or conversation.get("messages") or ()
    ):
        if isinstance(entry, dict):
            role = entry.get("from") or entry.get("role")
            text = entry.get("value") or entry.get("content")
            if isinstance(role, str) and isinstance(text, str):
                yield role, text

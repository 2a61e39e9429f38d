"""The requests of one turn, made before the turn begins: the same seed gives the same
requests on any machine.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from statistics import NormalDist
from typing import Annotated, Any, NamedTuple

import msgspec

from perfgate.errors import ConfigError
from perfgate.load_settings import MOST_WORDS, Length, Lengths, LoadSettings
from perfgate.locale import Activity
from perfgate.stats.arrivals import draw

# Short and frequent: one token each in the vocabularies of common models.
_FREQUENT = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were "
    "when we there can an your which their said if do will each about how up out them then she many some so these would "
    "other into has more her two like him see time could no make than first been its who now people my made over did down"
)
_WORDS = _FREQUENT.split()
# The tokens that a request asks for by default.
_OUTPUT = 16


@dataclass(frozen=True)
class PlannedRequest:
    """One request of a turn.

    ``at`` is its intended start in seconds from the beginning of the turn, 0 in a
    closed loop. ``id`` goes out as X-Request-Id, so that a trace of the server can name
    the request.
    """

    at: float
    prompt: str
    output_tokens: int
    id: str


class LoadPlan(NamedTuple):
    """Requests in rising order of ``at``; ``concurrency`` is None in an open loop."""

    requests: tuple[PlannedRequest, ...]
    concurrency: int | None

    @property
    def sha256(self) -> str:
        """A hash of the requests and their times, which proves that both sides got the
        same.
        """
        requests = [
            (request.at, request.prompt, request.output_tokens)
            for request in self.requests
        ]
        return hashlib.sha256(
            msgspec.json.encode((self.concurrency, requests))
        ).hexdigest()


def plan_load(settings: LoadSettings, *, seed: int, root: Path = Path()) -> LoadPlan:
    """The requests that these settings ask for in turn ``seed``; a relative ``log`` or
    ``dataset`` starts at ``root``.

    Turns have different requests, because a server may have earlier answers in its
    cache. Raises ConfigError if a file of requests is missing, malformed or too short.
    """
    shared = _words(settings.prefix, f"{seed}/prefix")
    if settings.log or settings.dataset:
        times, prompts, outputs = _replayed(settings, root, seed, shared)
    else:
        times = _times(settings, seed)
        prompts = []
        inputs = _drawn(settings.input, settings.requests, f"{seed}/input")
        for number, length in enumerate(inputs):
            own = _words(length - settings.prefix, f"{seed}/{number}")
            prompts.append(" ".join(shared + own))
        output = settings.output or _OUTPUT
        outputs = _drawn(output, settings.requests, f"{seed}/output")
    requests = []
    for number, (time, prompt, tokens) in enumerate(zip(times, prompts, outputs)):
        requests.append(
            PlannedRequest(time, prompt, tokens, f"perfgate-{seed}-{number:05d}")
        )
    return LoadPlan(tuple(requests), settings.concurrency)


def _times(settings: LoadSettings, seed: int) -> list[float]:
    """The seconds at which requests are sent: by the rate, or 0 in a closed loop."""
    if settings.rate is None:
        return [0.0] * settings.requests
    assert settings.rate != "highest", "the rate is found before a load is planned"
    drawn = draw(
        settings.rate,
        burstiness=settings.burstiness,
        count=settings.requests,
        seed=seed,
    )
    # The last digits of a gamma draw depend on the machine's libm.
    return [round(time, 6) for time in drawn.tolist()]


def _words(length: int, seed: str) -> list[str]:
    # random() of a seeded Random is the same in all versions of Python; choice() need
    # not be (Python's docs, "Notes on Reproducibility").
    generator = random.Random(seed)
    return [_WORDS[int(generator.random() * len(_WORDS))] for _ in range(length)]


def _replayed(
    settings: LoadSettings, root: Path, seed: int, shared: list[str]
) -> tuple[list[float], list[str], list[int]]:
    """The times, prompts and lengths of answers of the turn's own window of a log or a
    dataset.

    Used-up windows repeat, with the number of the round before each prompt, so that a
    prefix cache misses them. It is the same for the whole round, so that prompts of a
    log keep their common prefixes.
    """
    path = root / (settings.log or settings.dataset)
    recorded = _read(path, Activity("log") if settings.log else Activity("dataset"))
    windows = len(recorded) // settings.requests
    if not windows:
        remedy = Activity("record some")
        if recorded:
            remedy = Activity("write requests = {count} or less", count=len(recorded))
        raise ConfigError(
            "{path} has {count} requests and requests = {requests}; {remedy}",
            path=path,
            count=len(recorded),
            requests=settings.requests,
            remedy=remedy,
        )
    round_number, window = divmod(seed, windows)
    replayed = recorded[window * settings.requests : (window + 1) * settings.requests]
    if settings.rate is None and settings.concurrency is None:
        times = [round(request.at - replayed[0].at, 6) for request in replayed]
    else:
        times = _times(settings, seed)
    outputs = [request.output for request in replayed]
    if settings.dataset and settings.output is not None:
        outputs = _drawn(settings.output, settings.requests, f"{seed}/output")
    prompts = [
        _prompt(request, shared, round_number, f"{seed}/{number}")
        for number, request in enumerate(replayed)
    ]
    return times, prompts, outputs


def _prompt(
    recorded: RecordedRequest, shared: list[str], round_number: int, seed: str
) -> str:
    """The prompt after its prefix; a prompt recorded by length only gets that many
    words.
    """
    if recorded.prompt is None:
        length = recorded.input or 0
        return " ".join((shared + _words(length, seed))[:length])
    words = [*shared, recorded.prompt]
    if round_number:
        words.insert(0, f"[{round_number}]")
    return " ".join(words)


# --- lengths of prompts and answers, drawn the same for the same seed


def _drawn(length: Length, count: int, seed: str) -> list[int]:
    """Draw ``count`` lengths: all the same, one of a list each, evenly within bounds,
    or lognormal around a median.
    """
    if isinstance(length, int):
        return [length] * count
    generator = random.Random(seed)
    return [_length(length, generator.random()) for _ in range(count)]


def _length(length: list[int] | Lengths, share: float) -> int:
    """The length below which this share of all lengths lies."""
    if isinstance(length, list):
        return length[int(share * len(length))]
    if length.median is None or length.sigma is None:
        return length.least + int(share * (length.most - length.least + 1))
    drawn = length.median * math.exp(
        length.sigma * NormalDist().inv_cdf(min(max(share, 1e-12), 1 - 1e-12))
    )
    return min(length.most, max(length.least, round(drawn)))


# --- requests that were recorded elsewhere


_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_WORDS)]
# The roles of question and answer in ShareGPT and OpenAI's messages.
_ASKING, _ANSWERING = {"human", "user"}, {"gpt", "assistant", "chatgpt", "bing", "bard"}


class RecordedRequest(msgspec.Struct, frozen=True):
    """One request, as a line of a log: its ``prompt``, or only its length in words,
    ``input``.

    ``at`` is in seconds, 0 if no time is recorded; ``output`` is in tokens.
    """

    at: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    output: _Count
    prompt: str | None = None
    input: _Count | None = None


def _read(path: Path, kind: str) -> Sequence[RecordedRequest]:
    """The requests of a log or a dataset, in its order.

    Raises ConfigError for a file that cannot be read, and for a malformed line of a
    log, with its number.
    """
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
    """The first question of every conversation, with the words of its answer as output.

    Conversations without both are left out, as vLLM's benchmark leaves them out.
    """
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

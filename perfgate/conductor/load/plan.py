"""The requests of one turn, made before the turn begins: the same seed gives the same requests on any machine."""

from __future__ import annotations

import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple

import msgspec

from perfgate.errors import ConfigError
from perfgate.load_settings import MOST_WORDS, LoadSettings
from perfgate.stats.arrivals import draw

# Short and frequent: one token each in the vocabularies of common models.
_FREQUENT = (
    "the of and to in is that it was for on are as with his they at be this from have or by one had not but what all were "
    "when we there can an your which their said if do will each about how up out them then she many some so these would "
    "other into has more her two like him see time could no make than first been its who now people my made over did down"
)
_WORDS = _FREQUENT.split()
# A line of a log with a prompt of a million tokens is about 4 MB.
_LONGEST_LINE = 16 * 2**20


@dataclass(frozen=True)
class Request:
    """One request of a turn.

    ``at`` is its intended start in seconds from the beginning of the turn, 0 in a closed loop. ``id`` goes out as X-Request-Id,
    so that a trace of the server can name the request.
    """

    at: float
    prompt: str
    output_tokens: int
    id: str


class LoadPlan(NamedTuple):
    """Requests in rising order of ``at``; ``concurrency`` is None in an open loop."""

    requests: tuple[Request, ...]
    concurrency: int | None

    @property
    def sha256(self) -> str:
        """Of what is asked and when, by which the requests of two sides are shown to be the same."""
        asked = [(request.at, request.prompt, request.output_tokens) for request in self.requests]
        return hashlib.sha256(msgspec.json.encode((self.concurrency, asked))).hexdigest()


class _Line(msgspec.Struct, frozen=True):
    at: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    output: Annotated[int, msgspec.Meta(ge=1, le=MOST_WORDS)]
    prompt: str | None = None
    input: Annotated[int, msgspec.Meta(ge=1, le=MOST_WORDS)] | None = None


def plan_load(settings: LoadSettings, *, seed: int, root: Path = Path()) -> LoadPlan:
    """The requests that these settings ask for; a relative ``log`` starts at ``root``.

    Raises ConfigError where the log is missing, malformed or too short.
    """
    if settings.log:
        return LoadPlan(_replayed(settings, root / settings.log, seed), None)
    if settings.rate is None:
        times = [0.0] * settings.requests
    else:
        assert settings.rate != "highest", "the rate is found before a load is planned"
        drawn = draw(settings.rate, burstiness=settings.burstiness, count=settings.requests, seed=seed)
        # The last digits of a gamma draw depend on the machine's libm.
        times = [round(time, 6) for time in drawn.tolist()]
    shared = _words(settings.prefix, f"{seed}/prefix")
    requests = tuple(
        Request(
            at=time,
            prompt=" ".join(shared + _words(settings.input - settings.prefix, f"{seed}/{number}")),
            output_tokens=settings.output,
            id=_id(seed, number),
        )
        for number, time in enumerate(times)
    )
    return LoadPlan(requests, settings.concurrency)


def _id(seed: int, number: int) -> str:
    return f"perfgate-{seed}-{number:05d}"


def _words(length: int, seed: str) -> list[str]:
    # random() of a seeded Random is the same in all versions of Python; choice() need not be (Python's docs, "Notes on
    # Reproducibility").
    generator = random.Random(seed)
    return [_WORDS[int(generator.random() * len(_WORDS))] for _ in range(length)]


def _replayed(settings: LoadSettings, path: Path, seed: int) -> tuple[Request, ...]:
    try:
        with path.open("rb") as file:
            lines = list(islice(_lines(file, path), settings.requests))
    except OSError as error:
        raise ConfigError(f"the log {path} cannot be read: {error}") from error
    if len(lines) < settings.requests:
        raise ConfigError(
            f"{path} has {len(lines)} requests and requests = {settings.requests}; "
            + (f"write requests = {len(lines)} or less" if lines else "record some")
        )
    shared = _words(settings.prefix, f"{seed}/prefix")
    return tuple(
        Request(
            at=round(line.at - lines[0].at, 6),
            prompt=_prompt(line, shared, f"{seed}/{number}"),
            output_tokens=line.output,
            id=_id(seed, number),
        )
        for number, line in enumerate(lines)
    )


def _prompt(line: _Line, shared: list[str], seed: str) -> str:
    if line.prompt is not None:
        return " ".join([*shared, line.prompt])
    words = line.input or 0
    return " ".join((shared + _words(words, seed))[:words])


def _lines(file: BinaryIO, path: Path) -> Iterator[_Line]:
    decoder = msgspec.json.Decoder(_Line)
    before = -math.inf
    for number in count(1):
        text = file.readline(_LONGEST_LINE)
        if not text:
            return
        if not text.strip():
            continue
        try:
            line = decoder.decode(text)
        except msgspec.DecodeError as error:
            raise ConfigError(
                f'{path}:{number}: {error}; a line reads {{"at": 0.25, "prompt": "text", "output": 16}}'
            ) from error
        if (line.prompt is None) == (line.input is None):
            raise ConfigError(
                f'{path}:{number}: a request has either "prompt", its text, or "input", its number of words'
            )
        if line.at < before:
            raise ConfigError(f"{path}:{number}: at = {line.at} is before the line above, {before}; sort the log by at")
        before = line.at
        yield line

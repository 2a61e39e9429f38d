"""The requests of one turn, made before the turn begins: the same seed gives the same requests on any machine."""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import msgspec

from perfgate.conductor.load.recorded import RecordedRequest, read_dataset, read_log
from perfgate.errors import ConfigError
from perfgate.load_settings import Length, Lengths, LoadSettings
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

    ``at`` is its intended start in seconds from the beginning of the turn, 0 in a closed loop. ``id`` goes out as X-Request-Id,
    so that a trace of the server can name the request.
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
        """A hash of the requests and their times, which proves that both sides got the same."""
        requests = [
            (request.at, request.prompt, request.output_tokens)
            for request in self.requests
        ]
        return hashlib.sha256(
            msgspec.json.encode((self.concurrency, requests))
        ).hexdigest()


def plan_load(settings: LoadSettings, *, seed: int, root: Path = Path()) -> LoadPlan:
    """The requests that these settings ask for in turn ``seed``; a relative ``log`` or ``dataset`` starts at ``root``.

    Turns have different requests, because a server may have earlier answers in its cache. Raises ConfigError if a file of
    requests is missing, malformed or too short.
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
    # random() of a seeded Random is the same in all versions of Python; choice() need not be (Python's docs, "Notes on
    # Reproducibility").
    generator = random.Random(seed)
    return [_WORDS[int(generator.random() * len(_WORDS))] for _ in range(length)]


def _replayed(
    settings: LoadSettings, root: Path, seed: int, shared: list[str]
) -> tuple[list[float], list[str], list[int]]:
    """The times, prompts and lengths of answers of the turn's own window of a log or a dataset.

    Used-up windows repeat, with the number of the round before each prompt, so that a prefix cache misses them. It is the
    same for the whole round, so that prompts of a log keep their common prefixes.
    """
    path = root / (settings.log or settings.dataset)
    recorded = read_log(path) if settings.log else read_dataset(path)
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
    """The prompt after its prefix; a prompt recorded by length only gets that many words."""
    if recorded.prompt is None:
        length = recorded.input or 0
        return " ".join((shared + _words(length, seed))[:length])
    words = [*shared, recorded.prompt]
    if round_number:
        words.insert(0, f"[{round_number}]")
    return " ".join(words)


# --- lengths of prompts and answers, drawn the same for the same seed


def _drawn(length: Length, count: int, seed: str) -> list[int]:
    """Draw ``count`` lengths: all the same, one of a list each, evenly within bounds, or lognormal around a median."""
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

"""The requests of a turn as Chrome trace events, for Perfetto and `perfgate trace`,
with the ids sent to the server.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import msgspec

from perfgate.conductor.load.record import Exchange

_MICROSECONDS = 1e6


class _RequestArguments(msgspec.Struct, frozen=True):
    request_id: str
    input_tokens: int | None
    output_tokens: int | None
    status: int | None
    error: str


class _Event(msgspec.Struct, frozen=True, kw_only=True):
    """A complete event of a Chrome trace; times are in microseconds."""

    ph: Literal["X"] = "X"
    pid: str = "requests"
    tid: int
    name: str
    ts: float
    dur: float
    args: _RequestArguments | msgspec.UnsetType = msgspec.UNSET


class _ChromeTrace(msgspec.Struct, frozen=True, rename="camel"):
    trace_events: list[_Event]


def write_timeline(path: Path, exchanges: Iterable[Exchange]) -> None:
    """Write a track for as many requests as were under way at once; each request has
    its wait and its tokens inside.
    """
    ends: list[float] = []
    events: list[_Event] = []
    for exchange in sorted(exchanges, key=lambda exchange: exchange.at):
        track = next(
            (index for index, end in enumerate(ends) if end <= exchange.at), len(ends)
        )
        ends[track : track + 1] = [exchange.last]
        events += _events(exchange, track)
    path.write_bytes(msgspec.json.encode(_ChromeTrace(events)))


def _events(exchange: Exchange, track: int) -> Iterator[_Event]:
    about = _RequestArguments(
        request_id=exchange.id,
        input_tokens=exchange.input_tokens,
        output_tokens=exchange.output_tokens,
        status=exchange.status,
        error=exchange.error,
    )
    yield _event(track, exchange.id, exchange.at, exchange.last, about)
    if exchange.first is not None:
        yield _event(track, "first token", exchange.at, exchange.first)
        yield _event(track, "tokens", exchange.first, exchange.last)


def _event(
    track: int,
    name: str,
    begin: float,
    end: float,
    about: _RequestArguments | msgspec.UnsetType = msgspec.UNSET,
) -> _Event:
    duration = (end - begin) * _MICROSECONDS
    return _Event(
        tid=track, name=name, ts=begin * _MICROSECONDS, dur=duration, args=about
    )

"""The requests of a turn as Chrome trace events, for Perfetto and `perfgate trace`, with the ids sent to the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from perfgate.conductor.load.record import Exchange

_MICROSECONDS = 1e6


def write_timeline(path: Path, exchanges: Iterable[Exchange]) -> None:
    """Write a track for as many requests as were under way at once; each request has its wait and its tokens inside."""
    ends: list[float] = []
    events: list[dict[str, Any]] = []
    for exchange in sorted(exchanges, key=lambda exchange: exchange.at):
        track = next((index for index, end in enumerate(ends) if end <= exchange.at), len(ends))
        ends[track : track + 1] = [exchange.last]
        events += _events(exchange, track)
    path.write_bytes(msgspec.json.encode({"traceEvents": events}))


def _events(exchange: Exchange, track: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a request; times of Chrome traces are in microseconds."""
    about = {
        "request_id": exchange.id,
        "input_tokens": exchange.input_tokens,
        "output_tokens": exchange.output_tokens,
        "status": exchange.status,
        "error": exchange.error,
    }
    spans = [(exchange.id, exchange.at, exchange.last, about)]
    if exchange.first is not None:
        spans += [("first token", exchange.at, exchange.first, {}), ("tokens", exchange.first, exchange.last, {})]
    for name, begin, end, arguments in spans:
        yield {
            "ph": "X",
            "pid": "requests",
            "tid": track,
            "name": name,
            "ts": begin * _MICROSECONDS,
            "dur": (end - begin) * _MICROSECONDS,
            "args": arguments,
        }

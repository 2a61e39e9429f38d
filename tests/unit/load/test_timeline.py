"""The requests of a turn as a trace that our own readers open."""

from __future__ import annotations

from pathlib import Path

from perfgate import trace
from perfgate.conductor.load.record import Exchange
from perfgate.conductor.load.timeline import write_timeline


def exchange(number: int, at: float, last: float) -> Exchange:
    return Exchange(f"perfgate-1-{number}", at, at, at + 0.1, last, [at + 0.1, last], 8, 2, "a b", 200, "")


def test_timeline__requests_that_overlap__have_tracks_of_their_own_and_their_ids(tmp_path: Path) -> None:
    path = tmp_path / "chat.requests.json"
    write_timeline(path, [exchange(0, 0.0, 1.0), exchange(1, 0.5, 1.5), exchange(2, 1.0, 2.0)])
    (timeline,) = trace.read(path).timelines
    events = timeline.events
    named = {events.names[name]: (track, start) for name, track, start in zip(events.name, events.track, events.start)}
    assert len(events) == 9
    assert named["perfgate-1-0"][0] == named["perfgate-1-2"][0] != named["perfgate-1-1"][0]
    assert named["perfgate-1-1"][1] - named["perfgate-1-0"][1] == 500_000_000

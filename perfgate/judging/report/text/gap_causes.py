"""Why a device was idle, in words."""

from __future__ import annotations

from perfgate.judging.report.text.words import phrase

CAUSE_WORDS = {
    "host": phrase("the host launched the next work only after the gap began"),
    "synchronization": phrase("launched late because the host was waiting for the device"),
    "queue": phrase("launched before the gap but not started: a dependency, an event, or the device's scheduling"),
    "copy": phrase("only copies ran"),
    "communication": phrase("only collectives ran"),
    "unknown": phrase("no launch is recorded for the next work"),
}

"""Why a device was idle, in words."""

from __future__ import annotations

from perfgate.judging.report.text.words import phrase

CAUSE_WORDS = {
    "host": phrase("the host launched what came next only after the gap had begun"),
    "synchronization": phrase("so it was, and the host was waiting for the device when it ran dry"),
    "queue": phrase("launched before, not started: a dependency, an event, or the device's scheduling"),
    "copy": phrase("only copies ran"),
    "communication": phrase("only collectives ran"),
    "unknown": phrase("no launch is recorded for what came next"),
}

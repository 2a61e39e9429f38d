"""The small tables that are kept beside recordings of ranks."""

from __future__ import annotations

import json
import os
from contextvars import copy_context
from pathlib import Path

from perfgate.flows.trace.reducing import KEPT, kept_tables, reduce_recording
from perfgate.trace.model.communication import add_communication


def test_kept__recording_changed_or_other_patterns_of_communication__made_anew(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "mm", "pid": 0, "tid": 7, "ts": 2, "dur": 2, "args": {"device": 0}}
    recording = tmp_path / "rank0.pt.trace.json"
    recording.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [kernel]}))
    reduced = reduce_recording(recording, keeps=True)

    assert kept_tables(recording) == reduced
    assert (tmp_path / f"rank0.pt.trace.json{KEPT}").is_file()

    def kept_with_pattern() -> object:
        add_communication(["^mm$"])
        return kept_tables(recording)

    assert copy_context().run(kept_with_pattern) is None
    os.utime(recording, ns=(0, 0))
    assert kept_tables(recording) is None

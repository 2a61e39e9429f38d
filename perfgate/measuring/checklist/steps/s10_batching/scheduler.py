"""A server's work on the host between two batches: the share of a recording in its scheduler while no kernel runs."""

from __future__ import annotations

import re

from perfgate.trace.model.arithmetic import overlap_length, totals_by_name, union_length
from perfgate.trace.model.events import DEVICE_KINDS, EventTable

# vLLM's schedule and _prepare_inputs, SGLang's get_next_batch_to_run and recv_requests, and common names in home-made
# servers. A Python function is recorded as "file.py(12): name".
_SCHEDULING = re.compile(
    r"(^|[^a-z0-9])_?(select_batch|prepare_(model_)?inputs?(_\w+)?|get_(next|new)_batch\w*|recv_requests|schedule)(\(\))?$"
)


def scheduling(events: EventTable) -> tuple[str, float] | None:
    """The function of a scheduler that takes most time, and the share of the recording in which any does and no kernel runs.

    None if the recording has no such function.
    """
    on_host = ~events.is_kind(*DEVICE_KINDS, "device_annotation", "memory")
    own = events.select(on_host & events.is_named(_SCHEDULING.search))
    if not len(own):
        return None
    device = events.of_kind(*DEVICE_KINDS)
    exposed = union_length(own.intervals) - overlap_length(own.intervals, device.intervals)
    totals = totals_by_name(own.name, own.duration, len(own.names))
    length = int(events.end.max() - events.start.min())
    return own.names[int(totals.argmax())], exposed / length if length else 0.0

"""Steps of serving engines, which mark no profiler steps: repeated annotations, one for
each batch.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Literal, NamedTuple

import numpy as np

from perfgate.trace.model.events import MAX_NS, EventTable
from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.model.recording import ProfilerStep

Phase = Literal["prefill", "decode", "mixed"]

# Requests in prefill and in decode (vllm/v1/worker/gpu_worker.py, annotate_profile):
# execute_context_2(1024)_generation_5(5), and before that execute_new_2_cached_5; its
# cached requests may still be in prefill.
_VLLM = lazy_pattern(
    r"execute_(?:\w+_)?context_(\d+)\(.*?\)_generation_(\d+)\(.*?\)|execute_new_(\d+)_cached_(\d+)"
)
# step[EXTEND bs=15 toks=15360] (sglang/srt/utils/profile_utils.py,
# build_step_span_name); in speculative decoding also VERIFY.
_SGLANG = lazy_pattern(r"step\[(\w+) bs=(\d+).*\]")
_SGLANG_PHASES: dict[str, Phase] = {
    "EXTEND": "prefill",
    "DECODE": "decode",
    "MIXED": "mixed",
}
# prefill[bs=2 tok=16384], eager_decode[bs=64 tok=64 d=64] (ROCm/ATOM).
_ATOM = lazy_pattern(r"(?:\w+_)?(prefill|decode|mixed)\[bs=(\d+).*\]")
# One call of the model (vllm/v1/worker/gpu_model_runner.py), used if there is no other
# mark of a batch.
FORWARD = r"^(?:v2_)?gpu_model_runner: forward$"


class Batch(NamedTuple):
    """A batch that an engine ran: its time on the host, its phase in the engine's
    words, and its number of requests.
    """

    mark: ProfilerStep
    phase: str | None
    requests: int | None


class _Label(NamedTuple):
    """The phase and the requests in a mark's name, and the format it has: an engine may
    mark a batch in two.
    """

    phase: str | None
    requests: int | None
    format: Literal["given", "vllm", "sglang", "atom"]


def batches(events: EventTable, pattern: str | None = None) -> list[Batch]:
    """The annotations of an engine in time order, or those that match a pattern by name
    (its first group is the phase).

    Without a pattern, the annotations of vLLM, SGLang and ATOM are recognised; empty if
    there are none. A recording of the device alone has them on the device's timeline.
    """
    label = _label_of_engine if not pattern else partial(_label_by, re.compile(pattern))
    on_host = _batches(events.of_kind("annotation"), label, of_one_thread=True)
    return on_host or _batches(
        events.of_kind("device_annotation"), label, of_one_thread=False
    )


def _batches(
    marks: EventTable, label: Callable[[str], _Label | None], *, of_one_thread: bool
) -> list[Batch]:
    """The outermost labelled annotations in time order.

    Engines mark a batch twice on a thread of the host; on a device several streams have
    a copy of one mark.
    """
    labels = list(map(label, marks.names))
    chosen = np.flatnonzero(marks.is_named(label))
    order = np.lexsort((-marks.duration[chosen], marks.start[chosen]))
    last_ends: dict[int, int] = {}
    ends_by_format: dict[str, int] = {}
    rows: list[Batch] = []
    for row in chosen[order].tolist():
        own = labels[marks.name[row]]
        assert own is not None, "only labelled annotations were chosen"
        start = int(marks.start[row])
        end = start + int(marks.duration[row])
        place = int(marks.track[row]) if of_one_thread else 0
        inside = any(
            end <= last
            for format_of_mark, last in ends_by_format.items()
            if format_of_mark != own.format
        )
        if inside or start < last_ends.get(place, -MAX_NS):
            continue
        rows.append(Batch(ProfilerStep(len(rows), start, end), own.phase, own.requests))
        last_ends[place] = end
        ends_by_format[own.format] = end
    return rows


def _label_by(pattern: re.Pattern[str], name: str) -> _Label | None:
    match = pattern.search(name)
    if match is None:
        return None
    phase = match[1] if pattern.groups else None
    return _Label(phase, None, "given")


def _label_of_engine(name: str) -> _Label | None:
    if match := _VLLM.fullmatch(name):
        return _label_of_vllm(int(match[1] or match[3]), int(match[2] or match[4]))
    if match := _SGLANG.fullmatch(name):
        phase = _SGLANG_PHASES.get(match[1], match[1].lower())
        return _Label(phase, int(match[2]), "sglang")
    if match := _ATOM.fullmatch(name):
        return _Label(match[1], int(match[2]), "atom")
    return None


def _label_of_vllm(in_prefill: int, in_decode: int) -> _Label:
    phase: Phase = "decode"
    if in_prefill:
        phase = "mixed" if in_decode else "prefill"
    return _Label(phase, in_prefill + in_decode, "vllm")

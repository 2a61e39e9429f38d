"""Steps of serving engines, which mark no profiler steps: repeated annotations, one for each batch."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np

from perfgate.trace.model.events import EventTable
from perfgate.trace.model.steps import StepMark

Phase = Literal["prefill", "decode", "mixed"]

# execute_context_2(1024)_generation_5(5): requests in prefill and in decode (vllm/v1/worker/gpu_worker.py).
_VLLM = re.compile(r"execute_(?:\w+_)?context_(\d+)\(.*?\)_generation_(\d+)\(.*?\)")
# step[EXTEND bs=15 toks=15360] (sglang/srt/managers/scheduler_profiler_mixin.py).
_SGLANG = re.compile(r"step\[(\w+) bs=(\d+).*\]")
_SGLANG_PHASES: dict[str, Phase] = {"EXTEND": "prefill", "DECODE": "decode", "MIXED": "mixed"}


class Batch(NamedTuple):
    """A batch that an engine ran: its time on the host, its phase in the engine's words, and its number of requests."""

    mark: StepMark
    phase: str | None
    requests: int | None


_Label = tuple[str | None, int | None]


def batches(events: EventTable, pattern: str | None = None) -> list[Batch]:
    """The annotations of an engine in time order, or those that match a pattern by name (its first group is the phase).

    Without a pattern, the annotations of vLLM and SGLang are recognised; empty if there are none.
    """
    label = _labels(pattern) if pattern else _label_of_engine
    marks = events.of_kind("annotation")
    labels = [label(name) for name in marks.names]
    chosen = np.flatnonzero(np.array([one is not None for one in labels], dtype=bool)[marks.name])
    order = chosen[np.argsort(marks.start[chosen], kind="stable")].tolist()
    found = []
    for number, row in enumerate(order):
        phase, requests = labels[marks.name[row]] or (None, None)
        start = int(marks.start[row])
        found.append(Batch(StepMark(number, start, start + int(marks.duration[row])), phase, requests))
    return found


def _labels(pattern: str) -> Callable[[str], _Label | None]:
    searched = re.compile(pattern)

    def label(name: str) -> _Label | None:
        match = searched.search(name)
        if match is None:
            return None
        return (match[1] if searched.groups else None), None

    return label


def _label_of_engine(name: str) -> _Label | None:
    if match := _VLLM.fullmatch(name):
        reading, generating = int(match[1]), int(match[2])
        phase = "mixed" if reading and generating else "prefill" if reading else "decode"
        return phase, reading + generating
    if match := _SGLANG.fullmatch(name):
        return _SGLANG_PHASES.get(match[1], match[1].lower()), int(match[2])
    return None

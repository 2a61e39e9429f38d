"""Whether a recording shows graphs: kernels that carry a graph's number, and what the host launches, kernels or graphs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np

from perfgate.document.run import Value
from perfgate.measuring.checklist.steps._head_overhead import HeadSpans, head_times
from perfgate.trace.steps import step_marks, windows_of
from perfgate.trace.summary import DeviceSummary

# One kernel (Node@launch of CANN, cudaLaunchKernel, hipLaunchKernel …) or a whole graph at once.
_LAUNCHES: Mapping[str, re.Pattern[str]] = {
    "graph": re.compile(r"(cuda|hip)GraphLaunch|aclmdlRIExecute|Model@|ModelExecute"),
    "kernel": re.compile(r"Node@launch|(cuda|hip|cu)\w*LaunchKernel"),
}
_LEVEL_WITHOUT_MODELS = "Level0"


def graph_signs(summary: DeviceSummary, settings: Mapping[str, str], known: Sequence[HeadSpans]) -> list[Value]:
    """Return what one device and its host show; nothing for what was not recorded. ``known`` are names to look for."""
    labels = {"shape": summary.shape, "under": "profiler"}
    values = [
        Value(metric="graph.launches", value=count / summary.spans, labels={**labels, "kind": kind})
        for kind, count in sorted(_launches(summary).items())
    ]
    share = _replayed_share(summary, settings)
    if share is not None:
        values.append(Value(metric="graph.replayed_share", value=share, labels=labels))
    return [*values, *_head_values(summary, labels, known)]


def _launches(summary: DeviceSummary) -> Counter[str]:
    events = summary.timeline.events.of_kind("runtime")
    kinds = [next((kind for kind, known in _LAUNCHES.items() if known.search(name)), None) for name in events.names]
    return Counter(kind for code in events.name.tolist() if (kind := kinds[code]) is not None)


def _replayed_share(summary: DeviceSummary, settings: Mapping[str, str]) -> float | None:
    """Return the share of kernels that a graph ran; None where the profiler's table has no numbers of models."""
    kernels = [kernel for kernel in summary.timeline.kernels or () if not kernel.is_collective]
    if not kernels or settings.get("level") == _LEVEL_WITHOUT_MODELS:
        return None
    return sum(kernel.model_id is not None for kernel in kernels) / len(kernels)


def _head_values(summary: DeviceSummary, labels: dict[str, str], known: Sequence[HeadSpans]) -> list[Value]:
    """Return the parts of the head: from the begin of a step on, where the recording marks steps and each runs a graph.

    Else the parts are those from the compiler's entry on.
    """
    events = summary.timeline.events
    marks = step_marks(events)
    for names in known:
        entry_codes = [code for code, name in enumerate(events.names) if names.compiler in name]
        entries = events.select(np.isin(events.name, entry_codes))
        if not len(entries):
            continue
        of_steps = head_times(events, windows_of(marks), names) if marks else None
        times = of_steps or head_times(events, entries.intervals, names)
        if times is not None:
            parts = {"compiler": times.compiler, "graph": times.graph}
            if of_steps:
                parts = {"framework": times.framework, **parts}
            return [
                Value(metric="graph.head", value=ns / 1e9, labels={**labels, "part": part})
                for part, ns in parts.items()
            ]
    return []

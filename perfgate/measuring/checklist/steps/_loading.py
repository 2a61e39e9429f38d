"""What a recording tells of loading and preprocessing: the host's waits for batches, and the device's before its first task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from perfgate.document.run import Evidence, Finding, Value
from perfgate.measuring.checklist.limits import above
from perfgate.measuring.checklist.step import RecordingContext, StepOutcome, status_of
from perfgate.trace.analysis import Intervals, overlap_length, union_length
from perfgate.trace.recording import ProfilerStep, Timeline
from perfgate.trace.summary import DeviceSummary

# torch.utils.data.dataloader wraps each batch in a record function of this name:
# "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__" (torch 2.13, _BaseDataLoaderIter._profile_name).
_LOADING = "enumerate(DataLoader)#"
_NOTHING = (
    "the recording holds no span of a DataLoader, no Preparing column and no data_preprocess.csv, so it does not say what "
    "loading takes"
)
_NO_STEPS = "the recording does not say when its steps began and ended, so there is nothing to take a share of"


@dataclass
class _Found:
    values: list[Value] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)


def judge_loading(context: RecordingContext) -> StepOutcome:
    """Judge every rank or device; unavailable where the recording shows nothing of loading."""
    found = _Found()
    for summary in context.summaries:
        labels = {"shape": summary.shape, "under": "profiler"}
        _judge_spans(summary, labels, context.limits, found)
        _add(found, "preprocess.preparing_share", preparing_share(summary.timeline), labels)
        _add(found, "preprocess.aicpu_time", _aicpu_seconds(summary.timeline), labels)
    if not found.values:
        return StepOutcome(status="unavailable", reason=next(iter(found.missing), _NOTHING))
    return StepOutcome(status=status_of(found.findings), values=found.values, findings=found.findings)


def _judge_spans(summary: DeviceSummary, labels: dict[str, str], limits: Mapping[str, float], found: _Found) -> None:
    events = summary.timeline.events.of_kind("host_op", "annotation")
    marks = [code for code, name in enumerate(events.names) if name.startswith(_LOADING)]
    spans = events.select(np.isin(events.name, marks))
    if not len(spans):
        return
    windows = _windows(summary.timeline.steps or ())
    if windows is None:
        found.missing.append(_NO_STEPS)
        return
    waited, length = overlap_length(spans.intervals, windows), union_length(windows)
    share = waited / length
    found.values.append(
        Value(metric="preprocess.loading_share", value=share, count=int(windows.start.size), labels=labels)
    )
    evidence: dict[str, Evidence] = {
        "shape": summary.shape,
        "op": events.names[marks[0]],
        "a step [s]": waited / windows.start.size / 1e9,
    }
    found.findings += above("preprocess.loading_share", share, given=limits, evidence=evidence)


def _windows(steps: tuple[ProfilerStep, ...]) -> Intervals | None:
    """Return when the steps ran on the host; None where that is known of none of them."""
    known = [(step.start_ns, step.end_ns) for step in steps if step.start_ns is not None and step.end_ns is not None]
    if not known:
        return None
    table = np.array(known, dtype=np.int64)
    return Intervals(table[:, 0], table[:, 1])


def preparing_share(timeline: Timeline) -> float | None:
    """Return the share of the steps that passed before the device's first kernel; None where no step tells."""
    told = [(step.preparing_ns, step.length_ns) for step in timeline.steps or ()]
    known = [(preparing, length) for preparing, length in told if preparing is not None and length is not None]
    length = sum(length for _, length in known)
    return sum(preparing for preparing, _ in known) / length if length > 0 else None


def _aicpu_seconds(timeline: Timeline) -> float | None:
    nodes = [total.total_ns for total in timeline.calls or () if total.level == "aicpu"]
    return sum(nodes) / 1e9 if nodes else None


def _add(found: _Found, metric: str, value: float | None, labels: dict[str, str]) -> None:
    if value is not None:
        found.values.append(Value(metric=metric, value=value, labels=labels))

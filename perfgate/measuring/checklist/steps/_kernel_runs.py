"""Single runs of kernels and operators: those that take longer than they may, and those that were expected and never ran."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from perfgate.document.run import CallRow, Evidence, Finding, ShapeKernels, Value
from perfgate.document.tolerances import missing_kernels
from perfgate.measuring.checklist.limits import above, noticed
from perfgate.trace.analysis import IntColumn, self_times
from perfgate.trace.events import KIND_CODES, EventKind, EventTable

_RUNS: tuple[EventKind, ...] = ("host_op", "compute", "copy")
# More names than any model runs kernels; a recording may hold anything.
_MOST_NAMES = 5000


@dataclass
class KernelRuns:
    """What ran in the calls of one shape: every name, and of each operator the seconds of its longest single run."""

    shape: str
    names: set[str] = field(default_factory=set)
    longest: dict[str, float] = field(default_factory=dict)

    def add(self, events: EventTable, *, calls: int) -> None:
        """Add the events of so many calls.

        The longest run is that of a typical call. Time spent in other operators and in collectives, where a kernel mostly
        waits, does not count.
        """
        self.names |= {events.names[code] for code in np.unique(np.concatenate((events.name, events.group))).tolist()}
        runs = np.isin(events.kind, [KIND_CODES[kind] for kind in _RUNS])
        own, work = self_times(events.start, events.duration, events.track)[runs], events.select(runs)
        for group in np.unique(work.group).tolist():
            op, chosen = work.names[group], np.flatnonzero(work.group == group)
            order = chosen[np.argsort(work.start[chosen], kind="stable")]
            self.longest[op] = max(_longest(own[order], calls) / 1e9, self.longest.get(op, 0.0))

    def value(self) -> Value:
        """Return the seconds of the longest single run of all."""
        labels = {"shape": self.shape}
        if not self.longest:
            return Value(metric="ops.kernel_time", value=None, labels=labels, reason="the trace holds no operator")
        return Value(metric="ops.kernel_time", value=max(self.longest.values()), labels=labels)

    def kept(self) -> list[ShapeKernels]:
        """Return what the run document keeps; nothing where nothing ran."""
        if not self.names:
            return []
        names = sorted(self.names)
        return [
            ShapeKernels(
                shape=self.shape,
                names=names[:_MOST_NAMES],
                left_out=max(0, len(names) - _MOST_NAMES),
                longest=max(self.longest, key=self.longest.__getitem__, default=None),
            )
        ]


def judge_long_runs(runs: KernelRuns, *, lines: Mapping[str, str], limits: Mapping[str, float]) -> list[Finding]:
    """Return a finding for each operator of which one run takes longer than the limit; ``lines`` are where it is called."""
    findings: list[Finding] = []
    for op, seconds in runs.longest.items():
        evidence: dict[str, Evidence] = {"op": op, "shape": runs.shape}
        if op in lines:
            evidence["line"] = lines[op]
        findings += above("ops.kernel_time", seconds, given=limits, evidence=evidence)
    return findings


def judge_missing(patterns: Iterable[str], names: Collection[str]) -> list[Finding]:
    """Return a finding for each pattern that no name fits, with the names that come nearest to it."""
    return [
        noticed("ops.missing_kernel", "severe", {"kernel": missing.pattern, "nearest": missing.nearest})
        for missing in missing_kernels(patterns, names)
    ]


def heaviest_lines(rows: Iterable[CallRow]) -> dict[str, str]:
    """Return for each operator the line of its heaviest row; the rows come heaviest first."""
    lines: dict[str, str] = {}
    for row in rows:
        if row.line is not None:
            lines.setdefault(row.op, row.line)
    return lines


def _longest(times: IntColumn, calls: int) -> float:
    """Return the longest run of a typical call: each is the median of those at its place in the calls.

    Where the calls have different numbers of runs it is the longest of all.
    """
    typical = np.median(times.reshape(calls, -1), axis=0) if times.size % calls == 0 else times
    return float(typical.max())

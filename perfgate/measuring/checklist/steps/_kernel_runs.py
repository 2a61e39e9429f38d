"""Single runs of kernels and operators: those that take longer than they may, and those that were expected and never ran."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase

import numpy as np

from perfgate.document.run import CallRow, Evidence, Finding
from perfgate.measuring.checklist.limits import above, noticed
from perfgate.measuring.trace.analysis import IntColumn, self_times
from perfgate.measuring.trace.events import KIND_CODES, EventKind, EventTable

_RUNS: tuple[EventKind, ...] = ("host_op", "compute", "copy")
_NEAREST = 3
# Of difflib's similarities, from 0 to 1; below this names have little more than letters in common.
_SIMILAR = 0.4
# What a pattern and a name may differ in and still mean one kernel: FlashAttention* and flash_attention_score.
_WORD = re.compile(r"[^a-z0-9]")


def judge_long_runs(
    events: EventTable, *, calls: int, shape: str, lines: Mapping[str, str], limits: Mapping[str, float]
) -> list[Finding]:
    """Return a finding for each operator of which one run takes longer than the limit, in a typical one of so many calls.

    Time spent in other operators and in collectives, where a kernel mostly waits, does not count. ``lines`` are those that
    operators are called from, where that is known.
    """
    runs = np.isin(events.kind, [KIND_CODES[kind] for kind in _RUNS])
    own, work = self_times(events.start, events.duration, events.track)[runs], events.select(runs)
    findings: list[Finding] = []
    for group in np.unique(work.group).tolist():
        op, chosen = work.names[group], np.flatnonzero(work.group == group)
        order = chosen[np.argsort(work.start[chosen], kind="stable")]
        evidence: dict[str, Evidence] = {"op": op, "shape": shape}
        if op in lines:
            evidence["line"] = lines[op]
        findings += above("ops.kernel_time", _longest(own[order], calls) / 1e9, given=limits, evidence=evidence)
    return findings


def judge_missing(patterns: Iterable[str], names: Collection[str]) -> list[Finding]:
    """Return a finding for each pattern that no name fits, with the names that come nearest to it."""
    findings = []
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in names):
            nearest = ", ".join(_nearest(pattern, names)) or "none"
            findings.append(noticed("ops.missing_kernel", "severe", {"kernel": pattern, "nearest": nearest}))
    return findings


def names_of(events: EventTable) -> set[str]:
    """Return every name that a kernel goes by: its own, and its type where the profiler knows it."""
    return {events.names[code] for code in np.unique(np.concatenate((events.name, events.group))).tolist()}


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


def _nearest(pattern: str, names: Collection[str]) -> list[str]:
    wanted = _plain(pattern)
    containing = sorted(name for name in names if wanted and wanted in _plain(name))
    plain = {_plain(name): name for name in sorted(names, reverse=True)}
    similar = difflib.get_close_matches(wanted, list(plain), n=_NEAREST, cutoff=_SIMILAR)
    return list(dict.fromkeys([*containing, *(plain[word] for word in similar)]))[:_NEAREST]


def _plain(name: str) -> str:
    return _WORD.sub("", name.rpartition("::")[2].lower())

"""Count the Python that one call runs: functions called and bytecodes executed, by
function and line of the project.

The interpreter reports each of them (sys.settrace, ``frame.f_trace_opcodes``), so the
counts have no noise: a forward hook, a deep copy of a configuration or a log record is
visible on any busy machine. C functions are not counted.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

from perfgate.catalogue.names import BYTECODES, PYTHON_CALLS
from perfgate.document.job import CalledFunction
from perfgate.document.run import CounterSet
from perfgate.measuring.counting.counters import counter_sites, with_counts
from perfgate.measuring.counting.tally import Site, SourceLines, differing
from perfgate.measuring.workload.bound import BoundWorkload
from perfgate.system.folders import PACKAGE
from perfgate.system.garbage import quiet

# Of a call that executes more, only the functions are counted: each bytecode takes a
# microsecond or two under the tracer.
MOST_BYTECODES = 1_000_000
MAX_CALLERS = 8  # of a function
# After an uncounted call: CPython 3.12 and 3.13 only begin to report a function's
# bytecodes during its first run.
_REPEATS = 2
_OURS = str(PACKAGE) + "/"

_Tracer = Callable[[FrameType, str, Any], Any]


def with_python_work(workload: BoundWorkload, counted: CounterSet) -> CounterSet:
    """Add the Python work of a shape's calls to its counters, in their own thread, on
    one input.

    The counters stay unchanged if a call sets its own trace function, as a debugger
    does: the count would be incomplete.
    """
    inputs, root = workload.pool(counted.shape)[0], workload.root
    call = partial(workload.invoke, inputs)
    repeats: list[CountedPython] = []
    most = _REPEATS
    with quiet():
        count_python(call, root)
        while len(repeats) < most:
            run = count_python(call, root)
            if run is None:
                return counted
            repeats.append(run)
            if len(repeats) == _REPEATS and run.totals() != repeats[0].totals():
                most += 1  # the gate compares ranges of three calls
    last = repeats[-1]
    totals = last.totals()
    ranges = differing(run.totals() for run in repeats)
    amounts: Mapping[Site, tuple[int, int]] = {}
    # A run that became too long to count its bytecodes has none, which is not a
    # difference between lines.
    if all(run.totals().keys() == totals.keys() for run in repeats):
        amounts = differing(run.sites for run in repeats)
    counted = with_counts(
        counted,
        totals,
        {name: ends for name, ends in ranges.items() if name in totals},
        counter_sites(last.sites.items(), root, amounts),
    )
    by_metric = sorted(counted.sites, key=lambda site: site.metric)
    return msgspec.structs.replace(counted, sites=by_metric, functions=last.functions)


def last_line(code: CodeType) -> int:
    return max(
        (line for _, _, line in code.co_lines() if line), default=code.co_firstlineno
    )


def count_python(call: Callable[[], object], root: Path) -> CountedPython | None:
    """The Python work of a call in this thread; None if the call sets another trace
    function.

    A function counts on the line of the project that calls it, a bytecode on the line
    of the project that executes it. A bytecode of a library counts on the nearest line
    of the project up the stack, under the function that this line calls. Resuming a
    generator is a call. Bytecodes are left out beyond ``MOST_BYTECODES``.
    """
    counted = CountedPython(SourceLines(root))
    before = sys.gettrace()
    sys.settrace(counted.enter)
    try:
        call()
    finally:
        undisturbed = sys.gettrace() == counted.enter
        sys.settrace(before)
    return counted if undisturbed else None


class CountedPython:
    """The Python work of a call by site, and the project's functions with their
    callers, from the interpreter's reports.

    A trace function is quick: lines are looked up once a call, or at the end.
    """

    def __init__(self, lines: SourceLines) -> None:
        self._lines = lines
        self._calls: Counter[tuple[str, str | None]] = Counter()
        # Bytecodes of the project by code and offset; of others by function and the
        # line of the project around them.
        self._own: Counter[tuple[CodeType, int]] = Counter()
        self._others: Counter[tuple[str, str | None]] = Counter()
        self._tracers: dict[tuple[str, str | None], _Tracer] = {}
        # The callers of each function of the project.
        self._callers: dict[CodeType, Counter[str]] = {}
        self._executed = 0
        self._own_tracer: _Tracer = (
            self._trace_own
        )  # bound once, not for every bytecode

    def enter(self, frame: FrameType, _event: str, _argument: Any) -> _Tracer | None:
        """Count a call of a function, and return the tracer for its bytecodes."""
        code = frame.f_code
        if code.co_filename.startswith(_OURS):
            return None
        entry, caller = self._entry(frame)
        self._calls[code.co_name, caller] += 1
        is_own = self._lines.at(code.co_filename, 1) is not None
        if is_own:
            callers = self._callers.setdefault(code, Counter())
            if caller is not None:
                callers[caller] += 1
        if self._executed > MOST_BYTECODES:
            return None
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        if is_own:
            return self._own_tracer
        where = entry, caller
        if where not in self._tracers:

            def trace(frame: FrameType, event: str, _argument: Any) -> _Tracer:
                if event == "opcode":
                    self._others[where] += 1
                    self._add(frame)
                return trace

            self._tracers[where] = trace
        return self._tracers[where]

    @cached_property
    def sites(self) -> Counter[Site]:
        sites: Counter[Site] = Counter()
        for (name, line), count in self._calls.items():
            sites[Site(PYTHON_CALLS, name, line)] = count
        if self._executed > MOST_BYTECODES:
            return sites
        for (name, line), count in self._others.items():
            sites[Site(BYTECODES, name, line)] = count
        starts: dict[CodeType, dict[int, int | None]] = {}
        for (code, offset), count in self._own.items():
            if code not in starts:
                starts[code] = {}
                for first, last, number in code.co_lines():
                    starts[code].update(dict.fromkeys(range(first, last, 2), number))
            number = starts[code].get(offset) or code.co_firstlineno
            sites[
                Site(BYTECODES, code.co_name, self._lines.at(code.co_filename, number))
            ] += count
        return sites

    def totals(self) -> dict[str, int]:
        totals: Counter[str] = Counter()
        for site, count in self.sites.items():
            totals[site.metric] += count
        return dict(totals)

    @cached_property
    def functions(self) -> list[CalledFunction]:
        """The functions of the project that ran, in the order of their files and lines."""
        functions = []
        for code, callers in self._callers.items():
            file, _, _ = (self._lines.at(code.co_filename, 1) or "").rpartition(":")
            most_frequent = sorted(
                callers, key=lambda caller: (-callers[caller], caller)
            )
            function = CalledFunction(
                name=code.co_name,
                file=file,
                first=code.co_firstlineno,
                last=last_line(code),
                callers=most_frequent[:MAX_CALLERS],
            )
            functions.append(function)
        return sorted(
            functions,
            key=lambda function: (
                function.file,
                function.first,
                -function.last,
                function.name,
            ),
        )

    def _entry(self, frame: FrameType) -> tuple[str, str | None]:
        """The function of a library that the project called to come here, and the line
        from which it did.
        """
        entry, back = frame.f_code.co_name, frame.f_back
        while back is not None:
            line = self._lines.at(back.f_code.co_filename, back.f_lineno)
            if line is not None:
                return entry, line
            entry, back = back.f_code.co_name, back.f_back
        return frame.f_code.co_name, None

    def _trace_own(
        self, frame: FrameType, event: str, _argument: Any
    ) -> _Tracer | None:
        if event == "opcode":
            self._own[frame.f_code, frame.f_lasti] += 1
            self._add(frame)
        return self._own_tracer

    def _add(self, frame: FrameType) -> None:
        self._executed += 1
        if self._executed > MOST_BYTECODES:
            frame.f_trace_opcodes = False

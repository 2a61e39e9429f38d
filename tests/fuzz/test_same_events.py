"""The same events in two formats: both readers agree with decimal arithmetic on busy time and gaps."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from perfgate import trace
from perfgate.trace.analysis.gaps import device_gaps
from tests.fuzz.targets import scratch

# Microseconds since 1970, where a float is 250 ns wide.
ORIGIN = Decimal(1736408883704801)
_times = st.decimals(0, 500, places=3, allow_nan=False, allow_infinity=False)


class Span(NamedTuple):
    stream: int
    start: Decimal
    length: Decimal


_spans = st.lists(st.builds(Span, st.integers(1, 3), _times, _times), min_size=1, max_size=25)


def as_kineto(spans: list[Span]) -> str:
    events = [
        f'{{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": {span.stream}, "ts": {ORIGIN + span.start}, '
        f'"dur": {span.length}, "args": {{"device": 0, "stream": {span.stream}}}}}'
        for span in spans
    ]
    return '{"schemaVersion": 1, "traceEvents": [' + ",\n".join(events) + "]}"


def as_trace_view(spans: list[Span]) -> str:
    names = [
        {"name": "process_name", "pid": 9, "tid": 0, "ph": "M", "args": {"name": "Ascend Hardware"}},
        {"name": "process_labels", "pid": 9, "tid": 0, "ph": "M", "args": {"labels": "NPU 0"}},
    ]
    events = [
        f'{{"ph": "X", "name": "MatMul", "pid": 9, "tid": {span.stream}, "ts": "{ORIGIN + span.start}", "dur": {span.length}, '
        '"args": {"Task Type": "AI_CORE"}}'
        for span in spans
    ]
    return "[" + ",".join([*map(json.dumps, names), *events]) + "]"


def truth(spans: list[Span]) -> tuple[Decimal, list[tuple[Decimal, Decimal]]]:
    """Return busy microseconds, and the (start, length) of every gap, by decimal arithmetic, span after span."""
    busy, gaps, reach = Decimal(0), [], None
    for span in sorted((span for span in spans if span.length), key=lambda one: one.start):
        end = span.start + span.length
        if reach is not None and span.start > reach:
            gaps.append((ORIGIN + reach, span.start - reach))
        busy += max(Decimal(0), end - max(span.start, reach if reach is not None else span.start))
        reach = end if reach is None else max(reach, end)
    return busy, gaps


@given(_spans)
@settings(max_examples=120, deadline=None)
def test_gaps__same_events_in_two_formats__equal_to_decimal_arithmetic(spans: list[Span]) -> None:
    busy, gaps = truth(spans)
    with scratch() as name:
        for file, text in (("t.pt.trace.json", as_kineto(spans)), ("trace_view.json", as_trace_view(spans))):
            path = Path(name) / file
            path.write_text(text)
            (timeline,) = trace.read(path).timelines
            found = device_gaps(timeline.events)

            assert (found.busy_ns if found else 0) == int(busy * 1000)
            assert [(gap.start_ns, gap.duration_ns) for gap in (found.gaps if found else ())] == [
                (int(start * 1000), int(length * 1000)) for start, length in gaps
            ]

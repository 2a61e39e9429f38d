"""Our own: one JSON object a line with name, value, unit and better, in the file that
PERFGATE_METRICS names.
"""

from __future__ import annotations

from perfgate.conductor.results.result import Content, Results
from perfgate.job_settings import RATES, UNITS

READS = 'one JSON object a line: {"name": "step", "value": 0.012, "unit": "s", "better": "lower"}'


def recognises(content: Content) -> bool:
    lines = content.lines
    return bool(lines) and all(
        isinstance(line, dict) and {"name", "value"} <= line.keys() for line in lines
    )


def read(content: Content) -> Results:
    numbers = []
    for line in content.lines:
        unit = line.get("unit", "1")
        is_rate = unit in UNITS and UNITS[unit][0] in RATES
        better = line.get("better", "higher" if is_rate else "lower")
        if better not in ("lower", "higher"):
            raise content.refused(
                '{name}: better is {better!r}; write "lower" or "higher"',
                name=line["name"],
                better=better,
            )
        numbers.append(content.number(str(line["name"]), line["value"], unit, better))
    return Results(numbers, {})

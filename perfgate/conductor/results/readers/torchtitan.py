"""The log of torchtitan: lines such as
``step: 10 loss: 7.1 memory: 27.3GiB(34%) tps: 5,762 tflops: 299.1``.

Made from lines that its own MetricsProcessor printed; a whole training was not run.
"""

from __future__ import annotations

import math
import re
from statistics import median

from perfgate.conductor.results.result import Content, Results

READS = "the log of torchtitan"
_COLOURS = re.compile(r"\x1b\[[\d;]*m")
# Lines of a validation have no gradient norm, begin "validate step: 10" and count other
# tokens.
_LINE = re.compile(
    r"(?<!validate )step: +(\d+) .*?memory: +([\d.]+)GiB.*?tps: +([\d,]+)"
)
# The first steps warm up.
_WARM_UP = 2
FEWEST = 8


def recognises(content: Content) -> bool:
    return _LINE.search(_COLOURS.sub("", content.text)) is not None


def read(content: Content) -> Results:
    memory: dict[int, float] = {}
    rates: dict[int, float] = {}
    for number, gibibytes, rate in _LINE.findall(_COLOURS.sub("", content.text)):
        step = int(number)
        # Several ranks may write a line each, in any order.
        memory[step] = max(float(gibibytes), memory.get(step, 0.0))
        rates[step] = min(float(rate.replace(",", "")), rates.get(step, math.inf))
    steps = sorted(rates)
    warm_steps = steps[_WARM_UP:]
    if len(warm_steps) < FEWEST:
        raise content.refused(
            "it has {count} steps after the warm-up; at least {fewest} are needed",
            count=len(warm_steps),
            fewest=FEWEST,
        )
    warm_rates = [rates[step] for step in warm_steps]
    numbers = [
        content.number("tps", median(warm_rates), "tokens/s", "higher", warm_rates),
        content.number(
            "memory", max(memory[step] for step in warm_steps), "GiB", "lower"
        ),
    ]
    return Results(numbers, {"steps": len(steps)})

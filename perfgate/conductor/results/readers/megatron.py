"""The log of Megatron and MindSpeed:
``iteration 12/ 100 | ... | elapsed time per iteration (ms): 283.9 | ...``.

Some forks write ``283.9/281.2``, of which the first is the interval's own and the
second the mean so far. Made from the source of ``training_log`` (Megatron-LM,
megatron/training/training.py) and lines in public logs; its training was not run.
"""

from __future__ import annotations

import re
from statistics import median

from perfgate.conductor.results.result import Content, Results

READS = "the log of Megatron or MindSpeed"
_LINE = re.compile(r"iteration +(\d+)/ *\d+ \|[^\n]*")
_TIME = re.compile(r"elapsed time per iteration \(ms\): ([\d.]+)")
_RATE = re.compile(r"throughput per GPU \(TFLOP/s/GPU\): ([\d.]+)")
_NAN = re.compile(r"number of (nan) iterations: +(\d+)")
# A loss scale of fp16 that is found by halving skips the first iterations of a healthy
# training.
_SKIPPED = re.compile(r"number of (skipped) iterations: +(\d+)")
_WARM_UP = 2
FEWEST = 8


def recognises(content: Content) -> bool:
    line = _LINE.search(content.text)
    return line is not None and _TIME.search(line[0]) is not None


def read(content: Content) -> Results:
    lines = [match[0] for match in _LINE.finditer(content.text)]
    warm_lines = lines[_WARM_UP:]
    for pattern, checked_lines in ((_NAN, lines), (_SKIPPED, warm_lines)):
        for line in checked_lines:
            for fault, count in pattern.findall(line):
                if int(count):
                    raise content.refused(
                        "{count} {what} iterations: {line}",
                        count=count,
                        what=fault,
                        line=line[:80],
                    )
    if len(warm_lines) < FEWEST:
        raise content.refused(
            "it has {count} lines after the warm-up; at least {fewest} are needed",
            count=len(warm_lines),
            fewest=FEWEST,
        )
    log = "\n".join(warm_lines)
    times = list(map(float, _TIME.findall(log)))
    numbers = [content.number("iteration", median(times), "ms", "lower", times)]
    if rates := list(map(float, _RATE.findall(log))):
        numbers.append(content.number("tflops", median(rates), "1", "higher", rates))
    return Results(numbers, {"iterations": len(lines)})

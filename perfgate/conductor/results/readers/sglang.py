"""The output of ``python -m sglang.bench_serving --output-file``: one JSON object
appended per run; times in milliseconds.

It lists failed requests only with ``--output-details``; without it they are missing
from ``completed``, which must be equal on both sides.
"""

from __future__ import annotations

import re

from perfgate.conductor.results.result import Content, Results

READS = "sglang.bench_serving --output-file, with one run in it"
_TIME = re.compile(r"(mean|median|p\d+)_(e2e_latency|ttft|tpot|itl)_ms")
_RATES = {
    "request_throughput": "items/s",
    "input_throughput": "tokens/s",
    "output_throughput": "tokens/s",
}


def recognises(content: Content) -> bool:
    lines = content.lines
    return bool(lines) and all(
        isinstance(line, dict)
        and {"backend", "completed", "output_throughput"} <= line.keys()
        and "tokenizer_id" not in line
        for line in lines
    )


def read(content: Content) -> Results:
    if len(content.lines) != 1:
        raise content.refused(
            "it holds {count} runs; let the program write to a new file, or remove it before",
            count=len(content.lines),
        )
    result = content.lines[0]
    if errors := [error for error in result.get("errors", []) if error]:
        raise content.refused(
            "{count} requests failed: {error}",
            count=len(errors),
            error=str(errors[0])[:200],
        )
    results = content.served(result, _RATES)
    times = [
        content.number(key[:-3], value, "ms", "lower")
        for key, value in result.items()
        if _TIME.fullmatch(key)
    ]
    return results._replace(numbers=[*results.numbers, *times])

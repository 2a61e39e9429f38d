"""The output of ``vllm bench serve --save-result`` (vllm/benchmarks/serve.py): one JSON
object; times in milliseconds.
"""

from __future__ import annotations

import re

from perfgate.conductor.results.result import Better, Content, ResultNumber, Results

READS = "vllm bench serve --save-result"
_TIME = re.compile(r"(mean|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el)_ms")
_RATES = {
    "request_throughput": "items/s",
    "output_throughput": "tokens/s",
    "total_token_throughput": "tokens/s",
}
# Seconds, with --save-detailed.
_RAW = {"ttft": "ttfts", "e2el": "latencies"}


def recognises(content: Content) -> bool:
    keys = {"completed", "request_throughput", "backend", "tokenizer_id"}
    return bool(content.lines) and all(
        isinstance(line, dict) and keys <= line.keys() for line in content.lines
    )


def read(content: Content) -> Results:
    if len(content.lines) != 1:
        raise content.refused(
            "it holds {count} runs; leave out --append-result, or remove it before a run",
            count=len(content.lines),
        )
    (result,) = content.lines
    results = content.served(result, _RATES)
    return results._replace(numbers=[*results.numbers, *times(content, result)])


def times(content: Content, result: dict[str, object]) -> list[ResultNumber]:
    """The quantiles that were asked for (``--metric-percentiles``), in seconds."""
    better: Better = "lower"
    numbers = []
    for key, value in result.items():
        if match := _TIME.fullmatch(key):
            number = content.number(key.removesuffix("_ms"), value, "ms", better)
            raw = result.get(_RAW.get(match[2], ""))
            if match[1] == "median" and isinstance(raw, list):
                number = number._replace(
                    samples=tuple(content.checked(key, seconds) for seconds in raw)
                )
            numbers.append(number)
    return numbers

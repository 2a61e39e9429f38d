"""The benchmarks.json of GuideLLM, version 2; a file of several benchmarks names each
by its strategy: ``concurrent@2.``.
"""

from __future__ import annotations

from typing import Any

from perfgate.conductor.results.result import Content, Results

READS = "GuideLLM benchmarks.json, metadata.version 2"
_TIMES = {
    "time_to_first_token_ms": "ms",
    "time_per_output_token_ms": "ms",
    "inter_token_latency_ms": "ms",
    "request_latency": "s",
}
# Their quantiles are over moments, so an idle moment or a burst decides them.
_RATES = {"requests_per_second": "items/s", "output_tokens_per_second": "tokens/s"}
_WORK = {"input_tokens": "prompt_token_count", "output_tokens": "output_token_count"}


def recognises(content: Content) -> bool:
    return (
        content.has("metadata", "benchmarks")
        and "guidellm_version" in content.document["metadata"]
    )


def read(content: Content) -> Results:
    version = content.document["metadata"].get("version")
    if version != 2:
        raise content.refused(
            "metadata.version is {version!r}; only 2 is supported", version=version
        )
    numbers = []
    work = dict.fromkeys(("requests", *_WORK), 0)
    benchmarks = content.document["benchmarks"]
    for benchmark in benchmarks:
        metrics = benchmark["metrics"]
        totals = metrics["request_totals"]
        content.none_failed(totals.get("errored", 0) + totals.get("incomplete", 0))
        work["requests"] += int(totals["successful"])
        for name, key in _WORK.items():
            work[name] += int(metrics[key]["successful"]["total_sum"])
        prefix = (
            ""
            if len(benchmarks) == 1
            else f"{_strategy(benchmark['config']['strategy'])}."
        )
        for key, unit in _TIMES.items():
            # Null for answers that were not streamed.
            if statistics := (metrics.get(key) or {}).get("successful"):
                name = prefix + key.removesuffix("_ms")
                numbers.append(
                    content.number(name, statistics["median"], unit, "lower")
                )
                numbers.append(
                    content.number(
                        f"{name}.p99", statistics["percentiles"]["p99"], unit, "lower"
                    )
                )
        for key, unit in _RATES.items():
            numbers.append(
                content.number(
                    prefix + key, metrics[key]["successful"]["mean"], unit, "higher"
                )
            )
    return Results(numbers, work)


def _strategy(strategy: dict[str, Any]) -> str:
    """As GuideLLM prints it.

    The rates of a sweep are found while it runs, so two sweeps have other names.
    """
    level = strategy.get("streams") or strategy.get("rate")
    return f"{strategy['type_']}@{level:g}" if level else str(strategy["type_"])

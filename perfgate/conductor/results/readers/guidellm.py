"""The benchmarks.json of GuideLLM, version 2; a sweep holds several, which are matched by their profile."""

from __future__ import annotations

from perfgate.conductor.results.result import Better, Content, Results

READS = "GuideLLM benchmarks.json, metadata.version 2"
_METRICS: dict[str, tuple[str, Better]] = {
    "time_to_first_token_ms": ("ms", "lower"),
    "time_per_output_token_ms": ("ms", "lower"),
    "inter_token_latency_ms": ("ms", "lower"),
    "request_latency": ("s", "lower"),
    "requests_per_second": ("items/s", "higher"),
    "output_tokens_per_second": ("tokens/s", "higher"),
}


def recognises(content: Content) -> bool:
    return content.has("metadata", "benchmarks") and "guidellm_version" in content.document["metadata"]


def read(content: Content) -> Results:
    version = content.document["metadata"].get("version")
    if version != 2:
        raise content.refused(f"metadata.version is {version!r}, and only 2 is known")
    numbers, requests = [], 0
    benchmarks = content.document["benchmarks"]
    for benchmark in benchmarks:
        totals = benchmark["metrics"]["request_totals"]
        content.none_failed(totals.get("errored", 0) + totals.get("incomplete", 0))
        requests += int(totals["successful"])
        profile = benchmark["config"]["profile"]
        prefix = "" if len(benchmarks) == 1 else f"{profile if isinstance(profile, str) else profile.get('type_')}."
        for name, (unit, better) in _METRICS.items():
            if statistics := benchmark["metrics"].get(name, {}).get("successful"):
                plain = prefix + name.removesuffix("_ms")
                numbers.append(content.number(plain, statistics["median"], unit, better))
                numbers.append(content.number(f"{plain}.p99", statistics["percentiles"]["p99"], unit, better))
    return Results(numbers, {"requests": requests})

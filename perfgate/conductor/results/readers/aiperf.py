"""The profile_export_aiperf.json of AIPerf, schema 1, and the profile_export_genai_perf.json
of its predecessor genai-perf: every metric names its unit.
"""

from __future__ import annotations

from typing import Any

from perfgate.conductor.results.result import Better, Content, Results

READS = "AIPerf profile_export_aiperf.json, schema 1, or genai-perf profile_export_genai_perf.json"
_METRICS: dict[str, Better] = {
    "request_throughput": "higher",
    "output_token_throughput": "higher",
    "time_to_first_token": "lower",
    "inter_token_latency": "lower",
    "request_latency": "lower",
}
_UNITS = {"requests/sec": "items/s", "tokens/sec": "tokens/s", "sec": "s"}
_VERSION, _REQUESTS = "schema_version", "request_count"
_TOKENS = {"input_tokens": "total_isl", "output_tokens": "total_osl"}
# genai-perf has the means of all requests alone.
_MEAN_TOKENS = {
    "input_tokens": "input_sequence_length",
    "output_tokens": "output_sequence_length",
}


def recognises(content: Content) -> bool:
    is_export = content.has(_VERSION) or content.has("input_config", _REQUESTS)
    return (
        is_export
        and content.has("request_throughput")
        and isinstance(content.document["request_throughput"], dict)
    )


def read(content: Content) -> Results:
    result = content.document
    version = str(result.get(_VERSION, "1"))
    if version.partition(".")[0] != "1":
        raise content.refused(
            "schema_version is {version}; only 1 is supported", version=version
        )
    # AIPerf before 0.13 wrote no "is_complete".
    if not result.get("is_complete", True) or result.get("was_cancelled"):
        raise content.refused("the run is incomplete")
    content.none_failed((result.get("error_request_count") or {}).get("avg", 0))
    numbers = []
    for name, better in _METRICS.items():
        if entry := result.get(name):
            unit = _UNITS.get(entry["unit"], entry["unit"])
            quantiles = [("", "p50" if "p50" in entry else "avg"), (".p99", "p99")]
            numbers += [
                content.number(name + end, entry[key], unit, better)
                for end, key in quantiles
                if key in entry
            ]
    return Results(numbers, _work(result))


def _work(result: dict[str, Any]) -> dict[str, int]:
    work = {}
    if requests := result.get(_REQUESTS):
        work["requests"] = int(requests["avg"])
    for name, key in _TOKENS.items():
        if total := result.get(key):
            work[name] = int(total["avg"])
    if _VERSION not in result:
        for name, key in _MEAN_TOKENS.items():
            if mean := result.get(key):
                work[name] = round(mean["avg"] * work["requests"])
    return work

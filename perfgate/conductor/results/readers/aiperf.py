"""The profile_export_aiperf.json of AIPerf, schema 1: every metric names its unit."""

from __future__ import annotations

from perfgate.conductor.results.result import Better, Content, Results

READS = "AIPerf profile_export_aiperf.json, schema 1"
_METRICS: dict[str, Better] = {
    "request_throughput": "higher",
    "output_token_throughput": "higher",
    "time_to_first_token": "lower",
    "inter_token_latency": "lower",
    "request_latency": "lower",
}
_UNITS = {"requests/sec": "items/s", "tokens/sec": "tokens/s", "sec": "s"}


def recognises(content: Content) -> bool:
    return content.has("schema_version", "request_throughput") and isinstance(
        content.document["request_throughput"], dict
    )


def read(content: Content) -> Results:
    result = content.document
    version = str(result["schema_version"])
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
    counts = {
        "requests": "request_count",
        "input_tokens": "total_isl",
        "output_tokens": "total_osl",
    }
    return Results(
        numbers,
        {
            name: int(result[key]["avg"])
            for name, key in counts.items()
            if result.get(key)
        },
    )

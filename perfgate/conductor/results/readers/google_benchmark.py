"""The output of Google Benchmark's ``--benchmark_out``: the iterations; with
``--benchmark_report_aggregates_only`` their medians, which are all that it has.

Schema 1 names itself since version 1.8; before that it had the same members.
``library_build_type`` is about the library alone: Debian's is a debug build, with which
release builds of benchmarks are linked.
"""

from __future__ import annotations

from statistics import median

from perfgate.conductor.results.result import Content, Results

READS = "Google Benchmark --benchmark_out, json_schema_version 1 or none"


def recognises(content: Content) -> bool:
    if not content.has("context", "benchmarks") or not isinstance(
        content.document["context"], dict
    ):
        return False
    return bool(
        {"json_schema_version", "library_build_type", "num_cpus"}
        & content.document["context"].keys()
    )


def read(content: Content) -> Results:
    version = content.document["context"].get("json_schema_version", 1)
    if version != 1:
        raise content.refused(
            "json_schema_version is {version}; only 1 is supported", version=version
        )
    runs: dict[str, list[float]] = {}
    medians: dict[str, float] = {}
    units = {}
    for entry in content.document["benchmarks"]:
        name = str(entry.get("run_name", entry["name"]))
        if entry.get("error_occurred"):
            raise content.refused(
                "{name} failed: {error}",
                name=name,
                error=entry.get("error_message", "no reason given"),
            )
        if entry.get("skipped"):
            continue  # the count of the others must be equal on both sides
        if entry.get("run_type", "iteration") == "iteration":
            runs.setdefault(name, []).append(content.checked(name, entry["real_time"]))
            units[name] = entry["time_unit"]
        elif entry.get("aggregate_name") == "median":
            medians[name] = content.checked(name, entry["real_time"])
            units[name] = entry["time_unit"]
    numbers = []
    for name, unit in units.items():
        times = runs.get(name, [])
        value = median(times) if times else medians[name]
        numbers.append(content.number(name, value, unit, "lower", times))
    return Results(numbers, {"benchmarks": len(numbers)})

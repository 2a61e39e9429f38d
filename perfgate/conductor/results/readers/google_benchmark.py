"""The output of Google Benchmark's ``--benchmark_out``, schema 1: the iterations, without its aggregates."""

from __future__ import annotations

from statistics import median

from perfgate.conductor.results.result import Content, Results

READS = "Google Benchmark --benchmark_out, json_schema_version 1"


def recognises(content: Content) -> bool:
    return content.has("context", "benchmarks") and "json_schema_version" in content.document["context"]


def read(content: Content) -> Results:
    context = content.document["context"]
    if context["json_schema_version"] != 1:
        raise content.refused(
            "json_schema_version is {version}; only 1 is supported", version=context["json_schema_version"]
        )
    if context.get("library_build_type") == "debug":
        raise content.refused("the library is a debug build; measure a release build")
    runs: dict[str, list[float]] = {}
    units: dict[str, str] = {}
    for entry in content.document["benchmarks"]:
        name = str(entry["run_name"])
        if entry.get("error_occurred"):
            raise content.refused(
                "{name} failed: {error}", name=name, error=entry.get("error_message", "no reason given")
            )
        if entry.get("run_type", "iteration") == "iteration":
            runs.setdefault(name, []).append(content.checked(name, entry["real_time"]))
            units[name] = entry["time_unit"]
    numbers = [content.number(name, median(times), units[name], "lower", times) for name, times in runs.items()]
    return Results(numbers, {"benchmarks": len(numbers)})

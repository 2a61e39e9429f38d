"""The output of ``pyperf`` benchmarks with ``-o``: values of every run, in seconds or
bytes, of one benchmark or several.
"""

from __future__ import annotations

from statistics import median

from perfgate.conductor.results.result import Content, Results

READS = "pyperf -o, version 1"
_UNITS = {"second": "s", "byte": "B", "integer": "1"}


def recognises(content: Content) -> bool:
    if not content.has("benchmarks", "version"):
        return False
    benchmarks = content.document["benchmarks"]
    return (
        isinstance(benchmarks, list)
        and bool(benchmarks)
        and all("runs" in benchmark for benchmark in benchmarks)
    )


def read(content: Content) -> Results:
    version = str(content.document["version"])
    if not version.startswith("1."):
        raise content.refused(
            "version {version} of pyperf's format is not supported", version=version
        )
    numbers = []
    for benchmark in content.document["benchmarks"]:
        # Metadata common to all benchmarks and runs is stored once, at the top.
        metadata = {
            **content.document.get("metadata", {}),
            **benchmark.get("metadata", {}),
        }
        name = str(metadata.get("name", "benchmark"))
        unit = metadata.get("unit", "second")
        if unit not in _UNITS:
            raise content.refused(
                "{name} has the unknown unit {unit!r}", name=name, unit=unit
            )
        values = []
        for run in benchmark["runs"]:
            values += run.get("values", ())  # a run that only calibrates has none
        if not values:
            raise content.refused(
                "{name} has no values; let pyperf measure, not only calibrate",
                name=name,
            )
        numbers.append(
            content.number(name, median(values), _UNITS[unit], "lower", values)
        )
    return Results(numbers, {"benchmarks": len(numbers)})

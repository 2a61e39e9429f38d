"""The output of ``pytest --benchmark-json``, version 5 of pytest-benchmark: seconds."""

from __future__ import annotations

from perfgate.conductor.results.result import Content, Results

READS = "pytest-benchmark --benchmark-json"
# A mean of fewer rounds is luck.
FEWEST_ROUNDS = 5


def recognises(content: Content) -> bool:
    return content.has("benchmarks", "machine_info", "version")


def read(content: Content) -> Results:
    version = str(content.document["version"])
    if not version.startswith(("3.", "4.", "5.")):
        raise content.refused(
            "version {version} of pytest-benchmark is not supported", version=version
        )
    numbers = []
    for benchmark in content.document["benchmarks"]:
        statistics, name = benchmark["stats"], str(benchmark["fullname"])
        if benchmark.get("has_error"):
            raise content.refused("{name} failed; see the program's output", name=name)
        if statistics["rounds"] < FEWEST_ROUNDS:
            raise content.refused(
                "{name} has {rounds} rounds; at least {fewest} are needed",
                name=name,
                rounds=statistics["rounds"],
                fewest=FEWEST_ROUNDS,
            )
        numbers.append(
            content.number(
                name, statistics["median"], "s", "lower", statistics.get("data") or ()
            )
        )
    return Results(numbers, {"benchmarks": len(numbers)})

"""The output of ``hyperfine --export-json``: seconds of every run."""

from __future__ import annotations

from perfgate.conductor.results.result import Content, Results

READS = "hyperfine --export-json"


def recognises(content: Content) -> bool:
    if not content.has("results"):
        return False
    results = content.document["results"]
    return (
        isinstance(results, list)
        and bool(results)
        and all({"command", "times"} <= set(run) for run in results)
    )


def read(content: Content) -> Results:
    numbers = []
    for result in content.document["results"]:
        name = str(result["command"])
        if any(code != 0 for code in result.get("exit_codes", [])):
            raise content.refused(
                "a run of `{name}` ended with a non-zero exit code", name=name
            )
        numbers.append(
            content.number(name, result["median"], "s", "lower", result["times"])
        )
    return Results(numbers, {"commands": len(numbers)})

"""The result of a commit and environment that asv wrote (results/MACHINE/COMMIT-ENV.json), version 2: seconds or bytes."""

from __future__ import annotations

from itertools import product

from perfgate.conductor.results.result import Content, Results

READS = "asv results/MACHINE/COMMIT-ENV.json, version 2"


def recognises(content: Content) -> bool:
    return content.has("results", "result_columns", "commit_hash")


def read(content: Content) -> Results:
    if content.document.get("version") != 2:
        raise content.refused(f"version {content.document.get('version')!r} of asv's results is not known")
    columns = content.document["result_columns"]
    numbers = []
    for name, row in content.document["results"].items():
        entry = dict(zip(columns, row))
        values = entry["result"]
        cases = list(product(*(entry.get("params") or [])))
        if values is None:
            raise content.refused(f"{name} failed: it has no result")
        for value, case in zip(values, cases or [()]):
            label = f"{name}({', '.join(map(str, case))})" if case else name
            if value is None:
                raise content.refused(f"{label} failed: its result is null")
            kind = name.rpartition(".")[2].partition("_")[0]
            numbers.append(content.number(label, value, "B" if kind in ("mem", "peakmem") else "s", "lower"))
    return Results(numbers, {"benchmarks": len(numbers)})

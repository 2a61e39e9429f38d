"""The JSON of AISBench's performances folder: texts with units, for the stages total and stable (ais_bench calculators)."""

from __future__ import annotations

import re

from perfgate.conductor.results.result import Better, Content, Results

READS = "AISBench performances/MODEL/DATASET.json"
_VALUE = re.compile(r"([\d.]+) ?(token/s|req/s|ms|s|us)?")
_UNITS = {"token/s": "tokens/s", "req/s": "items/s", None: "1"}
_STAGE = "total"


def recognises(content: Content) -> bool:
    return content.has("Benchmark Duration", "Output Token Throughput")


def read(content: Content) -> Results:
    counts = {name: _text(content, name) for name in ("Failed Requests", "Success Requests", "Total Requests")}
    content.none_failed(float(counts["Failed Requests"] or 0))
    numbers = []
    for name, entry in content.document.items():
        match = _VALUE.fullmatch(str(entry.get(_STAGE))) if isinstance(entry, dict) else None
        if match and match[2] and name != "Benchmark Duration":
            better: Better = "higher" if match[2].endswith("/s") else "lower"
            plain = re.sub(r"\W+", "_", name.lower()).strip("_")
            numbers.append(content.number(plain, float(match[1]), _UNITS.get(match[2], match[2]), better))
    requests = counts["Success Requests"] or counts["Total Requests"]
    return Results(numbers, {"requests": int(float(requests))} if requests else {})


def _text(content: Content, name: str) -> str:
    entry = content.document.get(name)
    found = _VALUE.fullmatch(str(entry.get(_STAGE))) if isinstance(entry, dict) else None
    return found[1] if found else ""

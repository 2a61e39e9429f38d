"""The benchmark_summary.json of ``evalscope perf``: keys with their units (evalscope.perf.utils.perf_constants)."""

from __future__ import annotations

import re

from perfgate.conductor.results.result import Better, Content, Results

READS = "evalscope perf benchmark_summary.json"
_KEY = re.compile(r"(.+) \((tok/s|req/s|ms|s)\)")
_UNITS = {"tok/s": "tokens/s", "req/s": "items/s"}


def recognises(content: Content) -> bool:
    names = {name.lower() for name in content.document} if isinstance(content.document, dict) else set()
    # AISBench has both, and says in which stages.
    return {"failed requests", "total requests"} <= names and "benchmark duration" not in names


def read(content: Content) -> Results:
    result = {key.lower(): value for key, value in content.document.items()}
    content.none_failed(result["failed requests"])
    numbers = []
    for key, value in content.document.items():
        # How long the test took is no number of the server.
        if (match := _KEY.fullmatch(key)) and value is not None and "test duration" not in key.lower():
            better: Better = "higher" if match[2].endswith("/s") else "lower"
            name = re.sub(r"\W+", "_", match[1].lower()).strip("_")
            numbers.append(content.number(name, value, _UNITS.get(match[2], match[2]), better))
    return Results(numbers, {"requests": int(result["total requests"])})

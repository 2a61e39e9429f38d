"""The benchmark_summary.json of ``evalscope perf``: keys with their units, of which the
times are means.
"""

from __future__ import annotations

import re

from perfgate.conductor.results.result import Better, Content, Results

READS = "evalscope perf benchmark_summary.json"
_KEY = re.compile(r"(.+) \((tok/s|req/s|ms|s)\)")
_UNITS = {"tok/s": "tokens/s", "req/s": "items/s"}
# How long the test took, and the rate that was asked for (-1: none), do not describe
# the server.
_NO_MEASUREMENTS = ("test duration", "time taken for tests", "request rate")
# The second is the spelling before version 1.7.
_MEAN_TOKENS = {
    "input_tokens": ("avg input tokens", "average input tokens per request"),
    "output_tokens": ("avg output tokens", "average output tokens per request"),
}


def recognises(content: Content) -> bool:
    if not isinstance(content.document, dict):
        return False
    names = set(map(str.lower, content.document))
    # AISBench has both, with its stages.
    return {
        "failed requests",
        "total requests",
    } <= names and "benchmark duration" not in names


def read(content: Content) -> Results:
    result = {key.lower(): value for key, value in content.document.items()}
    content.none_failed(result["failed requests"])
    succeeded = result.get("succeed requests", result.get("successful requests"))
    if succeeded is not None:
        content.none_failed(max(result["total requests"] - succeeded, 0))
    numbers = []
    for key, value in result.items():
        match = _KEY.fullmatch(key)
        # 0: it was not measured, such as the time to the first token of answers that
        # were not streamed.
        if match and match[1] not in _NO_MEASUREMENTS and value:
            better: Better = "higher" if match[2].endswith("/s") else "lower"
            name = re.sub(r"\W+", "_", match[1]).strip("_")
            numbers.append(
                content.number(name, value, _UNITS.get(match[2], match[2]), better)
            )
    requests = int(result["total requests"])
    tokens = {}
    for name, spellings in _MEAN_TOKENS.items():
        for key in spellings:
            if result.get(key):
                tokens[name] = round(result[key] * requests)
    return Results(numbers, {"requests": requests, **tokens})

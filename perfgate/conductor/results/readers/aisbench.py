"""The JSON of AISBench's performances folder, texts with units for the stages total and
stable, and the CSV next to it.

The JSON has the rates, the CSV of the same name the times: "84.5 ms".
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from perfgate.conductor.results.result import Better, Content, ResultNumber, Results

READS = "AISBench performances/MODEL/DATASET.json"
_VALUE = re.compile(r"([\d.]+) ?(token/s|req/s|ms|s|us)?")
_UNITS = {"token/s": "tokens/s", "req/s": "items/s", None: "1"}
_STAGE = "total"
_TIMES = ("E2EL", "TTFT", "TPOT", "ITL")
_WORK = {
    "requests": "Success Requests",
    "input_tokens": "Total Input Tokens",
    "output_tokens": "Total Generated Tokens",
}


def recognises(content: Content) -> bool:
    return content.has("Benchmark Duration", "Output Token Throughput")


def read(content: Content) -> Results:
    content.none_failed(float(_text(content, "Failed Requests") or 0))
    asked = _text(content, "Total Requests")
    answered = _text(content, "Success Requests")
    if asked and answered:
        content.none_failed(max(float(asked) - float(answered), 0))
    numbers = []
    for name, entry in content.document.items():
        match = _value(entry)
        if match and match[2] and name != "Benchmark Duration":
            better: Better = "higher" if match[2].endswith("/s") else "lower"
            plain = re.sub(r"\W+", "_", name.lower()).strip("_")
            numbers.append(
                content.number(
                    plain, float(match[1]), _UNITS.get(match[2], match[2]), better
                )
            )
    counts = {name: _text(content, key) for name, key in _WORK.items()}
    return Results(
        [*numbers, *_times(content)],
        {name: int(float(count)) for name, count in counts.items() if count},
    )


def _times(content: Content) -> Iterator[ResultNumber]:
    table = content.path.with_suffix(".csv")
    if not table.is_file():
        return
    for row in csv.DictReader(table.read_text(encoding="utf-8").splitlines()):
        name = row.get("Performance Parameters")
        if name in _TIMES and row.get("Stage") == _STAGE:
            for end, column in (("", "Median"), (".p99", "P99")):
                if match := _VALUE.fullmatch(row.get(column) or ""):
                    yield content.number(
                        f"{name.lower()}{end}",
                        float(match[1]),
                        match[2] or "1",
                        "lower",
                    )


def _text(content: Content, name: str) -> str:
    match = _value(content.document.get(name))
    return match[1] if match else ""


def _value(entry: object) -> re.Match[str] | None:
    """The number of the stage, and its unit."""
    if isinstance(entry, dict):
        return _VALUE.fullmatch(str(entry.get(_STAGE)))
    return None

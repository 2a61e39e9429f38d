"""The JSON of AISBench's performances folder, texts with units for the stage total or
stable, and the CSV next to it.

The JSON has the rates, the CSV of the same name the times: "84.5 ms". Keys are spelled
with other capitals from version to version ("Total generated tokens").
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from perfgate.conductor.results.result import (
    Better,
    Content,
    ResultNumber,
    Results,
    text_of,
)

READS = "AISBench performances/MODEL/DATASET.json"
_VALUE = re.compile(r"(\d+(?:\.\d*)?(?:e[+-]?\d+)?) ?(token/s|req/s|ms|s|us)?")
_UNITS = {"token/s": "tokens/s", "req/s": "items/s", None: "1"}
# All requests; a summary of the stable stage has that one instead.
_WHOLE = "total"
_DURATION = "benchmark duration"
_TIMES = ("E2EL", "TTFT", "TPOT", "ITL")
# The columns are settings of AISBench: without a median the mean counts.
_CENTRES = (("", "Median"), ("", "P50"), (".mean", "Average"))
_WORK = {
    "requests": "success requests",
    "input_tokens": "total input tokens",
    "output_tokens": "total generated tokens",
}


class _Stage:
    """The values of the stage total, or of the only other one."""

    def __init__(self, content: Content) -> None:
        self._entries = {key.lower(): value for key, value in content.document.items()}
        stages = [stage.lower() for stage in self._entries[_DURATION]]
        self.name = _WHOLE if _WHOLE in stages else stages[0]

    def values(self) -> Iterator[tuple[str, re.Match[str]]]:
        """Each key with its number and unit."""
        for key in self._entries:
            if match := self._value(key):
                yield key, match

    def number(self, key: str) -> float | None:
        match = self._value(key)
        return float(match[1]) if match else None

    def named(self, name: str) -> str:
        return name if self.name == _WHOLE else f"{self.name}.{name}"

    def _value(self, key: str) -> re.Match[str] | None:
        entry = self._entries.get(key)
        if not isinstance(entry, dict):
            return None
        stages = {stage.lower(): value for stage, value in entry.items()}
        return _VALUE.fullmatch(str(stages.get(self.name)))


def recognises(content: Content) -> bool:
    return content.has("Benchmark Duration", "Output Token Throughput")


def read(content: Content) -> Results:
    stage = _Stage(content)
    content.none_failed(stage.number("failed requests") or 0)
    asked = stage.number("total requests")
    answered = stage.number("success requests")
    if asked is not None and answered is not None:
        content.none_failed(max(asked - answered, 0))
    numbers = []
    for key, match in stage.values():
        if match[2] and key != _DURATION:
            better: Better = "higher" if match[2].endswith("/s") else "lower"
            name = stage.named(re.sub(r"\W+", "_", key).strip("_"))
            unit = _UNITS.get(match[2], match[2])
            numbers.append(content.number(name, float(match[1]), unit, better))
    counts = {name: stage.number(key) for name, key in _WORK.items()}
    return Results(
        [*numbers, *_times(content, stage)],
        {name: int(count) for name, count in counts.items() if count is not None},
    )


def _times(content: Content, stage: _Stage) -> Iterator[ResultNumber]:
    table = content.path.with_suffix(".csv")
    if not table.is_file():
        return
    for row in csv.DictReader(text_of(table).splitlines()):
        name = row.get("Performance Parameters")
        if name in _TIMES and (row.get("Stage") or "").lower() == stage.name:
            centres = [(end, column) for end, column in _CENTRES if row.get(column)]
            for end, column in (*centres[:1], (".p99", "P99")):
                if match := _VALUE.fullmatch(row.get(column) or ""):
                    yield content.number(
                        stage.named(f"{name.lower()}{end}"),
                        float(match[1]),
                        match[2] or "1",
                        "lower",
                    )

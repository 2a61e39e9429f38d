"""The result of a commit and environment that asv wrote
(results/MACHINE/COMMIT-ENV.json), version 2: seconds or bytes.

Values of ``track_`` functions have no unit and no direction in this file, so they are
left out: name them by ``numbers``.
"""

from __future__ import annotations

import math
import re
from itertools import product

from perfgate.conductor.results.result import Content, Results

READS = "asv results/MACHINE/COMMIT-ENV.json, version 2"
_UNITS = {"time": "s", "timeraw": "s", "mem": "B", "peakmem": "B"}
# time_sort and TimeSort (asv_runner/benchmarks/time.py: name_regex).
_KIND = re.compile(r"(timeraw|time|peakmem|mem)_.|(Timeraw|Time|PeakMem|Mem)[A-Z_].")


def recognises(content: Content) -> bool:
    return content.has("results", "commit_hash")


def read(content: Content) -> Results:
    if content.document.get("version") != 2:
        raise content.refused(
            "version {version!r} of asv's results is not supported; convert them: asv update",
            version=content.document.get("version"),
        )
    columns = content.document["result_columns"]
    numbers = []
    for name, row in content.document["results"].items():
        kind = _KIND.match(name.rpartition(".")[2])
        if kind is None:
            continue
        unit = _UNITS[(kind[1] or kind[2]).lower()]
        entry = dict(zip(columns, row))
        cases = list(product(*(entry.get("params") or []))) or [()]
        # A null in the place of the list: the benchmark failed in every case.
        values = entry["result"] or [None] * len(cases)
        samples = entry.get("samples") or [None] * len(cases)
        for value, case, runs in zip(values, cases, samples, strict=True):
            label = f"{name}({', '.join(map(str, case))})" if case else name
            if value is None:
                raise content.refused("{label} failed: its result is null", label=label)
            # NaN is how asv writes down a case that was skipped; the count of the
            # others must be equal on both sides.
            if not math.isnan(value):
                numbers.append(content.number(label, value, unit, "lower", runs or ()))
    return Results(numbers, {"benchmarks": len(numbers)})

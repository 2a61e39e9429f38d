"""``fusion_result.json``: what CANN's graph engine writes about its fusion passes when it compiles a graph.

{"session_and_graph_id_0_0": {"graph_fusion": {PASS: {"effect_times": "1", "match_times": "1"}}, "ub_fusion": {...}}}, or a
list of such; counts are strings (fusion_statistic_writer.cc of the graph engine; no recorded sample was found).
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

NAME = "fusion_result.json"
# The file is small: a few lines a pass. What is larger is something else.
_MOST_BYTES = 16 << 20


class PassCounts(NamedTuple):
    """How often each pass matched and took effect, over all graphs."""

    matched: Counter[str]
    took_effect: Counter[str]


def read_fusion_result(*folders: Path) -> PassCounts | None:
    """Return the counts of the first folder that has a readable file with passes in it, None where none has."""
    for folder in folders:
        file = folder / NAME
        try:
            if not file.is_file() or file.stat().st_size > _MOST_BYTES:
                continue
            found = _counts(json.loads(file.read_text()))
        except (OSError, ValueError, RecursionError):  # what is broken tells nothing
            continue
        if found.matched:
            return found
    return None


def _counts(document: Any) -> PassCounts:
    found = PassCounts(Counter(), Counter())
    for name, counts in _passes(document):
        matched, took_effect = _number(counts.get("match_times")), _number(counts.get("effect_times"))
        found.matched[name] += matched
        found.took_effect[name] += took_effect
    return found


def _passes(document: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and counts of every pass, however deep it lies."""
    if isinstance(document, list):
        for member in document:
            yield from _passes(member)
    elif isinstance(document, dict):
        for name, member in document.items():
            if isinstance(member, dict) and "effect_times" in member:
                yield name, member
            else:
                yield from _passes(member)


def _number(text: Any) -> int:
    try:
        return max(int(text), 0)
    except (TypeError, ValueError):
        return 0

"""The rank of a process by the names that programs give their recordings and, in a merged file, the processes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfgate.trace.model.patterns import lazy_pattern

# sampled_rank-0.json.gz (HTA), rank3_trace.json (torchtitan), profile_rank_0.json.gz (xDiT), dp0_pp0_tp1_rank1.….json (vLLM).
_RANK = lazy_pattern(r"(?:^|[^a-z])rank[-_ ]?(\d{1,9})(?!\d)", re.IGNORECASE)
# 1782000000.1-TP-0-PP-1.trace.json.gz (sglang/srt/utils/profile_utils.py); the ranks of DP and EP lie within those of TP.
_PLACE = lazy_pattern(r"(?:^|[^a-z])(tp|pp)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
# "[TP00] 4242", "[TP01-PP00] 4242" (sglang/srt/utils/profile_merger.py), "rank 3: 4242".
_LABEL = lazy_pattern(r'^"?(?:\[([^\]]{1,60})\]|(rank[-_ ]?\d{1,9}))[ :]', re.IGNORECASE)


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name tells, of several parallel groups with the help of its neighbours, else its folder's name.

    None if neither tells one.
    """
    if match := _RANK.search(path.name):
        return int(match[1])
    place = _place(path.name)
    if "tp" not in place:
        match = _RANK.search(path.absolute().parent.name)
        return int(match[1]) if match else None
    if not place.get("pp"):
        return place["tp"]
    own, begin = place["tp"], path.name.lower().find("tp")
    siblings = [_place(file.name) for file in path.parent.iterdir() if file.name.startswith(path.name[:begin])]
    width = 1 + max(sibling.get("tp", 0) for sibling in siblings) if siblings else 1
    return place["pp"] * width + own


def process_label(process: str) -> str:
    """The label that a merger of ranks put before the number of a process; empty for none."""
    match = _LABEL.match(process)
    return (match[1] or match[2]) if match else ""


def ranks_of_labels(labels: Iterable[str]) -> dict[str, int]:
    """The rank of each label of a merged file: its own number if each has one, else its place among them."""
    names = sorted(set(labels))
    places = {name: _number(name) for name in names}
    numbers = [number for number in places.values() if number is not None]
    if len(set(numbers)) == len(names):
        return {name: number for name, number in places.items() if number is not None}
    ordered = sorted(names, key=lambda name: (_place(name).get("pp", 0), _place(name).get("tp", 0), name))
    return {name: number for number, name in enumerate(ordered)}


def _number(label: str) -> int | None:
    if match := _RANK.search(label):
        return int(match[1])
    place = _place(label)
    return place.get("tp") if not place.get("pp") else None


def _place(name: str) -> Mapping[str, int]:
    return {axis.lower(): int(number) for axis, number in _PLACE.findall(name)}

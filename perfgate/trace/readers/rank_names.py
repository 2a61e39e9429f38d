"""The rank of a process by the names that programs give their recordings and, in a
merged file, the processes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from perfgate.trace.model.numbering import Numbering
from perfgate.trace.model.patterns import lazy_pattern

# sampled_rank-0.json.gz (HTA), rank3_trace.json (torchtitan), profile_rank_0.json.gz
# (xDiT), dp0_pp0_tp1_rank1.….json (vLLM).
_RANK = lazy_pattern(r"(?:^|[^a-z])rank[-_ ]?(\d{1,9})(?!\d)", re.IGNORECASE)
# 1782000000.1-TP-0-PP-1.trace.json.gz (sglang/srt/utils/profile_utils.py); the ranks of
# DP and EP lie within the ranks of TP.
_PLACE = lazy_pattern(r"(?:^|[^a-z])(tp|pp)[-_]?(\d{1,6})(?!\d)", re.IGNORECASE)
# Number and group in one word, which programs that name places do not write.
_JOINED = lazy_pattern(r"(?:^|[^a-z])tp\d", re.IGNORECASE)
# "[TP00] 4242", "[TP01-PP00] 4242" (sglang/srt/utils/profile_merger.py), "rank 3:
# 4242".
_LABEL = lazy_pattern(
    r'^"?(?:\[([^\]]{1,60})\]|(rank[-_ ]?\d{1,9}))[ :]', re.IGNORECASE
)


def rank_in_name(path: Path) -> int | None:
    """The rank in a file's name, else in its folder's name, None if neither has one.

    In a name with places in several parallel groups, the names of its siblings give the
    sizes of the groups.
    """
    match = _RANK.search(path.name)
    if match:
        return int(match[1])
    place = _place(path.name)
    if "tp" not in place or _is_size(path):
        match = _RANK.search(path.absolute().parent.name)
        return int(match[1]) if match else None
    stage = place.get("pp", 0)
    if not stage:
        return place["tp"]
    return stage * (max(_siblings(path)) + 1) + place["tp"]


def _is_size(path: Path) -> bool:
    """Whether the number in a name like allreduce_tp4.json is the size of the group: no
    sibling has place 0.
    """
    return bool(_JOINED.search(path.name)) and min(_siblings(path)) > 0


def _siblings(path: Path) -> list[int]:
    """The places within the group of tensor parallelism of all files with names like
    this one.
    """
    prefix = path.name[: path.name.lower().find("tp")]
    places = [_place(path.name)["tp"]]
    for file in path.parent.iterdir():
        if file.name.startswith(prefix):
            places.append(_place(file.name).get("tp", places[0]))
    return places


def process_label(process: str) -> str:
    """The label that a merger of ranks put before the number of a process; empty for
    none.
    """
    match = _LABEL.match(process)
    return (match[1] or match[2]) if match else ""


def ranks_of_labels(labels: Iterable[str]) -> dict[str, int]:
    """The rank of each label of a merged file: its own number if each has one, else its
    place among them.
    """
    names = sorted(set(labels))
    numbers = {}
    for name in names:
        number = _number(name)
        if number is not None:
            numbers[name] = number
    if len(set(numbers.values())) == len(names):
        return numbers
    names.sort(key=lambda name: (_place(name).get("pp", 0), _place(name).get("tp", 0)))
    return dict(Numbering(names))


def _number(label: str) -> int | None:
    match = _RANK.search(label)
    if match:
        return int(match[1])
    place = _place(label)
    return None if place.get("pp") else place.get("tp")


def _place(name: str) -> Mapping[str, int]:
    return {axis.lower(): int(number) for axis, number in _PLACE.findall(name)}

"""Ways to leave something out of a check's documents, or to alter it: every field, on one side, on both, and down a column."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

Step = str | int
Path_ = tuple[Step, ...]
Where = Literal["base", "head", "both", "column of base", "column of head", "column of both"]
SIDES: dict[Where, tuple[str, ...]] = {
    "base": ("base",),
    "head": ("head",),
    "both": ("base", "head"),
    "column of base": ("base",),
    "column of head": ("head",),
    "column of both": ("base", "head"),
}
GONE = object()
LARGEST = 1e308
_Documents = dict[str, Any]


class Edit(NamedTuple):
    """What is done to one place, or to all places of its kind, of one document or of both.

    ``how`` is ``gone`` or ``emptied``, or what takes its place; ``swapped`` exchanges the values of base and head.
    """

    where: Where
    path: Path_
    how: str

    @property
    def is_deletion(self) -> bool:
        return self.how in ("gone", "emptied")

    @property
    def kind(self) -> str:
        """The place without the numbers in it."""
        return "/".join("*" if isinstance(step, int) else step for step in self.path)

    @property
    def name(self) -> str:
        path = self.kind if self.where.startswith("column") else "/".join(map(str, self.path))
        return f"{path} of {self.where}: {self.how}"

    def of(self, documents: _Documents) -> _Documents | None:
        """The documents with the edit; None where it changes nothing."""
        edited = dict(documents)
        for side in SIDES[self.where]:
            other = documents["head" if side == "base" else "base"]
            paths = list(alike(documents[side], self.path)) if self.where.startswith("column") else [self.path]
            # From the last place on, so that the numbers of those before it stay true.
            for path in reversed(paths):
                edited[side] = with_part(edited[side], path, self._left(path, other))
        return edited if edited != documents else None

    def _left(self, path: Path_, other: Any) -> Callable[[Any], Any]:
        def left(value: Any) -> Any:
            if self.how == "gone":
                return GONE
            if self.how == "emptied":
                return [] if isinstance(value, list) else {} if isinstance(value, dict) else None
            if self.how == "swapped":
                found = at(other, path)
                return value if found is GONE else found
            return _ALTERED[self.how](value)

        return left


def _altered(value: Any, change: Callable[[float], float]) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    changed = change(value)
    return round(changed) if isinstance(value, int) and abs(changed) < 2**53 else changed


def _other_text(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    return _OTHER_WORDS.get(value, f"{value}x") if isinstance(value, str) else value


# Of a field with few values another one; any other text would be refused as it is read.
_OTHER_WORDS = {
    "lower": "higher",
    "higher": "lower",
    "ab": "aa",
    "aa": "ab",
    "first": "second",
    "second": "first",
    "passed": "not_checked",
    "ok": "attention",
    "server": "command",
    "command": "ranks",
    "ranks": "server",
    "resident": "alternate",
}
_ALTERED: dict[str, Callable[[Any], Any]] = {
    "x 0.3": lambda value: _altered(value, lambda number: number * 0.3),
    "negative": lambda value: _altered(value, lambda number: -number),
    "0": lambda value: _altered(value, lambda number: 0),
    "1e308": lambda value: _altered(value, lambda number: LARGEST),
    "other": _other_text,
}


def at(value: Any, path: Path_) -> Any:
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return GONE
    return value


def with_part(value: Any, path: Path_, left: Callable[[Any], Any]) -> Any:
    """The value with what ``left`` makes of one place; the rest is shared. A place that is not there stays so."""
    if at(value, path) is GONE:
        return value
    step, rest = path[0], path[1:]
    part = with_part(value[step], rest, left) if rest else left(value[step])
    copied = value.copy()
    if part is GONE:
        del copied[step]
    else:
        copied[step] = part
    return copied


def alike(value: Any, path: Path_) -> Iterator[Path_]:
    """Yield the paths that differ from ``path`` by the numbers in it alone."""
    if not path:
        yield ()
    elif isinstance(path[0], int) and isinstance(value, list):
        yield from ((index, *rest) for index in range(len(value)) for rest in alike(value[index], path[1:]))
    elif isinstance(value, dict) and path[0] in value:
        yield from ((path[0], *rest) for rest in alike(value[path[0]], path[1:]))


def places(value: Any, path: Path_ = ()) -> Iterator[tuple[Path_, Any]]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in inside:
        yield (*path, key), part
        yield from places(part, (*path, key))


def edits(documents: _Documents, *, each: int, seed: str) -> list[Edit]:
    """Every edit of ``each`` places of every kind, those of one kind being drawn by lot, in the order of a lot."""
    lot = random.Random(seed)
    kinds: dict[str, dict[Path_, Any]] = {}
    for side in ("base", "head"):
        for path, value in places(documents[side]):
            kinds.setdefault(Edit("head", path, "gone").kind, {}).setdefault(path, value)
    found = []
    for alike_places in kinds.values():
        for path in lot.sample(list(alike_places), min(each, len(alike_places))):
            is_in_list = any(isinstance(step, int) for step in path)
            wheres: tuple[Where, ...] = tuple(SIDES)
            for where in wheres if is_in_list else wheres[:3]:
                found += [Edit(where, path, how) for how in _ways(alike_places[path], where)]
    lot.shuffle(found)
    return found


def _ways(value: Any, where: Where) -> Iterator[str]:
    yield "gone"
    if value is not None and value not in ([], {}):
        yield "emptied"
    if isinstance(value, (bool, str)):
        yield "other"
    elif isinstance(value, (int, float)):
        yield from ("x 0.3", "negative", "0", "1e308")
    if "both" in where and not isinstance(value, (dict, list)):
        yield "swapped"

"""Settings of the process that differ between base and head: they warn, with the line of the change that names them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from perfgate.catalogue.names import SETTINGS
from perfgate.document.comparison import Comparison, Exact
from perfgate.document.decision import Verdict
from perfgate.document.message import Message
from perfgate.document.run import CodeChange
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.compare.comparison import compared
from perfgate.judging.gate.evidence.changed_code import MOST_ELSEWHERE
from perfgate.judging.gate.evidence.work_table import Counted


def compare_settings(
    rows: Iterable[Counted], changes: Sequence[CodeChange]
) -> Iterator[Comparison]:
    """Yield each setting of a workload that differs, or is on one side only."""
    reported = set()
    for row in rows:
        of_base = row.base.counters.settings
        of_head = row.head.counters.settings
        if of_base and not of_head:
            yield _warning(row.place, Message("gate.no-settings"))
        if not of_base or not of_head:
            continue
        for name in sorted(of_base.keys() | of_head.keys()):
            before = of_base.get(name)
            after = of_head.get(name)
            if before != after and (row.place.workload, name) not in reported:
                reported.add((row.place.workload, name))
                yield _warning(row.place, _difference(name, before, after, changes))


def _warning(place: ShapePlace, reason: Message) -> Exact:
    return replace(compared(Exact, place, SETTINGS, reason=reason), gating=False)


def notes_on_settings(
    comparisons: Iterable[Comparison], verdict: Verdict
) -> list[Message]:
    """Notes about other settings for the top of a report with a verdict that has another reason; a WARN may be about them."""
    if verdict == "WARN":
        return []
    notes = []
    for comparison in comparisons:
        if comparison.metric == SETTINGS and comparison.reason is not None:
            notes.append(comparison.reason)
    return notes


def _difference(
    name: str, before: str | None, after: str | None, changes: Sequence[CodeChange]
) -> Message:
    values = {"setting": name, "base": before or "-", "head": after or "-"}
    line = _line_that_names(name, changes)
    if line is None:
        return Message("gate.other-setting", values)
    return Message("gate.other-setting-at", {**values, "line": line})


def _line_that_names(setting: str, changes: Sequence[CodeChange]) -> str | None:
    """The first changed line with the name of a setting; without one, as after a deletion, the first of few changes."""
    word = re.compile(rf"\b{re.escape(setting.rpartition('.')[2])}\b")
    for change in changes:
        for number, text in enumerate(change.text):
            if word.search(text):
                return f"{change.file}:{change.first + number}"
    if not changes or len(changes) > MOST_ELSEWHERE:
        return None
    return f"{changes[0].file}:{changes[0].first}"

"""The effect of a changed workload file on the measurement, so that measuring less is
never a silent pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import TypeAlias

from perfgate.document.decision import (
    Failure,
    HarnessAddition,
    HarnessChange,
    HarnessEdit,
    HarnessRemoval,
    UnfitHarness,
    UnreadHarness,
)
from perfgate.document.message import Message, MessageValue
from perfgate.document.run import Harness

MAX_LINES = 12
_Kind: TypeAlias = (
    type[HarnessRemoval]
    | type[HarnessEdit]
    | type[HarnessAddition]
    | type[UnreadHarness]
)
_Difference = tuple[_Kind, Message]


def harness_changes(
    before: Mapping[str, Harness], after: Mapping[str, Harness], broken: Collection[str]
) -> list[HarnessChange]:
    """The changes between the harnesses of both sides; none if their own files measure
    the same.

    The base fails in the ``broken`` workloads, and the head does not.
    """
    changes: list[HarnessChange] = []
    for name in {**before, **after}:
        lines: list[str] = []
        if name in after:
            lines = after[name].changed_lines[:MAX_LINES]
        for kind, message in _differences(name, before.get(name), after.get(name)):
            changes.append(kind(workload=name, message=message, lines=lines))
    # If the base fails alone and their files differ, the head's file is not for the
    # base's code.
    for name, harness in after.items():
        if name in broken:
            message = Message("harness.workload-new-to-base")
            if name in before:
                message = Message("harness.base-does-not-run")
            lines = harness.changed_lines[:MAX_LINES]
            changes.append(UnfitHarness(workload=name, message=message, lines=lines))
    return changes


def is_consequence(failure: Failure, changes: Iterable[HarnessChange]) -> bool:
    return any(
        isinstance(change, UnfitHarness) and change.workload == failure.workload
        for change in changes
    )


def _differences(
    name: str, base: Harness | None, head: Harness | None
) -> Iterator[_Difference]:
    if base is None:
        yield HarnessAddition, Message("harness.workload-new", {"name": name})
    elif head is None:
        yield HarnessRemoval, Message("harness.workload-removed", {"name": name})
    elif base.error is not None:
        why = base.error.message
        if isinstance(why, str):
            lines = why.splitlines()
            why = lines[0] if lines else Message("harness.no-reason")
        yield UnreadHarness, Message("harness.base-unknown", {"why": why})
    elif head.error is None:
        differences = [
            *_parts("shape", base.shapes, head.shapes),
            *_settings(base, head),
            *_parts("function", base.functions, head.functions),
            *_job_settings(base, head),
        ]
        yield from differences
        if not differences and base.file_sha256 != head.file_sha256:
            file = head.reference.rpartition(":")[0]
            yield HarnessEdit, Message("harness.file-changed", {"file": file})


def _differing(
    base: Mapping[str, str], head: Mapping[str, str]
) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield the parts that differ, by name: their text on both sides, None on a side
    without them.
    """
    for name in sorted(base.keys() | head.keys()):
        if base.get(name) != head.get(name):
            yield name, base.get(name), head.get(name)


# The codes of a removed, a new and a changed part.
_CODES = {
    "shape": ("harness.shape-removed", "harness.shape-new", "harness.shape-changed"),
    "function": (
        "harness.function-removed",
        "harness.function-added",
        "harness.function-changed",
    ),
}


def _parts(
    noun: str, base: Mapping[str, str], head: Mapping[str, str]
) -> Iterator[_Difference]:
    removed, added, changed = _CODES[noun]
    for name, before, after in _differing(base, head):
        values: dict[str, MessageValue] = {noun: name}
        if after is None:
            yield HarnessRemoval, Message(removed, values)
        elif before is None:
            # An additional check proves more, and another way to preprocess is not
            # another call; with any other new function it is.
            measures_more = noun == "shape" or name in ("check", "preprocess_on_device")
            kind: _Kind = HarnessAddition if measures_more else HarnessEdit
            yield kind, Message(added, values)
        else:
            if noun == "shape":
                none = Message("harness.no-arguments")
                values |= {"before": before or none, "after": after or none}
            yield HarnessEdit, Message(changed, values)


def _settings(base: Harness, head: Harness) -> Iterator[_Difference]:
    if base.batch != head.batch:
        values: dict[str, MessageValue] = {"before": base.batch, "after": head.batch}
        yield HarnessEdit, Message("harness.batch-changed", values)
    if base.batch_sizes != head.batch_sizes:
        yield HarnessEdit, Message("harness.batch-sizes-changed")
    before = base.sla_p99
    after = head.sla_p99
    if before == after:
        return
    if before is None:
        yield HarnessAddition, Message("harness.sla-added")
    elif after is None:
        yield HarnessRemoval, Message("harness.sla-removed")
    else:
        ends = {"before": before, "after": after}
        yield HarnessEdit, Message("harness.sla-changed", ends)


def _job_settings(base: Harness, head: Harness) -> Iterator[_Difference]:
    for name, before, after in _differing(base.settings, head.settings):
        if before or after:
            values = {"setting": name, "before": before or "", "after": after or ""}
            yield HarnessEdit, Message("harness.setting-changed", values)

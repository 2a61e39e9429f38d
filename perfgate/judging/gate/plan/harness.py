"""The effect of a changed workload file on the measurement, so that measuring less is never a silent pass."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from perfgate.document.decision import Failure, HarnessChange
from perfgate.document.message import Message
from perfgate.document.run import Harness, RunDocument

MAX_LINES = 12
_Kind = Literal["removed", "changed", "added", "unknown"]
_Difference = tuple[_Kind, Message]


def harness_changes(base: RunDocument, head: RunDocument) -> list[HarnessChange]:
    """The changes, workload by workload; none if both sides' own files measure the same."""
    before = {harness.workload: harness for harness in base.harness}
    after = {harness.workload: harness for harness in head.harness}
    changes = []
    for name in {**before, **after}:
        for kind, message in _differences(name, before.get(name), after.get(name)):
            changes.append(HarnessChange(workload=name, kind=kind, message=message))
    changes += _not_comparable(base, head, new=after.keys() - before.keys())
    lines = {name: harness.changed_lines[:MAX_LINES] for name, harness in after.items()}
    return [replace(change, lines=lines.get(change.workload, [])) for change in changes]


def is_consequence(failure: Failure, changes: list[HarnessChange]) -> bool:
    unable = {change.workload for change in changes if change.is_not_comparable}
    return failure.workload in unable


def _differences(name: str, base: Harness | None, head: Harness | None) -> Iterator[_Difference]:
    if base is None:
        yield "added", Message("harness.workload-new", {"name": name})
    elif head is None:
        yield "removed", Message("harness.workload-removed", {"name": name})
    elif base.error is not None:
        error = base.error.message
        text = error.splitlines() if isinstance(error, str) else [error]
        yield "unknown", Message("harness.base-unknown", {"why": text[0] if text else Message("harness.no-reason")})
    elif head.error is None:
        differences = [
            *_shapes(base.shapes, head.shapes),
            *_settings(base, head),
            *_functions(base.functions, head.functions),
            *_job_settings(base.settings, head.settings),
        ]
        yield from differences
        if not differences and base.file_sha256 != head.file_sha256:
            yield "changed", Message("harness.file-changed", {"file": head.reference.rpartition(":")[0]})


def _shapes(base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[_Difference]:
    for shape in sorted(base.keys() | head.keys()):
        if shape not in head:
            yield "removed", Message("harness.shape-removed", {"shape": shape})
        elif shape not in base:
            yield "added", Message("harness.shape-new", {"shape": shape})
        elif base[shape] != head[shape]:
            none = Message("harness.no-arguments")
            values = {"shape": shape, "before": base[shape] or none, "after": head[shape] or none}
            yield "changed", Message("harness.shape-changed", values)


def _settings(base: Harness, head: Harness) -> Iterator[_Difference]:
    if base.batch != head.batch:
        yield "changed", Message("harness.batch-changed", {"before": base.batch, "after": head.batch})
    if base.batch_sizes != head.batch_sizes:
        yield "changed", Message("harness.batch-sizes-changed")
    before, after = base.sla_p99, head.sla_p99
    if before == after:
        return
    if before is None:
        yield "added", Message("harness.sla-added")
    elif after is None:
        yield "removed", Message("harness.sla-removed")
    else:
        yield "changed", Message("harness.sla-changed", {"before": before, "after": after})


def _functions(base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[_Difference]:
    for function in sorted(base.keys() | head.keys()):
        if function not in head:
            yield "removed", Message("harness.function-removed", {"function": function})
        elif function not in base:
            # An additional check proves more, and another way to preprocess is not another call; with any other new function it
            # is.
            kind: _Kind = "added" if function in ("check", "preprocess_on_device") else "changed"
            yield kind, Message("harness.function-added", {"function": function})
        elif base[function] != head[function]:
            yield "changed", Message("harness.function-changed", {"function": function})


def _job_settings(base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[_Difference]:
    for name in sorted(base.keys() | head.keys()):
        before, after = (side.get(name, "") for side in (base, head))
        if before != after:
            yield "changed", Message("harness.setting-changed", {"setting": name, "before": before, "after": after})


def _not_comparable(base: RunDocument, head: RunDocument, *, new: set[str]) -> Iterator[HarnessChange]:
    """If the base fails, the head does not, and their files differ, the head's file is not for the base's code."""
    broken = _broken_workloads(base) - _broken_workloads(head)
    for harness in head.harness:
        name = harness.workload
        if name in broken:
            code = "harness.workload-new-to-base" if name in new else "harness.base-does-not-run"
            yield HarnessChange(workload=name, kind="not_comparable", message=Message(code))


def _broken_workloads(run: RunDocument) -> set[str]:
    names = {workload.name for workload in run.workloads if workload.error}
    names |= {step.workload for step in run.steps if step.error}
    return names | {check.workload for check in run.correctness if check.status == "error"}

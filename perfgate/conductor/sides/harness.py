"""The workload files of base and head: where they differ, what each of them measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from perfgate.conductor.sides.harness_code import changed_lines, code_hash
from perfgate.conductor.workers.bench import Bench, Checkout
from perfgate.conductor.workers.worker import WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import ErrorDetail, Harness

References = Mapping[str, WorkloadReference]


def read_harnesses(
    bench: Bench, base: Checkout, head: Checkout, references: tuple[References, References]
) -> tuple[list[Harness], list[Harness]]:
    """Return what the workload files of both sides measure, for the workloads whose entry or file differs.

    ``references`` are the workloads each side's own perfgate.toml names. Comments and formatting are no difference. A file
    that cannot be imported is kept with its error.
    """
    own_base = Checkout(root=base.root, harness=base.root, python=base.python)
    names = [name for name in {**references[0], **references[1]} if _differs(bench, name, own_base, head, references)]
    before = _read(bench, own_base, references[0], names)
    by_name = {harness.workload: harness for harness in before}
    after = [
        msgspec.structs.replace(
            read,
            changed_lines=_changed_lines(bench, read.workload, own_base, head, references),
            added=_added(by_name.get(read.workload), read),
        )
        for read in _read(bench, head, references[1], names)
    ]
    return before, after


def _added(base: Harness | None, head: Harness) -> list[str]:
    """Return what the base's file has not: without it, something removed from the base's harness would read as new."""
    if base is None:
        return [head.workload]
    added = [*(head.shapes.keys() - base.shapes.keys()), *(head.functions.keys() - base.functions.keys())]
    if base.sla_p99 is None and head.sla_p99 is not None:
        added.append("sla_p99")
    return sorted(added)


def unknown_harnesses(names: Sequence[str], why: str) -> list[Harness]:
    """Return the harnesses of a base whose perfgate.toml cannot be read."""
    error = ErrorDetail(kind="exception", message=why)
    return [Harness(workload=name, reference="", error=error) for name in names]


def _differs(
    bench: Bench, name: str, base: Checkout, head: Checkout, references: tuple[References, References]
) -> bool:
    before, after = references[0].get(name), references[1].get(name)
    if before is None or after is None or before.text != after.text:
        return True
    return _code_hash(bench, base, before) != _code_hash(bench, head, after)


def _changed_lines(
    bench: Bench, name: str, base: Checkout, head: Checkout, references: tuple[References, References]
) -> list[str]:
    before, after = references[0].get(name), references[1][name]
    if before is None:
        return []
    files = base.harness / before.file, head.harness / after.file
    importable = _importable(bench, base), _importable(bench, head)
    folder = Path(after.file).parent
    return [(folder / line).as_posix() for line in changed_lines(*files, importable=importable)]


def _read(bench: Bench, checkout: Checkout, references: References, names: Sequence[str]) -> list[Harness]:
    return [_read_one(bench, checkout, references[name]) for name in names if name in references]


def _read_one(bench: Bench, checkout: Checkout, reference: WorkloadReference) -> Harness:
    file_sha256 = _code_hash(bench, checkout, reference)
    harness = Harness(workload=reference.name, reference=reference.text, file_sha256=file_sha256)
    try:
        reply = bench.read_harness(checkout, reference)
    except WorkerError as error:
        return msgspec.structs.replace(harness, error=error.detail)
    return msgspec.structs.replace(
        harness,
        batch=reply.batch,
        batch_sizes=reply.batch_sizes,
        shapes=reply.shapes,
        functions=reply.functions,
        sla_p99=reply.sla_p99,
    )


def _code_hash(bench: Bench, checkout: Checkout, reference: WorkloadReference) -> str:
    return code_hash(checkout.harness / reference.file, importable=_importable(bench, checkout))


def _importable(bench: Bench, checkout: Checkout) -> list[Path]:
    return [checkout.root / folder for folder in bench.config.measure.python_path]

"""The workload files of base and head: the code of each and of its neighbours, their
differences, and their inputs.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from importlib.machinery import SOURCE_SUFFIXES
from pathlib import Path

import msgspec

from perfgate.conductor.code.code_changes import changes, parse, statements
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.worker import WorkerError
from perfgate.config import WorkloadReference
from perfgate.document.run import ErrorDetail, Harness, Side

References = Mapping[str, WorkloadReference]
_PROSE = (".md", ".rst")
_BYTECODE = "__pycache__"


def read_harnesses(
    bench: Bench,
    base: Checkout,
    head: Checkout,
    references: tuple[References, References],
    *,
    begins: Callable[[Side], None],
) -> tuple[list[Harness], list[Harness]]:
    """Read the workload files of both sides, for workloads with a different entry or
    file.

    ``references`` are the workloads each side's own perfgate.toml names; ``begins`` is
    called before code of a side runs. Comments and
    formatting do not count as a difference. A file that cannot be imported is kept with
    its error.
    """
    own_base = replace(base, harness=base.root)
    before = []
    after = []
    for name in {**references[0], **references[1]}:
        old, new = references[0].get(name), references[1].get(name)
        if (
            old
            and new
            and old.text == new.text
            and _code_hash(bench, own_base, old) == _code_hash(bench, head, new)
        ):
            continue
        of_base = None
        if old is not None:
            begins("base")
            of_base = _read(bench, own_base, old)
            before.append(of_base)
        if new is None:
            continue
        begins("head")
        of_head = _read(bench, head, new)
        lines = []
        if old is not None:
            importable = bench.python_path(own_base), bench.python_path(head)
            for line in changed_lines(
                own_base.harness / old.file,
                head.harness / new.file,
                importable=importable,
            ):
                lines.append((Path(new.file).parent / line).as_posix())
        after.append(
            msgspec.structs.replace(
                of_head, changed_lines=lines, added=_added(of_base, of_head)
            )
        )
    return before, after


def _added(base: Harness | None, head: Harness) -> list[str]:
    """Names missing from the base's file: without it, a removal from the base's harness
    would look new.
    """
    if base is None:
        return [head.workload]
    added = [
        *(head.shapes.keys() - base.shapes.keys()),
        *(head.functions.keys() - base.functions.keys()),
    ]
    if base.sla_p99 is None and head.sla_p99 is not None:
        added.append("sla_p99")
    return sorted(added)


def unknown_harnesses(names: Sequence[str], reason: str) -> list[Harness]:
    error = ErrorDetail(kind="exception", message=reason)
    return [Harness(workload=name, reference="", error=error) for name in names]


def _read(bench: Bench, checkout: Checkout, reference: WorkloadReference) -> Harness:
    file_sha256 = _code_hash(bench, checkout, reference)
    harness = Harness(
        workload=reference.name, reference=reference.text, file_sha256=file_sha256
    )
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
    return code_hash(
        checkout.harness / reference.file, importable=bench.python_path(checkout)
    )


# --- code


def code_hash(file: Path, *, importable: Collection[Path]) -> str:
    """The SHA-256 of what head's harness brings to both sides; comments and docstrings
    of its code are not part of it.

    Files in the ``importable`` folders are each side's own, and so none of it. Empty
    without a file.
    """
    if not file.is_file():
        return ""
    # The workload file comes first, whatever its name: it may have been renamed.
    parts = [_code(file)]
    for path in _neighbours(file, importable):
        parts += [
            path.relative_to(file.parent).as_posix().encode(errors="replace"),
            _code(path),
        ]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def changed_lines(
    base: Path, head: Path, *, importable: tuple[Collection[Path], Collection[Path]]
) -> list[str]:
    """The differences between the code of two harnesses: ``file:line`` of head for the
    first statement of every change.

    Files are named relative to the workload file; a removal is named by the statement
    now in its place.
    """
    # A workload file may have been renamed.
    before = {head.name: base}
    for path in _neighbours(base, importable[0]):
        before.setdefault(path.relative_to(base.parent).as_posix(), path)
    lines = []
    for file in [head, *_neighbours(head, importable[1])]:
        name = file.relative_to(head.parent).as_posix()
        old = before.get(name, base.parent / name)
        if file.suffix in SOURCE_SUFFIXES:
            lines += [
                f"{name}:{at}" for at, _ in changes(statements(old), statements(file))
            ]
        elif not old.is_file() or old.read_bytes() != file.read_bytes():
            lines.append(f"{name}:1")
    return lines


def _neighbours(file: Path, importable: Collection[Path]) -> list[Path]:
    """Everything in and below the folder of a workload file, which either side can
    import or read, but prose and bytecode.

    None where that folder is importable: then all of it is each side's own.
    """
    folder = file.parent.resolve()
    resolved = {path.resolve() for path in importable}
    if folder in resolved:
        return []
    own = {path for path in resolved if folder in path.parents}
    neighbours = []
    for path in sorted(folder.rglob("*")):
        is_code = path.suffix not in _PROSE and _BYTECODE not in path.parts
        if (
            is_code
            and path.is_file()
            and path != file.resolve()
            and own.isdisjoint(path.parents)
        ):
            neighbours.append(file.parent / path.relative_to(folder))
    return neighbours


def _code(file: Path) -> bytes:
    """A file's code without comments, docstrings and formatting; its bytes if it is not
    Python, or cannot be parsed.
    """
    if file.suffix in SOURCE_SUFFIXES and (tree := parse(file)) is not None:
        with suppress(RecursionError):  # too deep to be written out
            return ast.dump(tree).encode(errors="replace")
    return file.read_bytes()

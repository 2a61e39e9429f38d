"""Documents as files: checked on the way in and on the way out, written whole or not at
all.

Reading is a trust boundary: a document may come from a change request's own job. Every
refusal is a DocumentError that names the file, the place and the remedy.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import secrets
import stat
from collections.abc import Sized
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from perfgate.catalogue.names import RANKS_LOSS
from perfgate.document.decision import (
    DECISION_SCHEMA_VERSION,
    DecisionDocument,
)
from perfgate.document.joint import JointDecision
from perfgate.document.records import decode_record
from perfgate.document.run import RUN_SCHEMA_VERSION, RunDocument
from perfgate.document.samples import BlockColumns, KernelBlocks
from perfgate.document.schema import check_schema, convert_checked, keeps_bounds
from perfgate.document.strict_json import (
    DAMAGED,
    MAX_BYTES,
    MAX_VALUES,
    check_values,
    has_few_values,
    parse_json,
    refuse,
)
from perfgate.errors import DocumentError, PerfgateError
from perfgate.locale import Activity

Document = RunDocument | DecisionDocument | JointDecision
_Record = TypeVar("_Record", RunDocument, DecisionDocument)

# The file of each document's schema in schemas/, and its version.
_SCHEMAS: dict[type[Any], tuple[str, int]] = {
    RunDocument: ("run", RUN_SCHEMA_VERSION),
    DecisionDocument: ("decision", DECISION_SCHEMA_VERSION),
    JointDecision: ("joint", 1),
}
# No number of a job is smaller or larger in any base unit. A loss, which only informs,
# may be any number.
SMALLEST, LARGEST = 1e-30, 1e30
_BUG = "this is a bug in perfgate or in what it measured; please report it"


def read_run(path: Path) -> RunDocument:
    """Read a run document of this version. Raises DocumentError for anything else."""
    return parse_run(_read(path), name=str(path))


def read_decision(path: Path) -> DecisionDocument:
    """Read a decision document of this version.

    Raises DocumentError for anything else.
    """
    return parse_decision(_read(path), name=str(path))


def parse_run(data: bytes, *, name: str, complete: bool = False) -> RunDocument:
    """The run document in ``data``; ``name`` stands for the file in errors.

    With ``complete`` each field that perfgate writes has to be present: no default
    replaces one.
    """
    run = _parse(data, RunDocument, name, complete=complete)
    refuse_misfits(run, name=name)
    return run


def parse_canonical_run(
    data: bytes, *, name: str, most_values: int = MAX_VALUES
) -> RunDocument | None:
    """The run document that perfgate writes as exactly these bytes; None for other
    bytes, of which ``parse_run`` may read some.

    An earlier perfgate wrote it without the fields that were added since. A document of
    more than ``most_values`` values is not read.

    What is written as the bytes it was read from has the types of the record, no key
    twice and no further field, so only the bounds are left to check: a fifth of the
    time of jsonschema. Raises DocumentError for values that the schema refuses.
    """
    if not has_few_values(data, most_values):
        return None
    try:
        run = decode_record(data, RunDocument)
        written = msgspec.json.encode(run, order="deterministic")
        if written != data and not _only_lacks_fields(data, written):
            return None
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None
    if run.schema_version != RUN_SCHEMA_VERSION or not keeps_bounds(data):
        value = msgspec.json.decode(data)
        _refuse_other_versions(value, RunDocument, name)
        check_schema(value, "run", name=name, remedy=DAMAGED)
    refuse_misfits(run, name=name)
    return run


def _only_lacks_fields(data: bytes, written: bytes) -> bool:
    """Whether a JSON text differs from another one only by fields that it does not
    have.
    """
    value = msgspec.json.decode(data)
    is_compact = msgspec.json.encode(value) == data
    return is_compact and _is_part(value, msgspec.json.decode(written))


def _is_part(value: object, whole: object) -> bool:
    if isinstance(value, dict) and isinstance(whole, dict):
        return value.keys() <= whole.keys() and all(
            _is_part(member, whole[key]) for key, member in value.items()
        )
    if isinstance(value, list) and isinstance(whole, list):
        return len(value) == len(whole) and all(map(_is_part, value, whole))
    return type(value) is type(whole) and value == whole


def refuse_misfits(run: RunDocument, *, name: str) -> None:
    """Raise DocumentError for columns that do not fit each other, and for values that
    cannot have been measured.
    """
    for number, replicate in enumerate(run.pairs.replicates):
        for lane, blocks in (
            ("shapes", replicate.shapes),
            ("preprocess", replicate.preprocess),
        ):
            for shape, columns in blocks.items():
                if fault := misfit(columns):
                    refuse(
                        name,
                        f"$.replicates[{number}].{lane}.{ascii(shape)[1:-1][:200]}",
                        fault,
                        DAMAGED,
                    )
        for shape, kernels in replicate.kernels.items():
            if fault := misfit_of_kernels(kernels):
                refuse(
                    name,
                    f"$.replicates[{number}].kernels.{ascii(shape)[1:-1][:200]}",
                    fault,
                    DAMAGED,
                )
    for number, turn in enumerate(run.jobs.turns):
        for metric, value in turn.values.items():
            if metric != RANKS_LOSS and value and not SMALLEST <= abs(value) <= LARGEST:
                fault = f"{value:g} is outside what is measured, {SMALLEST:g} to {LARGEST:g}"
                refuse(
                    name,
                    f"$.turns[{number}].values.{ascii(metric)[1:-1][:200]}",
                    fault,
                    DAMAGED,
                )


def parse_decision(data: bytes, *, name: str) -> DecisionDocument:
    return _parse(data, DecisionDocument, name)


def write_document(path: Path, document: Document) -> None:
    """Check a document and write it, whole or not at all."""
    write_atomically(path, canonical_bytes(document, name=str(path)))


def content_sha256(document: Document) -> str:
    """The SHA-256 of a valid document's canonical bytes, and so of its file."""
    value = json.loads(msgspec.json.encode(document))
    same = msgspec.convert(value, type(document))
    return hashlib.sha256(msgspec.json.encode(same, order="deterministic")).hexdigest()


def canonical_bytes(document: Document, *, name: str) -> bytes:
    """The only bytes a document is written as.

    Raises DocumentError when it breaks its own schema.

    Records do not check their fields, so a 0 may stand for 0.0; the conversion turns
    both into the same bytes.
    """
    try:
        check_values(msgspec.to_builtins(document), name, remedy=_BUG)
        value = json.loads(msgspec.json.encode(document))
    except TypeError as error:  # e.g. a number of numpy's
        refuse(name, "$", str(error), _BUG)
    record: type[Any] = type(document)
    file, _ = _SCHEMAS[record]
    checked = convert_checked(value, record, file, name=name, remedy=_BUG)
    return msgspec.json.encode(checked, order="deterministic")


def write_text_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 text, whole or not at all.

    Raises PerfgateError when it cannot be written.
    """
    write_atomically(path, text.encode("utf-8", errors="replace"))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in its folder, make it durable, rename it: a
    reader sees all of it or none.

    Raises PerfgateError if it cannot be written; no temporary file is left then.
    """
    try:
        target = Path(os.path.realpath(path))
        # A rename would replace a folder, a pipe or /dev/null itself.
        if os.path.lexists(target) and not stat.S_ISREG(target.lstat().st_mode):
            raise PerfgateError(
                "{target} cannot be written: it is not a regular file; choose another path",
                target=target,
            )
        temporary = target.with_name(f".perfgate-{secrets.token_hex(8)}.tmp")
        try:
            descriptor = os.open(
                temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666
            )
            with open(descriptor, "wb") as file:  # noqa: PTH123
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PerfgateError(
            "{path} cannot be written: {error}; {remedy}",
            path=path,
            error=error.strerror or error,
            remedy=_remedy(error),
        ) from error
    except ValueError as error:  # a path with a NUL character
        raise PerfgateError(
            "{path!a} cannot be written: {error}; choose another path",
            path=str(path),
            error=error,
        ) from error
    # Make the rename durable. Some file systems refuse to sync a folder; the file
    # itself is whole either way.
    with suppress(OSError):
        descriptor = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _parse(
    data: bytes, record: type[_Record], name: str, *, complete: bool = False
) -> _Record:
    value = parse_json(data, name=name)
    _refuse_other_versions(value, record, name)
    file, _ = _SCHEMAS[record]
    document = convert_checked(value, record, file, name=name, remedy=DAMAGED)
    if complete and (path := left_out(value, document)):
        refuse(name, ascii(path)[1:-1][:200], "this field is missing", DAMAGED)
    return document


def _refuse_other_versions(value: Any, record: type[Any], name: str) -> None:
    file, version = _SCHEMAS[record]
    schema = f"perfgate/{file}"
    if not isinstance(value, dict):
        refuse(
            name, "$", f"an object was expected, not {type(value).__name__}", DAMAGED
        )
    if value.get("schema") != schema:
        written_schema = ascii(value.get("schema"))[:80]
        refuse(
            name,
            "$.schema",
            f"{written_schema} where {schema!r} was expected",
            "give the file that this command reads",
        )
    written = value.get("schema_version")
    if not isinstance(written, int) or isinstance(written, bool) or written < 0:
        refuse(
            name,
            "$.schema_version",
            f"a version number was expected, found {ascii(written)[:80]}",
            DAMAGED,
        )
    if written > version:
        newer = f"version {written} was written by a newer perfgate; this one reads version {version}"
        refuse(name, "$.schema_version", newer, "upgrade perfgate")
    if written < version:
        older = f"version {written} was written by an older perfgate; this one reads version {version}"
        refuse(name, "$.schema_version", older, "measure again with this perfgate")


def _read(path: Path) -> bytes:
    try:
        # Non-blocking, so that a pipe with no writer is refused instead of waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DocumentError(
                    "{path}: not a regular file; give the path of the document itself",
                    path=path,
                )
            if status.st_size > MAX_BYTES:
                refuse(
                    str(path),
                    "$",
                    f"{status.st_size} bytes, where at most {MAX_BYTES} are read",
                    DAMAGED,
                )
            with open(descriptor, "rb", closefd=False) as file:
                data = file.read(MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise DocumentError(
            "{path}: cannot be read ({error}); give the path of a perfgate document",
            path=path,
            error=error,
        ) from error
    if len(data) > MAX_BYTES:
        refuse(
            str(path),
            "$",
            f"more than {MAX_BYTES} bytes, and growing",
            "wait for its writer, then try again",
        )
    return data


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return Activity("free space there, or choose another folder")
    if error.errno == errno.ENOENT:
        return Activity("make its folder first")
    return Activity("choose a folder that can be written")


def left_out(value: Any, record: msgspec.Struct) -> str | None:
    """The JSON path of a field of ``record`` that is missing in ``value``, the parsed
    JSON it was read from; else None.
    """
    path = _left_out(value, msgspec.to_builtins(record))
    return None if path is None else f"${path}"


def _left_out(value: Any, whole: Any) -> str | None:
    """The path below ``value``; written on the way back, since hardly any document
    lacks a field.
    """
    if isinstance(whole, dict):
        absent = next((key for key in whole if key not in value), None)
        if absent is not None:
            return f".{absent}"
        for key, part in whole.items():
            if (
                isinstance(part, (dict, list))
                and (path := _left_out(value[key], part)) is not None
            ):
                return f".{key}{path}"
    else:
        for index, part in enumerate(whole):
            if (
                isinstance(part, (dict, list))
                and (path := _left_out(value[index], part)) is not None
            ):
                return f"[{index}]{path}"
    return None


def misfit(columns: BlockColumns) -> str | None:
    """The mismatch, None if all fit; samples are counted by the declared length, not
    unpacked.
    """
    blocks, calls = len(columns.calls), sum(columns.calls)
    times = columns.times
    worker = columns.worker
    conductor = columns.conductor
    device = columns.device
    whole = (columns.quad, columns.sequence, worker.start_ns, worker.end_ns)
    counted = (worker.involuntary_switches, worker.minor_faults)
    seen = (
        conductor.seen_ns,
        conductor.run_delay_ns,
        conductor.used_ns,
        conductor.out_of_turn_ns,
        conductor.waited_ns,
        conductor.asked_ns,
        conductor.conductor_delay_ns,
        worker.took_ns,
        worker.took_delay_ns,
    )
    reported: tuple[Sized, ...] = (
        device.throttled,
        device.power_capped,
        device.clock_share,
        device.foreign_processes,
    )
    if not blocks:
        return "columns without a block"
    if any(len(column) != blocks for column in (*whole, *counted)):
        return f"columns of different lengths, where {blocks} blocks ran"
    if any(
        len(column) not in (0, blocks) for column in (*seen, *worker.counts, *reported)
    ):
        return f"a column of what was seen of {blocks} blocks has another length"
    if min(columns.calls) < 1:
        return "a block without a call"
    if any(packed.count != calls for packed in times.arrays):
        return "not one sample a call"
    if any(end <= start for start, end in zip(worker.start_ns, worker.end_ns)):
        return "a block that ends before it starts"
    if any(column and min(column) < 0 for column in seen):
        return "a time below zero"
    if any(column and min(column) < 0 for column in worker.counts):
        return "a count below zero"
    return None


def misfit_of_kernels(kernels: KernelBlocks) -> str | None:
    """The mismatch of profiled blocks, None if all fit."""
    blocks = len(kernels.quad)
    if any(
        len(column) != blocks
        for column in (kernels.calls, kernels.busy_ns, kernels.work)
    ):
        return f"columns of different lengths, where {blocks} blocks were profiled"
    if len(kernels.cycles) not in (0, blocks):
        return f"cycles of {len(kernels.cycles)} of {blocks} profiled blocks"
    if min(kernels.calls, default=1) < 1:
        return "a profiled block without a call"
    if min([*kernels.busy_ns, *kernels.cycles], default=0) < 0:
        return "a time below zero"
    return None

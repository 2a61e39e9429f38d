"""Documents as files: checked on the way in and on the way out, written whole or not at all.

Reading is a trust boundary: a document may come from a change request's own job. Every refusal is a DocumentError that
names the file, the place and what to do.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar, Union

import jsonschema
import msgspec
import referencing
from jsonschema.exceptions import ValidationError, best_match

from perfgate.document.decision import DECISION_SCHEMA, DecisionDocument
from perfgate.document.run import RUN_SCHEMA, RunDocument
from perfgate.document.schema import load_schema
from perfgate.document.strict_json import DAMAGED, MAX_BYTES, check_values, parse_json, refuse
from perfgate.document.upgrade import CURRENT, UPGRADES, upgrade
from perfgate.errors import DocumentError, PerfgateError

Document = Union[RunDocument, DecisionDocument]
_Record = TypeVar("_Record", RunDocument, DecisionDocument)

_SCHEMAS: dict[type[Any], tuple[str, str]] = {
    RunDocument: (RUN_SCHEMA, "run"),
    DecisionDocument: (DECISION_SCHEMA, "decision"),
}
_BUG = "this is a bug in perfgate or in what it measured; please report it"


def read_run(path: Path, *, max_bytes: int = MAX_BYTES) -> RunDocument:
    """Read a run document of this or an older version. Raises DocumentError for anything else."""
    return parse_run(_read(path, max_bytes), name=str(path))


def read_decision(path: Path, *, max_bytes: int = MAX_BYTES) -> DecisionDocument:
    """Read a decision document of this or an older version. Raises DocumentError for anything else."""
    return parse_decision(_read(path, max_bytes), name=str(path))


def parse_run(data: bytes, *, name: str) -> RunDocument:
    """Return the run document in ``data``; ``name`` is what errors call it."""
    return _parse(data, RunDocument, name)


def parse_decision(data: bytes, *, name: str) -> DecisionDocument:
    """Return the decision document in ``data``; ``name`` is what errors call it."""
    return _parse(data, DecisionDocument, name)


def write_run(path: Path, run: RunDocument) -> None:
    """Check a run document and write it, whole or not at all."""
    write_atomically(path, canonical_bytes(run, name=str(path)))


def write_decision(path: Path, decision: DecisionDocument) -> None:
    """Check a decision document and write it, whole or not at all."""
    write_atomically(path, canonical_bytes(decision, name=str(path)))


def content_sha256(document: Document) -> str:
    """Return the SHA-256 of a document's canonical bytes, which is also that of its file."""
    return hashlib.sha256(canonical_bytes(document, name="the document")).hexdigest()


def canonical_bytes(document: Document, *, name: str) -> bytes:
    """Return the only bytes a document is written as. Raises DocumentError when it breaks its own schema.

    Records do not check their fields, so 0 may stand where 0.0 is meant; the conversion makes them one.
    """
    value = msgspec.to_builtins(document)
    check_values(value, name, remedy=_BUG)
    record: type[Any] = type(document)
    return msgspec.json.encode(_convert(value, record, name, remedy=_BUG), order="deterministic")


def write_text_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 text, whole or not at all. Raises PerfgateError when it cannot be written."""
    write_atomically(path, text.encode("utf-8", errors="replace"))


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file under a temporary name in its folder, make it durable, rename it: a reader sees all of it or none.

    Raises PerfgateError when it cannot be written; nothing of the attempt is left then.
    """
    try:
        target = Path(os.path.realpath(path))
        _refuse_special(target)
        temporary = target.with_name(f".perfgate-{secrets.token_hex(8)}.tmp")
        try:
            _write_durably(temporary, data)
            temporary.replace(target)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise PerfgateError(f"{path} cannot be written: {error.strerror or error}; {_remedy(error)}") from error
    except ValueError as error:  # a path with a NUL character
        raise PerfgateError(f"{str(path)!a} cannot be written: {error}; choose another path") from error
    _sync_folder(target.parent)


def _parse(data: bytes, record: type[_Record], name: str) -> _Record:
    schema, _ = _SCHEMAS[record]
    value = parse_json(data, name=name)
    value = upgrade(value, schema, name=name, current=CURRENT[schema], upgrades=UPGRADES[schema])
    return _convert(value, record, name, remedy=DAMAGED)


def _convert(value: Any, record: type[_Record], name: str, *, remedy: str) -> _Record:
    error = next(_validator(_SCHEMAS[record][1]).iter_errors(value), None)
    if error is not None:
        _refuse_invalid(error, name, remedy)
    try:
        return msgspec.convert(value, record)
    except msgspec.ValidationError as error:
        refuse(name, "$", str(error), remedy)


def _refuse_invalid(error: ValidationError, name: str, remedy: str) -> NoReturn:
    innermost = best_match([error]) or error
    message = innermost.message
    if len(message) > 300:  # jsonschema quotes the whole value, which may be the whole file
        message = f"{message[:150]} … {message[-150:]}"
    refuse(name, ascii(innermost.json_path)[1:-1][:200], message.encode("utf-8", "replace").decode(), remedy)


@cache
def _validator(name: str) -> Any:
    # An empty registry: jsonschema on its own fetches what a $ref points to over the network.
    return _FastValidator(load_schema(name), registry=referencing.Registry())


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check an array of integers at once (jsonschema takes 6 us for each); leave all else, errors too, to jsonschema."""
    if not (isinstance(items, dict) and items.keys() == {"type", "minimum", "maximum"} and _integers(instance, items)):
        yield from _PLAIN_ITEMS(validator, items, instance, schema)


def _integers(instance: Any, items: dict[str, Any]) -> bool:
    if items["type"] != "integer" or not isinstance(instance, list) or set(map(type, instance)) - {int}:
        return False
    return not instance or bool(items["minimum"] <= min(instance) and max(instance) <= items["maximum"])


_PLAIN_ITEMS = jsonschema.Draft202012Validator.VALIDATORS["items"]
_FastValidator: Any = jsonschema.validators.extend(jsonschema.Draft202012Validator, {"items": _items})


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        # Non-blocking, so that a pipe with no writer is refused instead of waited for.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:  # noqa: PTH123
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise DocumentError(f"{path}: not a regular file; give the path of the document itself")
            if status.st_size > max_bytes:
                refuse(str(path), "$", f"{status.st_size} bytes, where at most {max_bytes} are read", DAMAGED)
            return file.read(max_bytes + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL character
        raise DocumentError(
            f"{path}: cannot be read ({error}); give the path of a document that perfgate wrote"
        ) from error


def _refuse_special(target: Path) -> None:
    """Refuse to put a file in the place of a folder, a device or a pipe: a rename would replace /dev/null itself."""
    try:
        mode = target.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISREG(mode):
        raise PerfgateError(f"{target} cannot be written: it is not a regular file; choose another path")


def _write_durably(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """Make the rename durable. Some file systems refuse to sync a folder; the file itself is whole either way."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return "free space there, or choose another folder"
    if error.errno == errno.ENOENT:
        return "make its folder first"
    return "choose a folder that can be written"

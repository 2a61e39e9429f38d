"""The layout of a branch store: a small file for each entry and a compressed document
for each run, so writers never conflict.

    README.md, perfgate-store-v1          a description, and the version of this layout
    KIND/PROJECT/KEY-TAG.json             an entry: its kind, a hash of its key, and the id of a run or the time of a statement
    documents/ID.json.gz                  the document of a run

The paths contain all that a writer needs (the keys, and the run of each session), so it
reads no file.
"""

from __future__ import annotations

import gzip
import hashlib
import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from perfgate.document.history import moment
from perfgate.document.strict_json import MAX_BYTES, parse_json
from perfgate.errors import DocumentError, StoreError
from perfgate.judging.store.store import Entry, LogEntry, RunEntry, entry_name
from perfgate.locale import Activity

VERSION = 1
MAX_SMALL_BYTES = 8 * 1024 * 1024
DOCUMENTS = "documents/"
# The newest verdicts of a project's gates that a branch holds.
MOST_GATES = 2000

REMEDY = Activity(
    "restore an earlier commit of the branch, or delete the file from it; `perfgate baseline record` stores new runs"
)
_MARK = re.compile(r"perfgate-store-v([0-9]{1,6})")
_DOCUMENT = re.compile(r"documents/([0-9a-f]{64})\.json\.gz")
_RUN = re.compile(r"runs/[^/]+/[0-9a-f]{16}-([0-9a-f]{64})\.json")


def pack_document(data: bytes) -> bytes:
    """Compress a run document; the same document gives the same bytes."""
    return gzip.compress(data, mtime=0)


def unpack_document(packed: bytes, *, name: str) -> bytes:
    """Decompress a run document, at most MAX_BYTES of it.

    Raises StoreError if it cannot be read.
    """
    try:
        return zlib.decompressobj(wbits=31).decompress(packed, MAX_BYTES + 1)
    except zlib.error as error:
        raise StoreError(
            "{name} cannot be read ({error}); {remedy}",
            name=name,
            error=error,
            remedy=REMEDY,
        ) from error


def document_path(run_id: str) -> str:
    return f"{DOCUMENTS}{run_id}.json.gz"


def entries_prefix(kind: type[Entry], project: str) -> str:
    """The beginning of the paths of a project's entries of a kind."""
    return f"{entry_name(kind)}/{project_key(project)}/"


def key_prefix(project: str, entry: LogEntry) -> str:
    """The beginning of the path of an entry, which no entry with another key has."""
    return f"{entries_prefix(type(entry), project)}{_digest(msgspec.json.encode(entry.key).decode())[:16]}-"


def entry_path(project: str, entry: LogEntry) -> str:
    if isinstance(entry, RunEntry):
        tag = entry.run.id
    else:
        tag = re.sub("[^0-9]", "", entry.stated_at)[:14]
    return f"{key_prefix(project, entry)}{tag}.json"


def statement_time(path: str) -> str:
    """The time in the path of a statement; texts of times sort like times."""
    return path.rpartition("-")[2]


def project_key(project: str) -> str:
    """A unique file name for a project, for any characters in its name."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", project).strip("-").lower()[:40]
    return f"{readable or 'project'}-{_digest(project)[:12]}"


def parse_run_path(path: str) -> str | None:
    """The run id in the path of a run file; None for another file."""
    match = _RUN.fullmatch(path)
    return match[1] if match else None


def parse_document_path(path: str) -> str | None:
    """The run id in the path of a document; None for another file."""
    match = _DOCUMENT.fullmatch(path)
    return match[1] if match else None


def encode(entry: LogEntry) -> bytes:
    return msgspec.json.encode(entry) + b"\n"


def encode_list(records: Sequence[object]) -> bytes:
    return msgspec.json.format(msgspec.json.encode(records), indent=1) + b"\n"


def check_mark(paths: Iterable[str], *, name: str) -> None:
    """Raise StoreError for a branch that is not a store, or one of a newer perfgate."""
    versions: list[int] = []
    for path in paths:
        if mark := _MARK.fullmatch(path):
            versions.append(int(mark[1]))
    if not versions:
        raise StoreError(
            "{name} is not a store of perfgate; give the store another name in [store] path",
            name=name,
        )
    if max(versions) > VERSION:
        raise StoreError(
            "{name} was written by a newer perfgate (layout {layout}, this one knows {known}); upgrade perfgate",
            name=name,
            layout=max(versions),
            known=VERSION,
        )


def decode_run(data: bytes, path: str, *, name: str) -> RunEntry:
    """The entry of a run.

    Raises StoreError if it is damaged or has the path of another run.
    """
    entry = decode(data, RunEntry, name=name)
    try:
        moment(entry.run.started_at)
        for value in entry.values:
            if value.labels:
                msgspec.json.decode(value.labels, type=dict[str, str])
    except (ValueError, msgspec.ValidationError) as error:
        raise StoreError(
            "{name} is damaged: {error}; {remedy}",
            name=name,
            error=error,
            remedy=REMEDY,
        ) from error
    if path != entry_path(entry.run.project, entry):
        raise StoreError(
            "{name} is damaged: it holds run {run_id!a} of {project!a}; {remedy}",
            name=name,
            run_id=entry.run.id[:12],
            project=entry.run.project[:80],
            remedy=REMEDY,
        )
    return entry


def decode(data: bytes, kind: type[Entry], *, name: str) -> Entry:
    """The entry in a file. Raises StoreError if it is damaged."""
    try:
        value: Any = parse_json(data, name=name, max_bytes=MAX_SMALL_BYTES)
        return msgspec.convert(value, kind)
    except (DocumentError, msgspec.ValidationError) as error:
        why = str(error).removeprefix(f"{name}: ")
        raise StoreError(
            "{name} is damaged: {why}; {remedy}", name=name, why=why, remedy=REMEDY
        ) from error


def first_files() -> dict[str, bytes]:
    return {
        "README.md": _README.encode(),
        f"perfgate-store-v{VERSION}": b"A branch store of perfgate; see README.md.\n",
    }


def orphans(paths: Iterable[str]) -> set[str]:
    """The documents among the paths that no run refers to."""
    documents: dict[str, str] = {}
    runs: set[str] = set()
    for path in paths:
        if run_id := parse_run_path(path):
            runs.add(run_id)
        elif run_id := parse_document_path(path):
            documents[run_id] = path
    return {path for run_id, path in documents.items() if run_id not in runs}


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


_README = """\
# Performance history, kept by perfgate

This branch is the store of perfgate, a performance gate for PyTorch models: the measured runs of the main branch, the
regressions that people accepted, and the change points that were confirmed. perfgate reads it to tell what is worth
measuring side by side, and draws the weekly trend from it. It shares no history with the code, is never merged, and its own
history is cut from time to time, so that it does not grow for ever.

Do not edit it by hand. `perfgate baseline list`, `show`, `accepted` and `prune` read it and clean it up.

| path | what it holds |
|---|---|
| `runs/` | one small file a run: commit, device, testbed, values |
| `documents/` | the run documents with their raw samples, compressed; the name is the SHA-256 of the document |
| `acceptances/` | a small file each: intended regressions, with author, reason and end |
| `triages/` | the states that people gave main's regressions, with author and reason |
| `confirmations/` | change points that were measured side by side |
| `gates/` | the verdicts on changes, from which `perfgate trend` tells whether the gate should block |

# perfgate 保存的性能历史

本分支是 perfgate 的存储：主分支的测量结果、已被接受的性能回退，以及经过确认的变化点。perfgate
读取它来判断哪些指标值得并排测量，并据此绘制每周趋势。它与代码没有共同历史，从不合并；它自身的历史会不时截断，以免无限增长。

请勿手工编辑。请用 `perfgate baseline list`、`show`、`accepted` 和 `prune` 查看和清理。
"""

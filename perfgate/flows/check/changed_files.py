"""The files that a change touches: their changed statements, text for people, and files
that are always measured.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perfgate.conductor.code.changed_statements import (
    ChangedStatement,
    UncomparableError,
    changed_statements,
)
from perfgate.document.run import Side

# Text for people, wherever it lies. Other files may be data, settings or packages: a
# change of one is measured.
_PROSE = frozenset({".md", ".rst", ".adoc"})
# They run before lines can be seen, or say what is installed.
_UNSEEN_FILES = frozenset({"setup.py", "sitecustomize.py", "usercustomize.py"})
_MOST_FILES = 400


class ChangedFiles(NamedTuple):
    """What changed: ``statements`` by side and file, ``documents`` for people, and
    ``others``, which are always measured.
    """

    every: list[str]
    statements: Mapping[Side, Mapping[str, list[ChangedStatement]]]
    documents: list[str]
    others: list[str]
    one_sided: list[str]

    @property
    def can_be_seen(self) -> bool:
        """Whether a trial can show that the change is neither run nor read."""
        return bool(self.every) and not self.others and len(self.every) <= _MOST_FILES


def changed_files(
    base_tree: Path,
    head_tree: Path,
    changed: Sequence[str],
    *,
    always: Collection[str],
    excluded: Collection[str],
    taken_in: Collection[str] = (),
) -> ChangedFiles:
    """Sort the files that two checkouts do not share.

    Those in ``always`` define the measurement. A filter of perfgate.toml leaves out
    those in ``excluded``, and calls those in ``taken_in`` data, whatever their names
    say.
    """
    statements: dict[Side, dict[str, list[ChangedStatement]]] = {"base": {}, "head": {}}
    documents: list[str] = []
    remaining: list[str] = []
    one_sided: list[str] = []
    for file in changed:
        base, head = base_tree / file, head_tree / file
        if (base.is_file() or base.is_symlink()) != (
            head.is_file() or head.is_symlink()
        ):
            one_sided.append(file)
        path = PurePosixPath(file)
        if (
            file in always
            or not file.isprintable()
            or not _is_plain(base, head)
            or path.name in _UNSEEN_FILES
        ):
            remaining.append(file)
        elif path.suffix == ".py":
            try:
                removed, added = changed_statements(_content(base), _content(head))
            except (UncomparableError, OSError):
                remaining.append(file)
                continue
            statements["base"][file] = removed
            statements["head"][file] = added
        elif file in excluded or (
            path.suffix.lower() in _PROSE and file not in taken_in
        ):
            documents.append(file)
        else:
            remaining.append(file)
    return ChangedFiles(list(changed), statements, documents, remaining, one_sided)


def _is_plain(*versions: Path) -> bool:
    """Whether each version is a file or absent, and not all are absent."""
    is_there = False
    for path in versions:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            return False
        is_there = is_there or path.exists()
    return is_there


def _content(path: Path) -> bytes | None:
    if path.is_file():
        return path.read_bytes()
    return None

"""Folders and files of recordings on this machine, on a file system that a cluster shares, or on one of its nodes."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from perfgate.errors import UsageError


class Place(NamedTuple):
    """A path, and the node of a cluster if it is on a disk of that node alone; without one, every worker sees the path."""

    path: Path
    host: str | None = None

    def __str__(self) -> str:
        return str(self.path) if self.host is None else f"file://{self.host}{self.path}"


def place_of(text: str) -> Place:
    """A path, or file://HOST/PATH (RFC 8089). Raises UsageError for any other URL."""
    if "://" not in text:
        return Place(Path(text))
    url = urlsplit(text)
    if url.scheme != "file" or not url.path:
        raise UsageError(
            "{text}: write a path, or file://HOST/PATH for a folder on a node of the cluster",
            text=text,
        )
    host = None if url.netloc in ("", "localhost") else url.netloc
    return Place(Path(unquote(url.path)), host)

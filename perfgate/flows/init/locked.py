"""The packages that a project's own lock file fixes: uv.lock and poetry.lock."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.markers import InvalidMarker, Marker
from packaging.utils import canonicalize_name

from perfgate.errors import UsageError
from perfgate.toml import tomllib

_LOCK_FILES = ("uv.lock", "poetry.lock")
PUBLIC_INDEX = "https://pypi.org/simple"


@dataclass(frozen=True)
class Pin:
    """A package at one version, as a line of a lock file: ``text`` is the requirement, ``index`` its index.

    ``index`` is empty for the public one; ``version`` is empty for a URL. ``hashes`` cover all files of the package.
    ``is_closed`` means that all dependencies of the package are known; ``needs`` are those that the project's own lock file
    lists.
    """

    name: str
    text: str
    version: str = ""
    index: str = ""
    hashes: Sequence[str] = ()
    is_closed: bool = True
    needs: Sequence[str] = ()


def read_lock_file(folder: Path) -> Mapping[str, Pin]:
    """The packages by canonical name; empty without a lock file. Raises UsageError for a file that is not TOML."""
    for path in (folder / name for name in _LOCK_FILES):
        if path.is_file():
            try:
                tables = tomllib.loads(path.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise UsageError(
                    "{path} cannot be read: {error}; repair it and run this again",
                    path=path,
                    error=error,
                ) from error
            return {pin.name: pin for pin in _packages(tables.get("package", []))}
    return {}


def _packages(entries: Sequence[Mapping[str, Any]]) -> Iterator[Pin]:
    """The packages from an index that apply to this platform: uv lists a package once per platform-specific version."""
    for entry in entries:
        source = entry.get("source", {})
        registry = source.get("registry") or source.get("url", "")
        # poetry names no source for the public index; uv calls the project itself editable or virtual.
        is_local = set(source) & {"editable", "virtual", "directory", "path", "git"} or source.get("type") == "git"
        markers = entry.get("resolution-markers", [])
        if is_local or "version" not in entry or (markers and not any(map(_counts, markers))):
            continue
        files = [*entry.get("wheels", []), *entry.get("files", []), *filter(None, [entry.get("sdist")])]
        index = registry if registry.startswith("http") and registry.rstrip("/") != PUBLIC_INDEX else ""
        hashes = [file["hash"] for file in files if "hash" in file]
        name, version = canonicalize_name(entry["name"]), entry["version"]
        yield Pin(name, f"{name}=={version}", version, index, hashes, needs=list(_needs(entry)))


def _needs(entry: Mapping[str, Any]) -> Iterator[str]:
    listed = entry.get("dependencies", [])
    if isinstance(listed, Mapping):  # poetry: NAME = "VERSION", or a table with markers
        listed = [{"name": name, **(value if isinstance(value, Mapping) else {})} for name, value in listed.items()]
    for needed in listed:
        marker = needed.get("marker") or needed.get("markers") or ""
        if not needed.get("optional") and _counts(marker):
            yield canonicalize_name(needed["name"])


def _counts(marker: str) -> bool:
    try:
        return not marker or Marker(marker).evaluate({"extra": ""})
    except InvalidMarker:  # uv's own syntax for conflicting extras
        return False

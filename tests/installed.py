"""What pip leaves of an installation, for tests of what perfgate says it was installed from."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from perfgate import plugins
from perfgate.version import __version__


def write_installation(folder: Path, direct_url: dict[str, Any] | None) -> Path:
    """Write the record of an installed perfgate and return the folder to put first on Python's path."""
    return write_distribution(folder, "perfgate", __version__, direct_url=direct_url)


def write_distribution(
    folder: Path, name: str, version: str, *needs: str, direct_url: dict[str, Any] | None = None, module: str = ""
) -> Path:
    """Write the record of an installed distribution (PEP 376, PEP 610), with an empty module where one is named."""
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    (info / "METADATA").write_text("\n".join(lines) + "\n")
    if module:
        (folder / f"{module}.py").touch()
        (info / "top_level.txt").write_text(f"{module}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return folder


def from_git(url: str, commit: str) -> dict[str, Any]:
    """Return the record of `pip install git+URL@COMMIT`."""
    return {"url": url, "vcs_info": {"vcs": "git", "commit_id": commit, "requested_revision": commit}}


@contextmanager
def without_plugins() -> Iterator[None]:
    """Hide the packages that are installed beside perfgate, as if there were none."""
    path = sys.path[:]
    sys.path[:] = [place for place in path if "site-packages" not in place]
    _forget_plugins()
    try:
        yield
    finally:
        sys.path[:] = path
        _forget_plugins()


def _forget_plugins() -> None:
    for known in (plugins._group, plugins._may_be_named):
        known.cache_clear()

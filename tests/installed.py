"""What pip leaves of an installation, for tests of what perfgate says it was installed from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perfgate.version import __version__


def write_installation(folder: Path, direct_url: dict[str, Any] | None) -> Path:
    """Write the record of an installed perfgate (PEP 376, PEP 610) and return the folder to put first on Python's path."""
    info = folder / f"perfgate-{__version__}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: perfgate\nVersion: {__version__}\n")
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
    return folder


def from_git(url: str, commit: str) -> dict[str, Any]:
    """Return the record of `pip install git+URL@COMMIT`."""
    return {"url": url, "vcs_info": {"vcs": "git", "commit_id": commit, "requested_revision": commit}}

"""The distributions that the running interpreter can import."""

from __future__ import annotations

import importlib.metadata


def installed_packages() -> dict[str, str]:
    """Every installed distribution with its version, by name."""
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # A distribution parses all of its metadata for each question, `version` too.
        metadata = distribution.metadata
        # The first on the import path is imported. A half-removed package has no name.
        if metadata["Name"]:
            packages.setdefault(metadata["Name"], metadata["Version"])
    return dict(sorted(packages.items()))

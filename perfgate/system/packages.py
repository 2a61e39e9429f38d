"""The distributions that the running interpreter can import."""

from __future__ import annotations

import importlib.metadata


def installed_packages() -> dict[str, str]:
    """Every installed distribution with its version, by name."""
    packages: dict[str, str] = {}
    for distribution in importlib.metadata.distributions():
        # The first on the import path is imported. A half-removed package has no name.
        if name := distribution.metadata["Name"]:
            packages.setdefault(name, distribution.version)
    return dict(sorted(packages.items()))

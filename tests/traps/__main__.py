"""``python -m tests.traps``: write docs/traps.md from the tests."""

from __future__ import annotations

import importlib
import pkgutil

import tests.traps
from tests.traps.catalogue import PAGE, page


def import_all() -> None:
    """Import every module of traps, which fills the list."""
    for module in sorted(found.name for found in pkgutil.iter_modules(tests.traps.__path__)):
        if module.startswith("test_") and module != "test_page":
            importlib.import_module(f"tests.traps.{module}")


if __name__ == "__main__":
    import_all()
    PAGE.write_text(page(), encoding="utf-8")

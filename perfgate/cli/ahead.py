"""Import the modules that print an answer while it is computed: its loops release Python's lock."""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from threading import Thread


def import_meanwhile(*modules: str) -> None:
    """Import modules in a thread. An error is left to the import that needs them."""

    def work() -> None:
        for module in modules:
            with suppress(Exception):
                import_module(module)

    Thread(target=work, daemon=True).start()

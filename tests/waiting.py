"""What killed processes leave: nothing, but on a busy machine each takes its moment to be gone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

SECONDS = 60.0


def left_in_the_end(found: Callable[[], list[Any]]) -> list[Any]:
    """Return what is still found when nothing is, or after a minute: whoever is not killed stays longer."""
    deadline = time.monotonic() + SECONDS
    while (left := found()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return left


def wait_until(holds: Callable[[], object], seconds: float = SECONDS) -> None:
    """Wait until a condition holds, by default at most a minute: then the test fails."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it never came to hold"
        time.sleep(0.02)

"""Messages for the operator alone, on standard error, when the service cannot use its
store.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

# A store that is down fails every request.
_SECONDS_BETWEEN = 60.0


class TroubleLog:
    """Prints a trouble at once, and while it lasts once a minute."""

    def __init__(
        self,
        warn: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._warn = warn
        self._clock = clock
        self._lock = threading.Lock()
        self._last = ""
        self._printed = 0.0

    def note(self, trouble: str) -> None:
        with self._lock:
            now = self._clock()
            is_known = trouble == self._last and now - self._printed < _SECONDS_BETWEEN
            if not is_known:
                self._last = trouble
                self._printed = now
        if not is_known:
            self._warn(trouble)

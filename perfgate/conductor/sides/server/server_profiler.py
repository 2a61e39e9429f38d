"""The profiler that a server brings itself: vLLM and SGLang have ``POST /start_profile`` and ``/stop_profile``.

vLLM writes to the folder that its environment or settings name, SGLang to the folder in the request.
"""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path

# It is asked on a server that may lack it, and a wrong path answers at once; but the engine may be slow to begin.
_START_SECONDS = 30.0
# Its recording is written before it answers.
_STOP_SECONDS = 300.0


class ServerProfiler:
    """Switches the profiler of the server at ``url``; one that has none is left alone."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runs = False

    def start(self, folder: Path) -> bool:
        """Whether the server has a profiler, which now records."""
        settings = {
            "output_dir": str(folder),
            "activities": ["CPU", "GPU"],
            "with_stack": True,
            "record_shapes": True,
        }
        self._runs = self._post("/start_profile", settings, _START_SECONDS)
        return self._runs

    def stop(self) -> None:
        if self._runs:
            self._runs = False
            self._post("/stop_profile", {}, _STOP_SECONDS)

    def _post(self, path: str, settings: dict[str, object], timeout: float) -> bool:
        """Whether the server did it: it answers with an error without a profiler, or if none is configured."""
        request = urllib.request.Request(  # noqa: S310 - our own http address
            self._url + path,
            data=json.dumps(settings).encode(),
            headers={"Content-Type": "application/json"},
            method="POST",
        )
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:  # noqa: S310
                return bool(200 <= answer.status < 300)
        except OSError:
            return False

"""Change points by Apache Otava itself, in a process of a Python that has it: a line of
JSON in, a line out.

In are ``[values, min_magnitude]``, out the places of the changes to the slower.
Everything else is Otava's default.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


class OtavaProcess:
    """A process of a Python that has apache-otava; it is started by the first question."""

    def __init__(self, python: Path) -> None:
        self._python = python
        self._process: subprocess.Popen[str] | None = None

    def changes(self, values: list[float], min_magnitude: float) -> list[int]:
        if self._process is None:
            command = [str(self._python), __file__]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([values, min_magnitude]) + "\n")
        self._process.stdin.flush()
        found: list[int] = json.loads(self._process.stdout.readline())
        return found


def main() -> None:
    from otava.analysis import compute_change_points

    for line in sys.stdin:
        values, min_magnitude = json.loads(line)
        found: list[Any] = compute_change_points(values, min_magnitude=min_magnitude)[0]
        print(
            json.dumps(
                [int(one.index) for one in found if one.stats.mean_2 > one.stats.mean_1]
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()

"""The code that workers run: a checkout, and the fork server that it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from perfgate.config import MeasureSettings


class ServerKey(NamedTuple):
    """A fork server: the first or the second of an interpreter, by default of
    perfgate's own.
    """

    python: Path | None = None
    second: bool = False


@dataclass(frozen=True)
class Checkout:
    """Code to measure: ``root`` is the root of its imports, ``harness`` the folder of
    the workload files.

    Both sides use the head's harness, so that a change of the workload file itself
    cannot look like a change of speed. ``python`` is the interpreter that runs it, None
    perfgate's own; ``second_server`` takes its workers from another fork server of the
    same interpreter. ``measure`` are the settings of its own perfgate.toml, None if
    they are the bench's.
    """

    root: Path
    harness: Path
    python: Path | None = None
    second_server: bool = False
    measure: MeasureSettings | None = field(default=None, hash=False)

    @property
    def server(self) -> ServerKey:
        return ServerKey(self.python, self.second_server)

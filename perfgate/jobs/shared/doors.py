"""The ways out of the process that a flow is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from perfgate.judging.forge.limits import Clock, Sleep


@dataclass(frozen=True)
class Doors:
    """The process's environment, its output, its clock (seconds since the epoch)."""

    environ: Mapping[str, str]
    say: Callable[[str], None]
    sleep: Sleep
    clock: Clock

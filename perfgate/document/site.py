"""The content of the pages of main's history: trend, list of runs, acceptances, and two
runs compared with main's level.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from perfgate.document.history import Acceptance, Confirmation, GateRecord, StoredRun
from perfgate.document.records import FrozenStruct
from perfgate.document.trend import TrendDocument, TrendSeries

# The place of a value in the interval for one more version, or whether an exact count
# equals the earlier run's; no_spread: all versions have one value of a noisy number, so
# that its spread is not known yet.
Position = Literal[
    "inside", "above", "below", "same", "differs", "no_spread", "unknown"
]


class MachineRuns(FrozenStruct, kw_only=True):
    """The runs of a testbed: how many began in the last weeks, and the most seconds
    that one was stored before it began.
    """

    recent: int = 0
    seconds_ahead: float = 0.0


class SiteContent(FrozenStruct, kw_only=True):
    """Main's stored history as the pages show it; it is read once and shown by every
    page.

    ``runs`` are all runs, newest first. ``branches`` are, if runs of several branches
    are stored, the series of each branch alone. ``machines`` are the runs of each
    testbed by its fingerprint, ``devices`` the names of the devices, of testbeds with a
    readable run. ``gates`` are the verdicts on changes, newest first, and
    ``accepted_commits`` the commits with an accepted regression.
    """

    trend: TrendDocument
    runs: Sequence[StoredRun]
    branches: dict[str, list[TrendSeries]] = {}
    machines: dict[str, MachineRuns] = {}
    devices: dict[str, str] = {}
    acceptances: list[Acceptance] = []
    confirmations: list[Confirmation] = []
    gates: list[GateRecord] = []
    accepted_commits: set[str] = set()


class BesideLevel(FrozenStruct, kw_only=True):
    """One number of a stored run compared with main's level; None if the run does not
    have it.

    ``before`` is the number of the earlier of two runs; the level is then that run's.
    They were not measured side by side, so there is no difference. ``interval`` is the
    prediction interval for one more version of that level, of which ``versions`` are
    known, at level ``confidence``; None if they are too few. ``typical`` is their
    median.
    """

    series: TrendSeries
    value: float | None
    before: float | None = None
    versions: int = 0
    typical: float | None = None
    interval: tuple[float, float] | None = None
    confidence: float | None = None
    position: Position = "unknown"

    @property
    def is_apart(self) -> bool:
        """Whether the number lies outside the interval, or is another count."""
        return self.position in ("above", "below", "differs")

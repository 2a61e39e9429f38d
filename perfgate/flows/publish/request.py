"""The options of ``perfgate publish``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from perfgate.flows.shared.ci_artifact import DEFAULT_KEY
from perfgate.locale import Language

FailOn = Literal["undecided", "regression", "never"]


@dataclass(frozen=True)
class PublishRequest:
    """Which check is published, and in which form.

    ``key`` distinguishes several gates of one repository. ``workload`` is the only workload measured, if one was ordered
    alone; its comment and status must not replace the whole check's. ``testbeds`` are expected besides those in perfgate.toml.
    ``status`` sets or omits the commit status; None decides by the kind of pipeline. ``fail_on`` selects the verdicts that
    make the status red. ``out`` is the folder for decision, comment and report as judged here; with ``outputs`` the verdict
    becomes an output of the CI step. ``record`` keeps the verdict in the store of main's runs.
    """

    key: str = DEFAULT_KEY
    dry_run: bool = False
    language: Language = "en"
    workload: str | None = None
    testbeds: tuple[str, ...] = ()
    status: bool | None = None
    fail_on: FailOn = "undecided"
    out: Path | None = None
    outputs: bool = False
    record: bool = False

    @property
    def name(self) -> str:
        if self.workload:
            return f"{self.key}/{self.workload}"
        return self.key

    @property
    def only(self) -> tuple[str, ...]:
        """The ordered workloads, if not all were."""
        if self.workload:
            return (self.workload,)
        return ()

"""The answers to questions about a store that no other document gives, for assistants
and other programs.
"""

from __future__ import annotations

from perfgate.document.decision import Suggestion
from perfgate.document.history import GateHistory, GateRecord, StoredRun
from perfgate.document.records import FrozenStruct
from perfgate.document.site import BesideLevel
from perfgate.document.trend import TrendDocument


class StoredProject(FrozenStruct, kw_only=True):
    """A project of the store: its newest run, and the workloads, testbeds and branches
    of its newest ``looked_at`` runs.
    """

    project: str
    newest: StoredRun
    workloads: list[str]
    fingerprints: list[str]
    branches: list[str]
    looked_at: int


class ProjectList(FrozenStruct, kw_only=True):
    """The projects that the asker may read."""

    projects: list[StoredProject]


class RunComparison(FrozenStruct, kw_only=True):
    """Two stored runs compared with main's level, the numbers outside of it first; the
    series of the numbers have no points.

    They were not measured side by side, so there is no difference and no verdict.
    ``decide`` is the command that measures both commits on one machine; empty if a
    commit is not known. ``left_out`` is how many numbers are not in the list.
    """

    earlier: StoredRun
    later: StoredRun
    same_testbed: bool
    numbers: list[BesideLevel]
    left_out: int = 0
    decide: str = ""


class ChangeExplanation(FrozenStruct, kw_only=True):
    """The changes of main that begin at one commit.

    ``trend`` holds these changes alone, with the operators that run more often, the
    possible commits and the conditions of the runs; its series have only the points
    next to their changes, and the newest. ``next`` are the commands that confirm,
    bisect or accept each open regression.
    """

    trend: TrendDocument
    next: list[str] = []


class RunSuggestions(FrozenStruct, kw_only=True):
    """The remedies to try, from the findings of a stored run; ``sentences`` are the
    suggestions in words, in the same order.
    """

    run: StoredRun
    suggestions: list[Suggestion]
    sentences: list[str]


class GateVerdicts(FrozenStruct, kw_only=True):
    """The value of a project's gates, None if no verdict was kept, and the newest
    verdicts.
    """

    history: GateHistory | None
    newest: list[GateRecord]

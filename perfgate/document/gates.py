"""The verdicts of earlier gates: the store's record of each, and their summary."""

from __future__ import annotations

from typing import Annotated

import msgspec

from perfgate.document.decision import Verdict
from perfgate.document.history import Triage
from perfgate.document.records import FrozenStruct


class TwinEffect(FrozenStruct, kw_only=True):
    """Base against base in one gate: how much slower the second of two equal processes was, as a share.

    ``effect`` is the mean over all workloads and shapes of the medians of their ``pairs``; ``machine`` is the accelerator's
    identity or the host's name.
    """

    machine: Annotated[str, msgspec.Meta(max_length=200, pattern="^[A-Za-z0-9._:-]+$")]
    effect: Annotated[float, msgspec.Meta(gt=-1, lt=100)]
    pairs: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)]


class BiasedMachine(FrozenStruct, kw_only=True):
    """A machine on which base against base differs by ``effect`` on average of ``gates``; ``interval`` bounds it with 95 %.

    It is the difference from ``sister_gates`` on the other machines; from 0 without them.
    """

    machine: str
    effect: float
    interval: tuple[float, float]
    gates: int
    sister_gates: int = 0


class GateRecord(FrozenStruct, kw_only=True):
    """The verdict on one commit under review, of one testbed of a matrix or of the only machine (``testbed`` "").

    ``gate`` is the gate's key, ``change`` the number of the change request, 0 in a merge queue; ``judged_at`` is ISO 8601.
    ``link`` is the page of the report, or of the CI run that judged; empty if there is none. A later judgement of the same
    commit replaces it.
    """

    gate: str
    commit: str
    testbed: str = ""
    change: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)] = 0
    verdict: Verdict
    judged_at: str
    link: Annotated[
        str, msgspec.Meta(max_length=2000, pattern="^(https?://[^\\x00-\\x20]+)?$")
    ] = ""
    twins: TwinEffect | None = None

    @property
    def key(self) -> tuple[str, ...]:
        """The fields that distinguish it in a project."""
        return self.gate, self.commit, self.testbed

    @property
    def stated_at(self) -> str:
        return self.judged_at

    @property
    def subject(self) -> str:
        """The verdict and the commit, for an audit log."""
        return f"{self.verdict} of {self.commit}"


class GateHistory(FrozenStruct, kw_only=True):
    """The commits that a gate would have blocked so far: of ``gates`` commits ``failed`` would have failed.

    ``accepted`` regressions were accepted by a person; a failure is ``withdrawn`` if a later commit of the same change request
    no longer fails. ``standing`` are the newest verdicts on the others, newest first, and ``triages`` the states that people
    gave these commits. The gate is ``proven`` after ``needed`` gates without one. ``biased`` machines favour one side.
    """

    gates: int
    failed: int
    accepted: int
    withdrawn: int
    undecided: int
    needed: int
    proven: bool
    standing: list[GateRecord] = []
    triages: list[Triage] = []
    biased: list[BiasedMachine] = []

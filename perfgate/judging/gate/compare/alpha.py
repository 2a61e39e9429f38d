"""The gate's alpha, the chance of a false alarm of the whole gate, shared by everything that could give one.

All workloads and jobs of a gate have equal parts. That of a workload belongs to the families of its times by their shares and,
if a tolerance names them, to numbers of the checklist and to operators; that of a job belongs to its numbers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from perfgate.catalogue.lookup import FAMILIES
from perfgate.catalogue.records import Family
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.document.run import RunDocument

# Beside the shares of the families.
REPEATED_SHARE = 0.05
OPERATORS_SHARE = 0.2


class AlphaShares(NamedTuple):
    """``subject`` is the alpha of a workload or a job, ``unit`` that of a share of 1 of a workload."""

    subject: float
    unit: float

    @classmethod
    def of(cls, policy: Policy, *, subjects: int, repeats: bool) -> AlphaShares:
        """The shares if so many workloads and jobs are judged, and numbers of the checklist if it ``repeats`` them."""
        subject = policy.alpha / max(1, subjects)
        shares = sum(family.share for family in FAMILIES.values() if family.gating)
        if repeats:
            shares += REPEATED_SHARE
        if judges_subroutines(policy.tolerances):
            shares += OPERATORS_SHARE
        return cls(subject, subject / shares)

    def of_family(self, family: Family) -> float:
        return self.unit * family.share

    @property
    def of_repeated(self) -> float:
        return self.unit * REPEATED_SHARE

    @property
    def of_operators(self) -> float:
        return self.unit * OPERATORS_SHARE


def subjects_of(head: RunDocument, *, but: Iterable[str] = ()) -> int:
    """The workloads that were timed and the jobs of a run, ``but`` those with these names."""
    timed = {replicate.workload for replicate in head.replicates if replicate.arm == "ab"}
    jobs = {job.name for job in head.jobs}
    return len((timed | jobs) - {*but})

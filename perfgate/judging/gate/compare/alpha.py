"""The gate's alpha, the chance of a false alarm of the whole gate, shared by everything that could give one.

All workloads and jobs of a gate have equal parts. The part of a workload belongs to the families of its times by their shares
and, if a tolerance names them, to numbers of the checklist and to operators; the part of a job belongs to its numbers.
"""

from __future__ import annotations

from typing import NamedTuple

from perfgate.catalogue.lookup import FAMILIES
from perfgate.document.budget import judges_subroutines
from perfgate.document.decision import Policy
from perfgate.judging.gate.evidence.numbers import ALONE, JOB, REPEATED
from perfgate.judging.gate.evidence.tolerance import repeated_metrics

OPERATORS = "operators"
# In addition to the shares of the families.
_SHARES = {REPEATED: 0.05, OPERATORS: 0.2}


class AlphaShares(NamedTuple):
    """The errors of a gate: alpha of the ``gate``, of a ``subject``, which is a workload or a job, and of a share of 1 of a
    workload; and the error of an ``unchanged``.

    At an ``interim`` look alarms of pairs and turns are surer than at the end.
    """

    gate: float
    subject: float
    unit: float
    unchanged: float
    interim: bool = False

    @classmethod
    def of_subjects(
        cls, policy: Policy, *, subjects: int, interim: bool = False
    ) -> AlphaShares:
        """The shares for this number of workloads and jobs."""
        shares = sum(family.share for family in FAMILIES.values() if family.gating)
        if repeated_metrics(policy):
            shares += _SHARES[REPEATED]
        if judges_subroutines(policy.tolerances):
            shares += _SHARES[OPERATORS]
        subject = policy.alpha / max(1, subjects)
        return cls(policy.alpha, subject, subject / shares, policy.alpha_ok, interim)

    def of(self, family: str) -> float:
        """The alpha that the numbers of a family share in a workload or job."""
        if family == ALONE:
            return self.gate
        if family == JOB:
            return self.subject
        share = FAMILIES[family].share if family in FAMILIES else _SHARES[family]
        return self.unit * share

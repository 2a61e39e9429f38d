"""Regressions that somebody said are meant: shown, and no longer failing the gate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from perfgate.document.decision import Comparison
from perfgate.document.history import Acceptance
from perfgate.document.run import Source
from perfgate.judging.gate.policy import fits


def with_accepted(
    comparisons: Iterable[Comparison], head: Source, acceptances: Sequence[Acceptance]
) -> list[Comparison]:
    """Return the comparisons, those that were accepted for this very commit no longer gating.

    A wrong output is no regression that could be meant, and uncommitted changes are not what was accepted.
    """
    own = [] if head.dirty else [acceptance for acceptance in acceptances if acceptance.commit == head.commit]
    return [_accepted(comparison, own) for comparison in comparisons]


def _accepted(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Comparison:
    if not comparison.gating or comparison.outcome != "regressed" or comparison.method == "check":
        return comparison
    said = _fitting(comparison, acceptances)
    if said is None:
        return comparison
    return msgspec.structs.replace(comparison, gating=False, accepted=f"{said.accepted_by}: {said.reason}")


def _fitting(comparison: Comparison, acceptances: Iterable[Acceptance]) -> Acceptance | None:
    return next(
        (one for one in acceptances if fits(one.metric, comparison.metric, comparison.workload, comparison.shape)), None
    )

"""All comparisons of one session, in the order in which their evidence counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from perfgate.document.comparison import Comparison, Paired, Recorded
from perfgate.document.decision import Invalid, NoiseFloor, Policy
from perfgate.document.message import Message
from perfgate.judging.gate.compare.alpha import AlphaShares
from perfgate.judging.gate.compare.counters import compare_counters
from perfgate.judging.gate.compare.harmless_counts import with_costless
from perfgate.judging.gate.compare.head_rules import compare_rules
from perfgate.judging.gate.compare.jobs import compare_turns
from perfgate.judging.gate.compare.operators import judge_subroutines
from perfgate.judging.gate.compare.recordings import compare_kernel_times
from perfgate.judging.gate.compare.repeated import compare_repeated, repeated_metrics
from perfgate.judging.gate.compare.settings import compare_settings
from perfgate.judging.gate.compare.stretches import compare_stretches
from perfgate.judging.gate.compare.time import compare_time, noise_floors
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.trusted import TrustedNumbers
from perfgate.judging.gate.evidence.validity import invalid_times, invalid_turns


class SessionComparisons(NamedTuple):
    """The comparisons, the noise floors, and the places with times that prove nothing."""

    comparisons: list[Comparison]
    floors: list[NoiseFloor]
    invalid: list[Invalid]


def compare_sides(
    evidence: Evidence,
    policy: Policy,
    shares: AlphaShares,
    numbers: Mapping[str, TrustedNumbers],
    *,
    interim: bool = False,
) -> SessionComparisons:
    """Compare everything that one session measured on both sides; times that prove nothing are set aside.

    ``numbers`` are those of the jobs that the trusted side knows. At an ``interim`` look alarms are surer than at the end.
    """
    floors = noise_floors(evidence, policy)
    invalid = [*invalid_times(evidence), *_base_differs(floors), *invalid_turns(evidence)]
    of_turns = compare_turns(evidence, policy, shares.subject, numbers)
    times = [
        *compare_time(evidence, policy, floors, shares, interim=interim),
        *compare_stretches(evidence, policy, shares),
        *(row for row in of_turns if isinstance(row, Paired)),
    ]
    kernel_times: list[Recorded] = []
    if evidence.recorded:
        kernel_times = compare_kernel_times(evidence, policy)
    else:
        times += compare_repeated(evidence, policy, shares, interim=interim)
    comparisons: list[Comparison] = [
        *compare_rules(evidence.base, evidence.head, policy),
        *compare_counters(evidence, policy),
        *compare_settings(evidence),
        *kernel_times,
        *_without_invalid(times, invalid),
        *judge_subroutines(evidence, policy, shares.of_operators, invalid=invalid),
        *(row for row in of_turns if not isinstance(row, Paired)),
    ]
    return SessionComparisons(with_costless(comparisons, policy), floors, invalid)


def set_aside(comparison: Comparison, reason: Message) -> Comparison:
    """The comparison as one that proves nothing."""
    return msgspec.structs.replace(comparison, outcome="not_comparable", gating=False, reason=reason)


def _without_invalid(times: Iterable[Paired], invalid: Iterable[Invalid]) -> Iterator[Comparison]:
    reasons = {entry.place: entry.message for entry in invalid}
    for time in times:
        reason = reasons.get(time.place)
        yield time if reason is None else set_aside(time, reason)


def shares_of(policy: Policy, *, subjects: int) -> AlphaShares:
    return AlphaShares.of(policy, subjects=subjects, repeats=bool(repeated_metrics(policy)))


def _base_differs(floors: list[NoiseFloor]) -> list[Invalid]:
    """If the base differs from itself, a difference of the head proves nothing."""
    entries: dict[tuple[str, str], Invalid] = {}
    for floor in floors:
        if floor.differs:
            message = Message("gate.aa-differs", {"metric": floor.metric})
            entry = Invalid(workload=floor.workload, shape=floor.shape, kind="aa_differs", message=message)
            entries.setdefault(floor.place, entry)
    return list(entries.values())

"""Whether the verdicts of a gate in advisory mode justify letting it block."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfgate.document.history import Acceptance, GateHistory, GateRecord, Triage
from perfgate.judging.trend.machines import biased_machines

# Number of gates that is representative of a team's changes; `perfgate init` recommends
# advisory mode until then.
GATES_NEEDED = 20


class _Gate:
    """The verdicts of all testbeds on one commit."""

    def __init__(
        self, records: Sequence[GateRecord], accepted: Collection[str]
    ) -> None:
        self.newest = max(records, key=lambda record: record.judged_at)
        verdicts = {record.verdict for record in records}
        self.is_accepted = self.newest.commit in accepted
        # An accepted regression is judged again, and no longer fails then.
        self.has_failed = "FAIL" in verdicts or self.is_accepted
        self.is_undecided = not self.has_failed and "INCONCLUSIVE" in verdicts


def accepted_commits(
    acceptances: Sequence[Acceptance], triages: Sequence[Triage]
) -> set[str]:
    """The commits with an accepted or expected regression."""
    expected = {triage.commit for triage in triages if triage.state == "expected"}
    return {acceptance.commit for acceptance in acceptances} | expected


def gate_history(
    records: Sequence[GateRecord],
    acceptances: Sequence[Acceptance],
    triages: Sequence[Triage],
) -> GateHistory | None:
    """The verdicts together; None if none was kept."""
    if not records:
        return None
    accepted = accepted_commits(acceptances, triages)
    by_commit: dict[tuple[str, str], list[GateRecord]] = {}
    for record in records:
        by_commit.setdefault((record.gate, record.commit), []).append(record)
    gates = [_Gate(group, accepted) for group in by_commit.values()]
    accepted_failures = 0
    withdrawn = 0
    undecided = 0
    standing: list[GateRecord] = []
    for gate in gates:
        if gate.is_undecided:
            undecided += 1
        elif gate.is_accepted:
            accepted_failures += 1
        elif gate.has_failed and _is_withdrawn(gate.newest, gates):
            withdrawn += 1
        elif gate.has_failed:
            standing.append(gate.newest)
    standing.sort(key=lambda record: record.judged_at, reverse=True)
    states = {triage.commit: triage for triage in triages}
    return GateHistory(
        gates=len(gates),
        failed=accepted_failures + withdrawn + len(standing),
        accepted=accepted_failures,
        withdrawn=withdrawn,
        undecided=undecided,
        needed=GATES_NEEDED,
        proven=len(gates) >= GATES_NEEDED and not standing,
        standing=standing,
        triages=[
            states[record.commit] for record in standing if record.commit in states
        ],
        biased=biased_machines(records),
    )


def _is_withdrawn(failed: GateRecord, gates: Sequence[_Gate]) -> bool:
    """Whether a later commit of the same change request no longer fails."""
    if failed.change == 0:
        return False
    for gate in gates:
        later = gate.newest
        is_same_change = (later.gate, later.change) == (failed.gate, failed.change)
        if (
            is_same_change
            and later.judged_at > failed.judged_at
            and not gate.has_failed
            and not gate.is_undecided
        ):
            return True
    return False

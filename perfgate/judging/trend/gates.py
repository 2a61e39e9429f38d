"""Whether the verdicts of a gate in advisory mode justify letting it block."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfgate.document.decision import Verdict
from perfgate.document.gates import GateHistory, GateRecord
from perfgate.document.history import Acceptance, Triage

# Number of gates that is representative of a team's changes; `perfgate init` recommends advisory mode until then.
GATES_NEEDED = 20


class _Gate:
    """The verdicts of all testbeds on one commit."""

    def __init__(self, records: Sequence[GateRecord], accepted: Collection[str]) -> None:
        self.newest = max(records, key=lambda record: record.judged_at)
        self._verdicts: set[Verdict] = {record.verdict for record in records}
        self.is_accepted = self.newest.commit in accepted

    @property
    def has_failed(self) -> bool:
        # An accepted regression is judged again, and no longer fails then.
        return "FAIL" in self._verdicts or self.is_accepted

    @property
    def is_undecided(self) -> bool:
        return not self.has_failed and "INCONCLUSIVE" in self._verdicts

    @property
    def passes(self) -> bool:
        return not self.has_failed and not self.is_undecided


def accepted_commits(acceptances: Sequence[Acceptance], triages: Sequence[Triage]) -> set[str]:
    """The commits with an accepted or expected regression."""
    expected = {triage.commit for triage in triages if triage.state == "expected"}
    return {acceptance.commit for acceptance in acceptances} | expected


def gate_history(
    records: Sequence[GateRecord], acceptances: Sequence[Acceptance], triages: Sequence[Triage] = ()
) -> GateHistory | None:
    """The verdicts together; None if none was kept."""
    if not records:
        return None
    states = {triage.commit: triage for triage in triages}
    accepted = accepted_commits(acceptances, triages)
    by_commit: dict[tuple[str, str], list[GateRecord]] = {}
    for record in records:
        by_commit.setdefault((record.gate, record.commit), []).append(record)
    gates = [_Gate(group, accepted) for group in by_commit.values()]
    failed = [gate for gate in gates if gate.has_failed]
    accepted_failures = sum(gate.is_accepted for gate in failed)
    standing = [gate for gate in failed if not gate.is_accepted and not _is_withdrawn(gate, gates)]
    newest_first = [gate.newest for gate in standing]
    newest_first.sort(key=lambda record: record.judged_at, reverse=True)
    return GateHistory(
        gates=len(gates),
        failed=len(failed),
        accepted=accepted_failures,
        withdrawn=len(failed) - len(standing) - accepted_failures,
        undecided=sum(gate.is_undecided for gate in gates),
        needed=GATES_NEEDED,
        proven=len(gates) >= GATES_NEEDED and not standing,
        standing=newest_first,
        triages=[states[record.commit] for record in newest_first if record.commit in states],
    )


def _is_withdrawn(failed: _Gate, gates: Sequence[_Gate]) -> bool:
    """Whether a later commit of the same change request no longer fails."""
    record = failed.newest
    for gate in gates:
        later = gate.newest
        is_same_change = record.change > 0 and (later.gate, later.change) == (record.gate, record.change)
        if is_same_change and gate.passes and later.judged_at > record.judged_at:
            return True
    return False

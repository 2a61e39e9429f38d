"""Whether the verdicts of a gate in advisory mode justify letting it block."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from perfgate.document.decision import Verdict
from perfgate.document.gates import GateHistory, GateRecord
from perfgate.document.history import Acceptance, Triage

# So many gates show what a team's changes are like; `perfgate init` recommends advisory mode for as long.
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
    """The commits of which a person accepted a regression, or said that it is expected."""
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
    open_ones = [gate for gate in failed if not gate.is_accepted and not _is_withdrawn(gate, gates)]
    newest_first = sorted(open_ones, key=lambda gate: gate.newest.judged_at, reverse=True)
    return GateHistory(
        gates=len(gates),
        failed=len(failed),
        accepted=sum(gate.is_accepted for gate in failed),
        withdrawn=len(failed) - len(open_ones) - sum(gate.is_accepted for gate in failed),
        undecided=sum(gate.is_undecided for gate in gates),
        needed=GATES_NEEDED,
        proven=len(gates) >= GATES_NEEDED and not open_ones,
        standing=[gate.newest for gate in newest_first],
        triages=[states[gate.newest.commit] for gate in newest_first if gate.newest.commit in states],
    )


def _is_withdrawn(failed: _Gate, gates: Sequence[_Gate]) -> bool:
    """Whether a later commit of the same change request no longer fails."""
    here = failed.newest
    return here.change > 0 and any(
        gate.passes
        and (gate.newest.gate, gate.newest.change) == (here.gate, here.change)
        and gate.newest.judged_at > here.judged_at
        for gate in gates
    )

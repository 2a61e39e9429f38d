"""What differs between the stacks of both sides, the most telling first: testbed fields, then installed packages."""

from __future__ import annotations

from perfgate.document.decision import DecisionDocument, TestbedDifference

_FIRST = ("torch", "torch_npu", "python")


def stack_differences(decision: DecisionDocument) -> list[TestbedDifference]:
    """What differs, torch and Python first, then what only one side has last; a package twice counts once."""
    fields = {difference.field for difference in decision.testbed_differences}
    packages = [difference for difference in decision.package_differences if difference.field not in fields]
    return sorted(decision.testbed_differences, key=_rank) + sorted(packages, key=_rank)


def _rank(difference: TestbedDifference) -> tuple[int, bool]:
    rank = _FIRST.index(difference.field) if difference.field in _FIRST else len(_FIRST)
    return rank, difference.base is None or difference.head is None

"""The kinds of contributions to a change in time, and the share from which one explains the change."""

from __future__ import annotations

from perfgate.document.explanation import PartKind

# The share of a call's change from which a change in the work done is its cause, rather than operators that take longer.
EXPLAINS = 0.25


def kind_of_change(base_count: float, head_count: float, seconds: float) -> PartKind:
    """The kind of an operator's contribution, by its calls and the seconds that it adds."""
    if base_count == head_count:
        return "slower" if seconds > 0 else "faster"
    if base_count == 0:
        return "added"
    if head_count == 0:
        return "removed"
    return "more" if head_count > base_count else "fewer"

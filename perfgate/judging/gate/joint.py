"""The verdict of a matrix: several testbeds judge one change, and none of them can be left out."""

from __future__ import annotations

from collections.abc import Collection

from perfgate.document.decision import Verdict

# The first of these that a testbed has is the verdict of all. A testbed that was skipped, because no relevant
# file changed, does not count.
ORDER: tuple[Verdict, ...] = ("FAIL", "INCONCLUSIVE", "WARN", "PASS", "SKIPPED")


def joint_verdict(verdicts: Collection[Verdict]) -> Verdict:
    """FAIL if any testbed fails, else INCONCLUSIVE if any is undecided or missing."""
    return next(verdict for verdict in ORDER if verdict in verdicts)

"""What a change of the workload file changed about what is measured."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary


class Harness:
    """Every change, as the gate named it, for whatever the verdict."""

    order = 35
    drop = KEEP
    title = "workload file"
    template = "harness.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The changes that tell most, and how many more there are."""
        changes = summary.telling_harness_changes
        if not changes:
            return None
        return {"changes": changes[:_SHOWN], "more": max(0, len(changes) - _SHOWN)}


_SHOWN = 10
SECTION = Harness()

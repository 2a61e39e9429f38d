"""What to do when the gate could not decide, or did not look."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from perfgate.judging.report.headline import metric_name
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary, place

_SHOWN = 5


class Remedy:
    """The reasons of an INCONCLUSIVE, WARN or SKIPPED, and the next thing to do about each."""

    order = 30
    drop = KEEP
    title = "what to do"
    template = "remedy.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Optional[Mapping[str, object]]:
        """Return the reasons and what is known about the way out."""
        if summary.verdict not in {"INCONCLUSIVE", "WARN", "SKIPPED"}:
            return None
        return {"verdict": summary.verdict, **remedy(summary)}


def remedy(summary: Summary) -> dict[str, object]:
    """Return the values of ``shared/remedy.j2``."""
    decision = summary.decision
    needed = [c.pairs_needed for c in summary.inconclusive if c.pairs_needed is not None]
    return {
        "reasons": decision.reasons[:_SHOWN],
        "failed_sides": {failure.side for failure in summary.failures},
        "differs": bool(decision.testbed_differences),
        "unfit": [{"metric": metric_name(f.metric), "place": place(f.workload, f.shape)} for f in summary.unfit][
            :_SHOWN
        ],
        "undecided": bool(summary.inconclusive),
        "needed": max(needed, default=0),
        "pairs": decision.pairs,
        "suspected": summary.verdict == "WARN" and summary.worst is not None,
    }


SECTION = Remedy()

"""What could not be measured, with the end of its traceback."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import Failure
from perfgate.judging.report.headline import first_line
from perfgate.judging.report.messages import word
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.view import FailureView
from perfgate.judging.report.words import Words

_SHOWN = 3
_FEW = 10


class Failures:
    """Errors of base and head: which step or workload, how it failed, the last lines of the traceback."""

    order = 40
    drop = KEEP
    title = "errors"
    template = "failures.md.j2"
    numbered = False

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """The first failures in full."""
        if not summary.failures:
            return None
        listed = summary.failures[:_SHOWN]
        lines = 12 if summary.detail > _FEW else 4
        return {
            "failures": [worded_failure(failure) for failure in listed],
            "more": len(summary.failures) - len(listed),
            "lines": lines,
        }


def worded_failure(failure: Failure) -> FailureView:
    """One failure for a template; ``text`` is its traceback, or the end of its log."""
    error = failure.error
    return FailureView(
        side=Words(failure.side),
        workload=failure.workload,
        what=failure.what,
        kind=Words(error.kind),
        signal=error.signal,
        message=first_line(word(error.message)),
        text=error.traceback or error.log_tail,
    )


SECTION = Failures()

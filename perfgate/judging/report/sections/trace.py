"""Where the traces and their flame graph lie, and the command that repeats the decision."""

from __future__ import annotations

from collections.abc import Mapping

from perfgate.document.decision import Link
from perfgate.judging.report import format as formats
from perfgate.judging.report.section import KEEP
from perfgate.judging.report.summary import Summary
from perfgate.judging.report.view import FileView
from perfgate.judging.report.words import Words

_SHOWN = 4


class Trace:
    """Kept traces of both sides, the page that draws them, and the reproduce command."""

    order = 80
    drop = KEEP
    title = "trace"
    template = "trace.md.j2"
    numbered = True

    def fill(self, summary: Summary) -> Mapping[str, object] | None:
        """Links and command; a PASS and a SKIPPED need neither."""
        traces = [link for link in summary.decision.links if link.kind == "trace"]
        flames = [link for link in summary.decision.links if link.kind == "flamegraph"]
        command = summary.context.reproduce
        if summary.verdict in {"PASS", "SKIPPED"} or not (traces or command):
            return None
        return {
            "flame": _worded(flames[0]) if flames else None,
            "traces": [_worded(link) for link in traces[:_SHOWN]],
            "job_url": summary.context.job_url,
            "reproduce": command,
        }


def _worded(link: Link) -> FileView:
    return FileView(side=Words(link.side), path=link.path, size=formats.quantity(link.bytes, "B"))


SECTION = Trace()

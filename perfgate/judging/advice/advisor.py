"""Advisors, which plug-ins add: other tools' findings about recordings, merged with the
findings of the steps.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from perfgate.document.decision import Suggestion
from perfgate.document.message import Message, quote
from perfgate.document.run import Advisory, RunDocument


class Advised(NamedTuple):
    """An advisor's findings, and warnings if they are incomplete."""

    found: list[Advisory]
    warnings: list[Message]


class Advisor(Protocol):
    """A tool that analyses recordings; a module of the group ``perfgate.advisors``."""

    def advise(
        self, recording: Path, workload: str, say: Callable[[str], None]
    ) -> Advised:
        """Analyse a file or folder; no findings for a format that the tool does not
        read.
        """
        ...


def on_advisories(run: RunDocument) -> Iterator[Suggestion]:
    """Yield the suggestions of other tools on problems that no step of perfgate found
    in the same workload.
    """
    noticed: set[tuple[str, str]] = set()
    for step in run.checklist.steps:
        noticed |= {(step.workload, finding.rule) for finding in step.findings}
    for advisory in run.checklist.advisories:
        if any((advisory.workload, rule) in noticed for rule in advisory.rules):
            continue
        yield Suggestion(
            rule=advisory.category,
            workload=advisory.workload,
            message=quote(
                f"{advisory.category}: {advisory.description} {advisory.suggestion}".strip()
            ),
            evidence=advisory.evidence,
            source=advisory.source,
        )

"""Names in documents that this perfgate does not know, because a newer one wrote them: they are listed, and never judged."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from perfgate.catalogue.lookup import CARDS, MESSAGES, RULES, is_known
from perfgate.document.message import QUOTE, Message, MessageValue
from perfgate.document.run import RunDocument
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.version import __version__

MAX_NAMES = 20


def unknown_note(evidence: Evidence) -> list[Message]:
    """A note with the names that are not known; none if all are.

    A change request that upgrades perfgate is measured by the new version and judged by the base's version.
    """
    base, head = evidence.runs
    names = sorted({*_names(base), *_names(head)})
    if not names:
        return []
    listed = names[:MAX_NAMES]
    if len(names) > MAX_NAMES:
        listed.append(f"+{len(names) - MAX_NAMES}")
    values: dict[str, MessageValue] = {
        "ours": __version__,
        "theirs": head.perfgate_version,
        "names": listed,
    }
    return [Message("gate.not-judged-by-this-version", values)]


def _names(run: RunDocument) -> Iterator[str]:
    metrics: list[str] = []
    for counters in run.checklist.counters:
        metrics += [*counters.values, *counters.steady, *counters.unstable]
    for job in run.jobs.records:
        metrics += [number.metric for number in job.numbers]
    yield from (name for name in metrics if not is_known(name))
    # Steps beyond the gate's own cards come from other packages. Their values are shown, and never compared.
    own = [step for step in run.checklist.steps if step.number <= max(CARDS)]
    for step in own:
        if step.number not in CARDS:
            yield f"step {step.number}"
        for finding in step.findings:
            # A finding with its own message needs no rule of ours.
            if finding.message is None and finding.rule not in RULES:
                yield finding.rule
    for code in _codes(msgspec.to_builtins([run.warnings, own])):
        if code not in MESSAGES:
            yield code


def _codes(value: Any) -> Iterator[str]:
    """The codes of all messages below a value."""
    if isinstance(value, dict):
        if (
            value.keys() == {"code", "values"}
            and isinstance(value["code"], str)
            and value["code"] != QUOTE
        ):
            yield value["code"]
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from _codes(part)

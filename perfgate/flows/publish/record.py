"""Keep the verdicts of a gate in the store of main's runs, from which `perfgate trend` judges the gate."""

from __future__ import annotations

from datetime import datetime, timezone

from perfgate.document.gates import GateRecord
from perfgate.errors import ConfigError, StoreError
from perfgate.flows.publish.published import Published
from perfgate.flows.publish.trusted import TrustedInputs
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from perfgate.locale import sentence


def record_verdicts(published: Published, trusted: TrustedInputs, key: str, doors: Doors) -> None:
    """Store the verdict of every testbed under the gate's key; a skipped change is no gate.

    A store that refuses is reported in the log: the verdict stands without it.
    """
    event, change = trusted.event, trusted.change
    judged = [artifact for artifact in published.artifacts if artifact.decision.verdict != "SKIPPED"]
    if event is None or not judged:
        return
    judged_at = datetime.fromtimestamp(doors.clock(), timezone.utc).isoformat()
    records = [
        GateRecord(
            gate=key,
            commit=event.head_sha,
            testbed=artifact.testbed,
            change=change.number if change else 0,
            verdict=artifact.decision.verdict,
            judged_at=judged_at,
            link=event.report_url or event.job_url or "",
        )
        for artifact in judged
    ]
    try:
        config = trusted.settings.checked()
        if config is None:
            return
        open_project_store(config, doors.environ).append(config.project, records)
    except (ConfigError, StoreError) as error:
        doors.say(sentence("The verdict was not kept for `perfgate trend`: {error}", error=error.shown))
    else:
        doors.say(sentence("The verdict was kept for `perfgate trend`."))

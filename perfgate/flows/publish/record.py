"""Keep the verdicts of a gate in the store, from which `perfgate trend` judges whether the gate should block."""

from __future__ import annotations

from datetime import datetime, timezone

from perfgate.config import CONFIG_NAME, load_config
from perfgate.document.gates import GateRecord
from perfgate.errors import ConfigError, StoreError
from perfgate.flows.publish.judging import PublishCase
from perfgate.flows.publish.published import Published
from perfgate.flows.publish.request import PublishRequest
from perfgate.flows.shared.doors import Doors
from perfgate.flows.shared.store import open_project_store
from perfgate.locale import sentence


def record_verdicts(published: Published, case: PublishCase, request: PublishRequest, doors: Doors) -> None:
    """Store the verdict of every testbed. A store that refuses is reported in the log: the verdict stands without it.

    A skipped change is no gate, and one workload that was ordered alone does not stand for the whole check.
    """
    if request.workload or not (request.root / CONFIG_NAME).exists():
        return
    judged_at = datetime.fromtimestamp(doors.clock(), timezone.utc).isoformat()
    records = [
        GateRecord(
            gate=request.key,
            commit=case.event.head_sha,
            testbed=artifact.testbed,
            change=case.change.number if case.change else 0,
            verdict=artifact.decision.verdict,
            judged_at=judged_at,
            link=case.event.report_url or case.event.job_url or "",
        )
        for artifact in published.artifacts
        if artifact.decision.verdict != "SKIPPED"
    ]
    if not records:
        return
    try:
        config = load_config(request.root, environ=doors.environ)
        open_project_store(config, doors.environ).append(config.project, records)
    except (ConfigError, StoreError) as error:
        doors.say(sentence("The verdict was not kept for `perfgate trend`: {error}", error=error.shown))
    else:
        doors.say(sentence("The verdict was kept for `perfgate trend`."))

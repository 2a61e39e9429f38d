"""`GET /metrics` for Prometheus: the latest values of main on every testbed, and the
uploads since the service started.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from perfgate.document.decision import Verdict
from perfgate.document.history import GateRecord, StoredRun, moment
from perfgate.document.run import RunDocument
from perfgate.errors import StoreError, StoreRefusedError
from perfgate.judging.report.render.number_formats import (
    LabelledRun,
    ServiceFamily,
    openmetrics_of_runs,
)
from perfgate.judging.store.runs import stored_run
from perfgate.service.answers import described
from perfgate.service.callers import readable_projects
from perfgate.service.part import ServicePart
from perfgate.service.served_store import ServedStore

# OpenMetrics 1.0, "Protocol Negotiation".
MEDIA_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_MOST_DOCUMENTS = 1_000
# A skipped change is not a gate.
_JUDGED: tuple[Verdict, ...] = ("PASS", "WARN", "FAIL", "INCONCLUSIVE")


class Metrics(ServicePart):
    """The metrics of one store. ``recorded`` counts an upload."""

    def __init__(self, served: ServedStore) -> None:
        self._served = served
        self._lock = threading.Lock()
        self._uploads: Counter[str] = Counter()
        # Documents never change; documents of the newest runs are cached.
        self._documents: dict[str, RunDocument] = {}

    def router(self) -> APIRouter:
        router = APIRouter()
        text = described({"type": "string"}, media_type=MEDIA_TYPE.partition(";")[0])
        router.get(
            "/metrics",
            responses=text,
            summary="The latest values of main, for Prometheus.",
        )(self.metrics)
        return router

    def recorded(self, run: RunDocument, run_id: str) -> None:  # noqa: ARG002 - as all listeners
        with self._lock:
            self._uploads[run.project] += 1

    def metrics(self, request: Request) -> Response:
        uploads: dict[tuple[str, ...], float] = {}
        starts: dict[tuple[str, ...], float] = {}
        gates: dict[tuple[str, ...], float] = {}
        latest: list[StoredRun] = []
        for project in readable_projects(request, self._served.store()):
            with self._lock:
                uploads[project,] = float(self._uploads[project])
            # The newest run of each testbed, newest first.
            newest: dict[str, StoredRun] = {}
            for run in self._served.newest_runs(project):
                newest.setdefault(run.fingerprint, run)
                starts.setdefault((project,), moment(run.started_at).timestamp())
            latest += newest.values()
            verdicts = Counter(
                gate.verdict
                for gate in self._served.store().entries(project, GateRecord)
            )
            if verdicts:
                for verdict in _JUDGED:
                    gates[project, verdict] = float(verdicts[verdict])
        families = [
            ServiceFamily(
                "perfgate_uploads",
                "counter",
                "Runs uploaded since the service started",
                ("project",),
                uploads,
            ),
            ServiceFamily(
                "perfgate_last_run_timestamp_seconds",
                "gauge",
                "Start of the newest run of main",
                ("project",),
                starts,
            ),
            ServiceFamily(
                "perfgate_gates",
                "gauge",
                "Verdicts on changes that the store keeps, one for each commit and testbed",
                ("project", "verdict"),
                gates,
            ),
        ]
        return Response(
            openmetrics_of_runs(self._documents_of(latest), families),
            media_type=MEDIA_TYPE,
        )

    def _documents_of(self, latest: list[StoredRun]) -> Iterator[LabelledRun]:
        documents: dict[str, RunDocument] = {}
        for run in latest[:_MOST_DOCUMENTS]:
            document = self._documents.get(run.id) or self._read(run)
            if document is None:
                continue
            documents[run.id] = document
            yield {"project": run.project, "testbed": run.fingerprint[:12]}, document
        self._documents = documents

    def _read(self, run: StoredRun) -> RunDocument | None:
        """The document of a run; None for a damaged one, which must not hide the
        others.
        """
        try:
            return stored_run(self._served.store(), run.project, run.id)
        except StoreRefusedError:
            raise
        except StoreError:
            return None

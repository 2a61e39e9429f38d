"""A service over a store in a folder, behind a real server of HTTP in a thread of this process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from perfgate.flows.shared.artifacts import SERVED, open_artifacts_at
from perfgate.judging.store.artifacts import ArtifactStore
from perfgate.judging.store.backends.sql import SqlStore
from perfgate.judging.store.ledger import Ledger, TokenScope
from perfgate.service.admission import Admission
from perfgate.service.app import create_app
from perfgate.service.artifact_files import ArtifactFiles
from perfgate.service.ask_api import AskApi
from perfgate.service.asking import ServedSources
from perfgate.service.audit_page import AuditPage
from perfgate.service.callers import Authenticator
from perfgate.service.library import Library
from perfgate.service.mcp_server import McpPart
from perfgate.service.metrics import Metrics
from perfgate.service.project_sites import ProjectSites
from perfgate.service.run_recordings import RunRecordings
from perfgate.service.served_store import ServedStore
from perfgate.service.store_api import OnRecorded, StoreApi
from perfgate.service.triage_form import TriageForm
from perfgate.service.trouble_log import TroubleLog
from perfgate.service.webhook import Webhook
from perfgate.service.webhook_pages import WebhookPages

SERVER_TOKEN = "the-token-of-the-server"


class Client(requests.Session):
    """Requests by path, with a token or none; redirects are not followed."""

    def __init__(self, url: str, token: str | None) -> None:
        super().__init__()
        self._url = url
        self.trust_env = False
        if token:
            self.headers["Authorization"] = f"Bearer {token}"

    def request(self, method: str, url: str, *args: Any, **options: Any) -> requests.Response:  # type: ignore[override]
        address = url if url.startswith("http") else self._url + url
        return super().request(method, address, *args, **{"timeout": 60, **options, "allow_redirects": False})


class Listening:
    """Answers at ``url`` with the application that is set at the moment."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.application: ASGIApp | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self.application is not None
        await self.application(scope, receive, send)


@dataclass(frozen=True)
class Service:
    """What is served, its store, and the means to make tokens."""

    url: str
    store: SqlStore
    ledger: Ledger
    artifacts: ArtifactStore

    def token(self, project: str | None, scope: TokenScope = "write", name: str = "runner") -> str:
        return self.ledger.create_token(name, project, scope).secret

    def client(self, token: str | None = None) -> Client:
        return Client(self.url, token)


def serve_folder(
    listening: Listening,
    folder: Path,
    *recorded: OnRecorded,
    own: str | None = SERVER_TOKEN,
    artifacts: str | None = None,
    recordings: Path | None = None,
    warn: Callable[[str], None] = print,
    webhooks: Sequence[Webhook] = (),
    location: str = "",
) -> Service:
    """Serve the store at ``location``, by default in ``store.db``, and the artifacts in ``kept`` in the folder.

    ``own`` is the token of the server; None: open on this machine.
    """
    served = ServedStore(location or str(folder / "store.db"), folder, {})
    store = served.store()
    assert isinstance(store, SqlStore)
    metrics = Metrics(served)
    kept = open_artifacts_at(artifacts or str(folder / "kept"), {}, SERVED)
    library = Library(recordings) if recordings else None
    found = RunRecordings(library) if library else None
    authenticator = Authenticator(own, store.ledger())
    troubles = TroubleLog(warn)
    sites = ProjectSites(served, "en", artifacts=kept, run_recordings=found, recordings="", webhooks="")
    sources = ServedSources(folder, served, library, sites)
    app = create_app(
        [
            AskApi(sources),
            McpPart(sources),
            ArtifactFiles(kept),
            StoreApi(served, [metrics.recorded, *recorded]),
            metrics,
            sites,
            TriageForm(served, authenticator, "en", sites.wait),
            AuditPage(served, "en"),
            WebhookPages(webhooks, authenticator, served, "en"),
        ],
        troubles,
        "en",
    )
    listening.application = Admission(app, authenticator, troubles, "en")
    return Service(listening.url, store, store.ledger(), kept)


@contextmanager
def listening() -> Iterator[Listening]:
    """A server on a free port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        current = Listening(f"http://127.0.0.1:{listener.getsockname()[1]}")
        server = uvicorn.Server(uvicorn.Config(current, http="h11", ws="none", lifespan="off", log_config=None))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield current
        finally:
            server.should_exit = True
            thread.join(30)

"""The process of ``perfgate serve``: its socket, its token, and its end on a signal."""

from __future__ import annotations

import asyncio
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from perfgate.errors import UsageError
from perfgate.flows.shared.artifacts import SERVED, open_artifacts_at
from perfgate.locale import Language
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
from perfgate.service.part import ServicePart
from perfgate.service.project_sites import ProjectSites
from perfgate.service.recordings import RecordingPages
from perfgate.service.run_recordings import RunRecordings
from perfgate.service.served_store import ServedStore
from perfgate.service.store_api import StoreApi
from perfgate.service.triage_form import TriageForm
from perfgate.service.trouble_log import TroubleLog
from perfgate.service.webhook import Webhook, WebhookTarget
from perfgate.system.loopback import is_loopback_host

_SHORTEST_TOKEN = 16
_EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - to compare with
# The index of recordings, if a store is served too.
_RECORDINGS = "/recordings"
# Requests in progress at a signal may take this much longer.
_SECONDS_TO_END = 5
# A thread that needs the interpreter gets it after so long. With Python's own 5 ms, the one thread that writes to SQLite waits
# for the event loop at each of its statements, and all uploads wait for it: a quarter less were stored.
_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class ServeRequest:
    """The folder of recordings, the location of the store, or both; the address to listen on (port 0: any free one).

    ``artifacts`` is the location of the artifact store, "" for none.
    ``token`` None means that one is made if needed; ``root`` is the project's folder, for a store in a branch of it.
    """

    folder: Path | None
    store: str | None
    root: Path
    host: str
    port: int
    token: str | None
    language: Language
    is_open: bool = False
    artifacts: str = ""
    webhook: WebhookTarget | None = None


def serve(
    request: ServeRequest, environ: Mapping[str, str], say: Callable[[str], None], warn: Callable[[str], None]
) -> None:
    """Serve until interrupted; ``say`` receives the address. Raises UsageError if listening there fails."""
    if request.folder is not None and not request.folder.is_dir():
        raise UsageError("{path} is not a folder; name the one that the recordings lie in", path=request.folder)
    token = _token(request)
    served = ServedStore(request.store, request.root, environ) if request.store is not None else None
    authenticator = Authenticator(token, served.store().ledger() if served is not None else None)
    with _listener(request.host, request.port) as listener, _webhook(request, warn) as webhook:
        parts = _parts(request, environ, served, webhook, authenticator)
        troubles = TroubleLog(warn)
        application = Admission(create_app(parts, troubles), authenticator, troubles)
        sys.setswitchinterval(_SWITCH_SECONDS)
        name = socket.gethostname() if request.host in _EVERY_INTERFACE else request.host
        name = f"[{name}]" if ":" in name else name
        address = f"http://{name}:{listener.getsockname()[1]}/" + (f"?token={quote(token)}" if token else "")
        asyncio.run(_Server(application, lambda: say(address)).serve(sockets=[listener]))


def _parts(
    request: ServeRequest,
    environ: Mapping[str, str],
    served: ServedStore | None,
    webhook: Webhook | None,
    authenticator: Authenticator,
) -> list[ServicePart]:
    library = Library(request.folder) if request.folder is not None else None
    sources = ServedSources(request.root, served, library)
    parts: list[ServicePart] = []
    artifacts = open_artifacts_at(request.artifacts, environ, SERVED) if request.artifacts else None
    if served is not None:
        metrics = Metrics(served)
        sites = ProjectSites(
            served,
            request.language,
            recordings=_RECORDINGS if library is not None else "",
            artifacts=artifacts,
            run_recordings=RunRecordings(library) if library is not None else None,
        )
        recorded = [metrics.recorded, sites.recorded, *([webhook.recorded] if webhook else [])]
        form = TriageForm(served, authenticator, request.language, sites.wait)
        parts += [StoreApi(served, recorded), metrics, sites, form, AuditPage(served, request.language)]
    if library is not None:
        home = "/" if served is None else _RECORDINGS
        parts.append(RecordingPages(library, request.language, home=home))
    if artifacts is not None:
        parts.append(ArtifactFiles(artifacts))
    return [*parts, AskApi(sources), McpPart(sources)]


@contextmanager
def _webhook(request: ServeRequest, warn: Callable[[str], None]) -> Iterator[Webhook | None]:
    if request.webhook is None:
        yield None
        return
    webhook = Webhook(request.webhook, warn)
    try:
        yield webhook
    finally:
        webhook.close()


def _token(request: ServeRequest) -> str | None:
    if request.token is not None and len(request.token) < _SHORTEST_TOKEN:
        raise UsageError(
            "the token has {count} characters and could be guessed; use at least {least}",
            count=len(request.token),
            least=_SHORTEST_TOKEN,
        )
    if request.is_open and not is_loopback_host(request.host):
        raise UsageError(
            "--no-token gives access to everyone who can reach {host}; use it with 127.0.0.1 only", host=request.host
        )
    return None if request.is_open else request.token or secrets.token_urlsafe(24)


@contextmanager
def _listener(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family)
    except OSError as error:
        raise UsageError(
            "cannot listen on {host} port {port}: {error}; choose another by --port",
            host=host,
            port=port,
            error=error.strerror,
        ) from error
    with listener:
        yield listener


class _Server(uvicorn.Server):
    """Calls ``ready`` once requests are answered, and ends by itself on a signal.

    uvicorn's own handling raises the signal again afterwards, which would end the process by it.
    """

    def __init__(self, application: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                # No decision depends on a client's address, so no header may set it.
                proxy_headers=False,
                timeout_graceful_shutdown=_SECONDS_TO_END,
            )
        )
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

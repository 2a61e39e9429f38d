"""The process of ``perfgate serve``: its socket, its token, and its end on a signal."""

from __future__ import annotations

import asyncio
import gc
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import uvicorn
from starlette.types import ASGIApp

from perfgate.errors import StoreError, UsageError
from perfgate.flows.shared.artifacts import SERVED, open_artifacts_at
from perfgate.judging.report.text.templates import compile_pages
from perfgate.judging.store.ledger import Ledger
from perfgate.locale import Language, speaking
from perfgate.service.admission import Admission
from perfgate.service.app import create_app
from perfgate.service.artifact_files import ArtifactFiles
from perfgate.service.ask_api import AskApi
from perfgate.service.asking import ServedSources
from perfgate.service.audit_page import AuditPage
from perfgate.service.callers import Authenticator
from perfgate.service.connections import EndingConnection, allow_many_connections
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
from perfgate.service.webhook_pages import WEBHOOKS, WebhookPages
from perfgate.system.loopback import is_loopback_host

_SHORTEST_TOKEN = 16
_EVERY_INTERFACE = ("0.0.0.0", "::")  # noqa: S104 - to compare with
# The index of recordings, if a store is served too.
_RECORDINGS = "/recordings"
# Requests in progress at a signal may take this much longer.
_SECONDS_TO_END = 5
# The time after which a thread that needs the interpreter gets it. With Python's
# default of 5 ms, the thread that writes to SQLite waits for the event loop at each of
# its statements, and all uploads wait for it: 25 % fewer were stored.
_SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class ServeRequest:
    """The folder of recordings, the location of the store, or both; the address to
    listen on (port 0: any free port).

    ``artifacts`` is the location of the artifact store, "" for none. ``token`` None
    means that one is made if needed; ``root`` is the project's folder, for a store in a
    branch of it.
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
    webhooks: tuple[WebhookTarget, ...] = ()


def serve(
    request: ServeRequest,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    warn: Callable[[str], None],
) -> None:
    """Serve until interrupted; ``say`` receives the address.

    Raises UsageError if listening there fails.
    """
    if request.folder is not None and not request.folder.is_dir():
        raise UsageError(
            "{path} is not a folder; name the folder that contains the recordings",
            path=request.folder,
        )
    token = _token(request)
    served, authenticator = None, Authenticator(token)
    if request.store is not None:
        served = ServedStore(request.store, request.root, environ)
        ledger = served.store().ledger()
        _bring_up_to_date(ledger, warn)
        with speaking(request.language):
            compile_pages("site", "trend", "served")
        authenticator = Authenticator(token, ledger)
    with (
        listening(request.host, request.port) as listener,
        _webhooks(request, warn) as webhooks,
    ):
        parts = _parts(request, environ, served, webhooks, authenticator)
        troubles = TroubleLog(warn)
        language = request.language
        application = Admission(
            create_app(parts, troubles, language), authenticator, troubles, language
        )
        sys.setswitchinterval(_SWITCH_SECONDS)
        allow_many_connections()
        address = _address(request.host, listener.getsockname()[1], token)
        asyncio.run(
            _Server(application, lambda: say(address)).serve(sockets=[listener])
        )


def _bring_up_to_date(ledger: Ledger | None, warn: Callable[[str], None]) -> None:
    """Bring the tables of an older perfgate up to date; a service whose store cannot be
    opened starts, too.
    """
    if ledger is None:
        return
    try:
        ledger.bring_up_to_date()
    except StoreError as error:
        warn(error.shown)


def _address(host: str, port: int, token: str | None) -> str:
    if host in _EVERY_INTERFACE:
        host = socket.gethostname()
    if ":" in host:
        host = f"[{host}]"
    address = f"http://{host}:{port}/"
    if token:
        address += f"?token={quote(token)}"
    return address


def _parts(
    request: ServeRequest,
    environ: Mapping[str, str],
    served: ServedStore | None,
    webhooks: Sequence[Webhook],
    authenticator: Authenticator,
) -> list[ServicePart]:
    parts: list[ServicePart] = []
    library = None
    artifacts = None
    run_recordings = None
    sites = None
    if request.artifacts:
        artifacts = open_artifacts_at(request.artifacts, environ, SERVED)
        parts.append(ArtifactFiles(artifacts))
    if request.folder is not None:
        library = Library(request.folder)
        home = _RECORDINGS if served else "/"
        parts.append(RecordingPages(library, request.language, home=home))
        run_recordings = RunRecordings(library)
    if served is not None:
        metrics = Metrics(served)
        sites = ProjectSites(
            served,
            request.language,
            recordings=_RECORDINGS if library else "",
            webhooks=WEBHOOKS if webhooks else "",
            artifacts=artifacts,
            run_recordings=run_recordings,
        )
        recorded = [metrics.recorded, sites.recorded]
        recorded += [webhook.recorded for webhook in webhooks]
        if webhooks:
            parts.append(
                WebhookPages(webhooks, authenticator, served, request.language)
            )
        form = TriageForm(served, authenticator, request.language, sites.wait)
        # Routes are tried in order, and nearly all requests of a busy service are
        # uploads.
        parts = [
            StoreApi(served, recorded),
            *parts,
            metrics,
            sites,
            form,
            AuditPage(served, request.language),
        ]
    sources = ServedSources(request.root, served, library, sites)
    return [*parts, AskApi(sources), McpPart(sources)]


@contextmanager
def _webhooks(
    request: ServeRequest, warn: Callable[[str], None]
) -> Iterator[list[Webhook]]:
    webhooks = [Webhook(target, warn) for target in request.webhooks]
    try:
        yield webhooks
    finally:
        for webhook in webhooks:
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
            "--no-token gives access to everyone who can reach {host}; use it with 127.0.0.1 only",
            host=request.host,
        )
    if request.is_open:
        return None
    return request.token or secrets.token_urlsafe(24)


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    try:
        family, _, _, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        )[0]
        listener = socket.create_server(
            address,
            family=family,
            # "::" is every interface, those of IPv4 too.
            dualstack_ipv6=host == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise UsageError(
            "cannot listen on {host} port {port}: {error}; choose another by --port",
            host=host,
            port=port,
            error=error.strerror,
        ) from error
    # Accepted connections inherit it. asyncio sets it only where the socket names its
    # protocol, and without it the body of an answer waits 40 ms for the headers' ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listener:
        yield listener


class _Server(uvicorn.Server):
    """Calls ``ready`` once requests are answered, and ends by itself on a signal.

    uvicorn's own handling raises the signal again afterwards, which would end the
    process by it.
    """

    def __init__(self, application: ASGIApp, ready: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                application,
                http=EndingConnection,
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
        # What was imported lives as long as the process: collections, of which reading a
        # document causes some, need not walk over it.
        gc.freeze()
        if self.started:
            self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield

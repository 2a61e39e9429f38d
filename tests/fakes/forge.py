"""A forge on 127.0.0.1 that remembers comments, authors, statuses, pages and limits, in two dialects."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional, Protocol
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.openapi import Slice, load_slice

MAX_PAGE = 100


@dataclass(frozen=True)
class Account:
    """Who a token belongs to."""

    id: int
    login: str
    bot: bool


BOT = Account(1, "perfgate[bot]", bot=True)
PERSON = Account(7, "mallory", bot=False)
OTHER_BOT = Account(8, "dependency[bot]", bot=True)
BOT_TOKEN, PERSON_TOKEN = "bot-token-1f2e3d4c", "person-token-5a6b7c8d"


@dataclass
class StoredComment:
    id: int
    body: str
    author: Account
    system: bool = False


@dataclass(frozen=True)
class StoredStatus:
    sha: str
    state: str
    name: str
    description: str
    url: Optional[str]


@dataclass(frozen=True)
class StoredChange:
    """A change request: from which owner and branch, at which head."""

    number: int
    owner: str
    branch: str
    head_sha: str
    merge_sha: Optional[str] = None


@dataclass(frozen=True)
class Reply:
    status: int
    value: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    # A whole list, of which the server sends one page.
    items: Optional[list[Any]] = None


@dataclass(frozen=True)
class Call:
    """A request as it arrived; ``path`` is still encoded."""

    method: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


class Dialect(Protocol):
    root: str
    slice_file: str
    default_page: int

    def answer(self, forge: FakeForge, call: Call, path: str, account: Account) -> Reply: ...


class FakeForge:
    """Start with ``with FakeForge(dialect) as forge``; ``violations`` must be empty at the end."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.slice: Optional[Slice] = load_slice(dialect.slice_file)
        self.accounts = {BOT_TOKEN: BOT, PERSON_TOKEN: PERSON}
        self.comments: dict[int, list[StoredComment]] = {}
        self.statuses: list[StoredStatus] = []
        self.changes: list[StoredChange] = []
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self._script: list[tuple[str, Reply]] = []
        self._next_id = 1000
        self._lock = threading.Lock()

    def __enter__(self) -> FakeForge:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.api_url = self.url + self.dialect.root
        # Where clients think the API is: a proxy may stand before it.
        self.public_api_url = self.api_url
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def script(self, method: str, *replies: Reply) -> None:
        """Answer the next requests of a method with these, then as usual."""
        self._script += [(method, reply) for reply in replies]

    def write(self, number: int, body: str, author: Account, *, system: bool = False) -> StoredComment:
        """Write a comment as somebody."""
        self._next_id += 1
        comment = StoredComment(self._next_id, body, author, system)
        self.comments.setdefault(number, []).append(comment)
        return comment

    def respond(self, call: Call) -> Reply:
        """Return the answer to a request; both are judged by the API description."""
        with self._lock:
            self.calls.append(call)
            scripted = next((entry for entry in self._script if entry[0] == call.method), None)
            if scripted is not None:
                self._script.remove(scripted)
                return scripted[1]
            account = self.accounts.get(call.headers.get("authorization", "").removeprefix("Bearer "))
            if account is None or not call.path.startswith(self.dialect.root):
                return Reply(401, {"message": "401 Unauthorized"})
            reply = self.dialect.answer(self, call, call.path[len(self.dialect.root) :], account)
            reply = self._page(call, reply) if reply.items is not None else reply
            self._judge(call, reply)
            return reply

    def _page(self, call: Call, reply: Reply) -> Reply:
        size = min(int(call.query.get("per_page", self.dialect.default_page)), MAX_PAGE)
        page = int(call.query.get("page", 1))
        items = reply.items or []
        links = {}
        if page * size < len(items):
            query = "&".join(f"{k}={v}" for k, v in {**call.query, "page": page + 1}.items())
            here = self.public_api_url + call.path[len(self.dialect.root) :]
            last = f'<{here}?per_page={size}&page=99>; rel="last"'
            links = {"Link": f'<{here}?{query}>; rel="next", {last}'}
        return Reply(reply.status, items[(page - 1) * size : page * size], links)

    def _judge(self, call: Call, reply: Reply) -> None:
        # GET /user is a documented call on both forges; GitLab's slice leaves it out.
        if self.slice is None or call.path == "/api/v4/user":
            return
        what = f"{call.method} {call.path}: "
        wrong = self.slice.request_errors(call.method, call.path, call.query, call.body) if reply.status < 400 else []
        body = json.dumps(reply.value).encode()
        wrong += self.slice.answer_errors(call.method, call.path, call.query, call.body, reply.status, body)
        self.violations += [what + error for error in wrong]


def _handler(forge: FakeForge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            reply = forge.respond(Call(self.command, parts.path, dict(parse_qsl(parts.query)), body, headers))
            data = reply.value if isinstance(reply.value, bytes) else json.dumps(reply.value).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = _serve  # noqa: N815 - the names http.server asks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler

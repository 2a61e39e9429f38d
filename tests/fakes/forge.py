"""A forge on 127.0.0.1 that remembers comments, authors, statuses, pages and limits, in the dialects of five forges."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qs, urlsplit

from tests.fakes.forge_files import Blobs, StoredArtifact, basic_token, git, serve_git
from tests.fakes.forge_issues import StoredIssue
from tests.fakes.openapi import load_slice

if TYPE_CHECKING:
    from tests.fakes.openapi_slice import Slice

MAX_PAGE = 100


@dataclass(frozen=True)
class Account:
    """Who a token belongs to."""

    id: int
    login: str
    bot: bool


BOT = Account(1, "github-actions[bot]", bot=True)
PERSON = Account(7, "mallory", bot=False)
OTHER_BOT = Account(8, "dependency[bot]", bot=True)
APP = Account(9, "our-app[bot]", bot=True)
BOT_TOKEN, PERSON_TOKEN, APP_TOKEN = "bot-token-1f2e3d4c", "person-token-5a6b7c8d", "app-token-9c0b1a2f"
# What a token of GitHub may write, and what a member of a GitLab project is.
RIGHTS = frozenset({"comments", "issues", "statuses"})
ROLES = ("guest", "reporter", "developer", "maintainer")


@dataclass
class StoredComment:
    id: int
    body: str
    author: Account
    system: bool = False
    edited: bool = False


@dataclass(frozen=True)
class StoredStatus:
    sha: str
    state: str
    name: str
    description: str
    url: str | None


@dataclass(frozen=True)
class StoredChange:
    """A change request: from which owner and branch, at which head, into which branch, and which files it touches."""

    number: int
    owner: str
    branch: str
    head_sha: str
    merge_sha: str | None = None
    base_sha: str = "b" * 40
    target: str = "main"
    open: bool = True
    files: tuple[str, ...] = ("model.py",)
    # How many of the files the forge lists, where its limits cut the list.
    listed: int | None = None
    # The owner of the branch, unless it is somebody else.
    author: str | None = None


@dataclass
class StoredPipeline:
    """A pipeline of GitLab: the states of its jobs by name, those that came as a commit status among them.

    ``variables`` are those of one that was started by the API.
    """

    id: int
    sha: str
    jobs: dict[str, str] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        return "failed" if "failed" in self.jobs.values() else "success"


@dataclass(frozen=True)
class Reply:
    status: int
    value: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    # A whole list, of which the server sends one page; ``envelope`` names the field it stands in, beside the total.
    items: list[Any] | None = None
    envelope: str | None = None


@dataclass(frozen=True)
class Fault:
    """What goes wrong with one request: an answer instead of the usual one, or none where ``reply`` is None.

    With ``done`` the forge does what it is asked before.
    """

    method: str
    path: str
    reply: Reply | None = None
    done: bool = False


@dataclass(frozen=True)
class Call:
    """A request as it arrived; ``path`` is still encoded. A name that stands several times in the query is a list."""

    method: str
    path: str
    query: dict[str, Any]
    body: bytes
    headers: dict[str, str]

    def json(self) -> Any:
        return json.loads(self.body)


class Dialect(Protocol):
    """``slice_file`` is None where there is no API description to judge by; ``undescribed`` is what of the root it lacks.

    ``scheme`` stands before the token, and other people's clients may use ``accepted`` ones; ``page_size`` is the query's word
    for it (None: lists come whole); ``links`` tells whether a page names the next one.
    """

    root: str
    undescribed: str
    slice_file: str | None
    default_page: int
    scheme: str
    accepted: tuple[str, ...]
    page_size: str | None
    links: bool

    def answer(self, forge: FakeForge, call: Call, path: str, account: Account) -> Reply: ...


class FakeForge:
    """Start with ``with FakeForge(dialect) as forge``; ``violations`` must be empty at the end.

    ``repository`` is a git repository on this machine: what the forge says of commits is true of it, and it can be fetched
    from ``url``/team/model.git with a token.
    """

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.slice: Slice | None = load_slice(dialect.slice_file) if dialect.slice_file else None
        self.accounts = {BOT_TOKEN: BOT, PERSON_TOKEN: PERSON, APP_TOKEN: APP}
        self.comments: dict[int, list[StoredComment]] = {}
        self.statuses: list[StoredStatus] = []
        self.changes: list[StoredChange] = []
        # Who has which role in the repository; nobody else has one.
        self.roles: dict[str, str] = {}
        # What the bot's token may write on GitHub, and which role it has on GitLab: what docs/permissions.md asks for.
        self.rights = set(RIGHTS)
        self.membership = "reporter"
        # Commits that are in no change request and no repository, and are known all the same.
        self.commits: set[str] = set()
        self.pipelines: list[StoredPipeline] = []
        # Which role a pipeline with variables takes (GitLab, "Minimum role to use pipeline variables").
        self.variables_role = "developer"
        # What notes and descriptions ordered GitLab to do, with the rights of who wrote them.
        self.orders: list[tuple[str, str]] = []
        # A job's own token reads; GitLab refuses what it writes.
        self.job_tokens: set[str] = set()
        self.calls: list[Call] = []
        self.violations: list[str] = []
        self.artifacts: list[StoredArtifact] = []
        self.issues: list[StoredIssue] = []
        self.blobs = Blobs()
        self.repository: Path | None = None
        self.faults: list[Fault] = []
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
        self.blobs.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self.blobs.stop()

    def upload(self, run: int, name: str, data: bytes, *, expired: bool = False) -> StoredArtifact:
        """Keep an artifact of a run (on GitLab: of a pipeline); ``data`` is the zip that is downloaded."""
        self._next_id += 1
        artifact = StoredArtifact(self._next_id, run, name, data, expired)
        self.artifacts.append(artifact)
        return artifact

    def script(self, method: str, *replies: Reply) -> None:
        """Answer the next requests of a method with these, then as usual."""
        self._script += [(method, reply) for reply in replies]

    def write(self, number: int, body: str, author: Account, *, system: bool = False) -> StoredComment:
        """Write a comment as somebody."""
        self._next_id += 1
        comment = StoredComment(self._next_id, body, author, system)
        self.comments.setdefault(number, []).append(comment)
        return comment

    def may(self, account: Account, right: str) -> bool:
        """Return whether an account may write something on GitHub."""
        return account is not BOT or right in self.rights

    def is_at_least(self, account: Account, role: str) -> bool:
        """Return whether an account has a role on GitLab, or a higher one. Only the bot's is in question."""
        return account is not BOT or ROLES.index(self.membership) >= ROLES.index(role)

    def is_talk(self, number: int) -> bool:
        """Return whether there is a change request or an issue to comment on."""
        return any(number == one.number for one in (*self.changes, *self.issues))

    def knows(self, sha: str) -> bool:
        """Return whether a commit is in the repository, or in a fork of it."""
        named = {one for change in self.changes for one in (change.head_sha, change.merge_sha, change.base_sha)}
        return sha in named | self.commits or (
            self.repository is not None and git(self.repository, "cat-file", "-t", sha) == "commit"
        )

    def remove(self, comment_id: int) -> None:
        """Delete a comment, whoever wrote it."""
        for comments in self.comments.values():
            comments[:] = [comment for comment in comments if comment.id != comment_id]

    def respond(self, call: Call) -> Reply | None:
        """Return the answer to a request, None to drop the connection; both are judged by the API description."""
        with self._lock:
            self.calls.append(call)
            fault = next((one for one in self.faults if one.method == call.method and one.path in call.path), None)
            if fault is not None:
                self.faults.remove(fault)
                if fault.done:
                    self._usual(call)
                return fault.reply
            scripted = next((entry for entry in self._script if entry[0] == call.method), None)
            if scripted is not None:
                self._script.remove(scripted)
                return scripted[1]
            return self._usual(call)

    def _usual(self, call: Call) -> Reply:
        account = self._account(call)
        # An address lands in logs, so no token may stand in one.
        self.violations += [
            f"{call.path}: a token in the query" for value in call.query.values() if str(value) in self.accounts
        ]
        if account is None or not call.path.startswith(self.dialect.root):
            return Reply(401, {"message": "401 Unauthorized"})
        reply = self.dialect.answer(self, call, call.path[len(self.dialect.root) :], account)
        reply = self._page(call, reply) if reply.items is not None else reply
        self._judge(call, reply)
        return reply

    def _account(self, call: Call) -> Account | None:
        scheme, _, token = call.headers.get("authorization", "").partition(" ")
        if not token and "PRIVATE-TOKEN" in self.dialect.accepted:
            token, scheme = call.headers.get("private-token", ""), self.dialect.scheme
            job = call.headers.get("job-token", "")
            if job in self.job_tokens:
                return PERSON if call.method == "GET" else None
        return self.accounts.get(token) if scheme in (self.dialect.scheme, *self.dialect.accepted) else None

    def git(self, call: Call, query: str) -> tuple[int, dict[str, str], bytes] | None:
        """Return the answer of the repository's own server, None where the request is none of git's."""
        prefix = "/team/model.git"
        if not call.path.startswith(prefix + "/"):
            return None
        with self._lock:
            self.calls.append(call)
        if self.repository is None:
            return 404, {}, b""
        if basic_token(call.headers.get("authorization", "")) not in self.accounts:
            return 401, {"WWW-Authenticate": 'Basic realm="git"'}, b""
        path = call.path[len(prefix) :]
        answer: tuple[int, dict[str, str], bytes] = serve_git(
            self.repository, call.method, path, query, call.body, call.headers
        )
        return answer

    def _page(self, call: Call, reply: Reply) -> Reply:
        items = reply.items or []
        if self.dialect.page_size is None:
            return Reply(reply.status, items)
        size = min(int(call.query.get(self.dialect.page_size, self.dialect.default_page)), MAX_PAGE)
        page = int(call.query.get("page", 1))
        links = {}
        if self.dialect.links and page * size < len(items):
            query = "&".join(f"{k}={v}" for k, v in {**call.query, "page": page + 1}.items())
            here = self.public_api_url + call.path[len(self.dialect.root) :]
            last = f'<{here}?per_page={size}&page=99>; rel="last"'
            links = {"Link": f'<{here}?{query}>; rel="next", {last}'}
        shown: Any = items[(page - 1) * size : page * size]
        return Reply(
            reply.status, {"total_count": len(items), reply.envelope: shown} if reply.envelope else shown, links
        )

    def _judge(self, call: Call, reply: Reply) -> None:
        if self.slice is None:
            return
        what = f"{call.method} {call.path}: "
        call = replace(call, path=call.path[len(self.dialect.undescribed) :])
        wrong = self.slice.request_errors(call.method, call.path, call.query, call.body) if reply.status < 400 else []
        # Without our port, which is another one in every test.
        body = _data(reply).replace(self.url.encode(), b"http://127.0.0.1")
        errors = self.slice.answer_errors(call.method, call.path, call.query, call.body, reply.status, body)
        if reply.status == 202 or reply.status >= 400:
            # The descriptions leave refusals out (a comment is gone, a commit unknown); the servers say them all the same.
            errors = [error for error in errors if "ResponseNotFound" not in error]
        self.violations += [what + error for error in (*wrong, *errors)]


def _data(reply: Reply) -> bytes:
    return reply.value if isinstance(reply.value, bytes) else json.dumps(reply.value).encode()


def _handler(forge: FakeForge) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def _serve(self) -> None:
            parts = urlsplit(self.path)
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            headers = {name.lower(): value for name, value in self.headers.items()}
            query = {name: found if len(found) > 1 else found[0] for name, found in parse_qs(parts.query).items()}
            call = Call(self.command, parts.path, query, body, headers)
            if (answer := forge.git(call, parts.query)) is not None:
                self._send(*answer)
                return
            reply = forge.respond(call)
            if reply is None:
                self.close_connection = True
                return
            self._send(reply.status, {"Content-Type": "application/json", **reply.headers}, _data(reply))

        def _send(self, status: int, headers: dict[str, str], data: bytes) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PATCH = do_PUT = do_DELETE = _serve  # noqa: N815 - the names http.server asks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler

"""A git server over HTTP: git's own http-backend (git-http-backend, "EXAMPLES") behind a door that asks for a password."""

from __future__ import annotations

import base64
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit


@dataclass
class GitServer:
    """Repositories below ``root``. ``reads`` and ``writes`` are the users and passwords that may; None lets everybody.

    ``seen`` are the requests: method, path, Authorization. ``elsewhere`` is an address that every request is sent on to;
    ``drop_answers`` is how many pushes are done and then not answered.
    """

    root: Path
    reads: set[tuple[str, str]] | None = None
    writes: set[tuple[str, str]] | None = None
    elsewhere: str = ""
    drop_answers: int = 0
    url: str = ""
    seen: list[tuple[str, str, str | None]] = field(default_factory=list)

    @property
    def signed(self) -> set[str | None]:
        """Return every Authorization that came."""
        return {authorization for _, _, authorization in self.seen}


@contextmanager
def serve_git(server: GitServer) -> Iterator[GitServer]:
    """Serve on this machine until the end."""

    class Handler(_Handler):
        git = server

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server.url = f"http://127.0.0.1:{http.server_address[1]}"
        thread = Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    git: GitServer
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self._body())

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, body: bytes) -> None:
        authorization = self.headers.get("Authorization")
        self.git.seen.append((self.command, self.path, authorization))
        writing = "receive-pack" in self.path
        allowed = self.git.writes if writing else self.git.reads
        if self.git.elsewhere:
            self._say(302, {"Location": self.git.elsewhere + self.path})
        elif allowed is None or _user(authorization) in allowed:
            self._backend(body)
        elif authorization and writing and self.git.reads and _user(authorization) in self.git.reads:
            self._say(403, {}, b"Write access to repository not granted.\n")
        else:
            self._say(401, {"WWW-Authenticate": 'Basic realm="git"'})

    def _backend(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        environ = {
            "PATH": "/usr/bin:/bin",
            "GIT_PROJECT_ROOT": str(self.git.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "REMOTE_USER": "someone",
            "REMOTE_ADDR": "127.0.0.1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": parts.path,
            "QUERY_STRING": parts.query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, check=True)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        if self.command == "POST" and "receive-pack" in self.path and self.git.drop_answers:
            self.git.drop_answers -= 1
            self.close_connection = True
            return
        headers = dict(line.split(": ", 1) for line in head.decode().splitlines())
        self._say(int(headers.pop("Status", "200").split()[0]), headers, content)

    def _say(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return bytes(body)


def _user(authorization: str | None) -> tuple[str, str]:
    kind, _, packed = (authorization or "").partition(" ")
    user, _, password = base64.b64decode(packed).decode().partition(":") if kind == "Basic" else ("", "", "")
    return user, password

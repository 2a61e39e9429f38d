"""What a forge keeps beside its API: artifacts, on a blob server of another host, and the repository, behind smart HTTP.

The blob server stands for the storage that a forge sends downloads to: no request that arrives there may carry a token. The
repository is served by git's own `git http-backend`.
"""

from __future__ import annotations

import base64
import os
import subprocess
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

# Another host than 127.0.0.1 to any client, and still this machine.
BLOB_HOST = "127.0.0.2"


@dataclass(frozen=True)
class StoredArtifact:
    """An artifact of a run (on GitLab: of a job of a pipeline)."""

    id: int
    run: int
    name: str
    data: bytes
    expired: bool = False


@dataclass(frozen=True)
class BlobRequest:
    """A request as the blob server saw it."""

    method: str
    path: str
    headers: dict[str, str]


@dataclass
class Blobs:
    """The blob server. ``redirects`` makes it send on instead of answering; ``cut`` ends its answers after so many bytes."""

    stored: dict[str, bytes] = field(default_factory=dict)
    requests: list[BlobRequest] = field(default_factory=list)
    redirects: str | None = None
    status: int = 200
    cut: int | None = None

    def start(self) -> None:
        self._server = ThreadingHTTPServer((BLOB_HOST, 0), _blob_handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        self.url = f"http://{BLOB_HOST}:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def put(self, name: str, data: bytes) -> str:
        """Keep bytes and return their address; ``name`` may end with a query, as signed addresses do."""
        self.stored[f"/{name}"] = data
        return f"{self.url}/{name}"


def _blob_handler(blobs: Blobs) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.0"

        def do_GET(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            blobs.requests.append(BlobRequest("GET", self.path, headers))
            if blobs.redirects is not None:
                return self._answer(302, b"", {"Location": blobs.redirects})
            data = blobs.stored.get(self.path)
            if data is None:
                return self._answer(404, b"<Error><Code>BlobNotFound</Code></Error>", {})
            return self._answer(blobs.status, data, {})

        def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {"Content-Type": "application/zip", "Content-Length": str(len(data)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data if blobs.cut is None else data[: blobs.cut])

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    return Handler


def serve_git(repository: Path, method: str, path: str, query: str, body: bytes, headers: dict[str, str]) -> Any:
    """Return status, headers and body of git's own HTTP backend; ``path`` begins after the repository's name."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_COUNT": "4",
        "GIT_CONFIG_KEY_0": "uploadpack.allowAnySHA1InWant",
        "GIT_CONFIG_VALUE_0": "true",
        "GIT_CONFIG_KEY_1": "safe.directory",
        "GIT_CONFIG_VALUE_1": "*",
        "GIT_CONFIG_KEY_2": "http.receivepack",
        "GIT_CONFIG_VALUE_2": "true",
        "GIT_CONFIG_KEY_3": "uploadpack.allowFilter",
        "GIT_CONFIG_VALUE_3": "true",
        "GIT_PROJECT_ROOT": str(repository),
        "GIT_HTTP_EXPORT_ALL": "1",
        "PATH_INFO": path,
        "REQUEST_METHOD": method,
        "QUERY_STRING": query,
        "CONTENT_TYPE": headers.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "GIT_PROTOCOL": headers.get("git-protocol", ""),
        "HTTP_CONTENT_ENCODING": headers.get("content-encoding", ""),
        "REMOTE_USER": "fake",
        "REMOTE_ADDR": "127.0.0.1",
    }
    done = subprocess.run(["git", "http-backend"], env=environ, input=body, capture_output=True, check=True)
    head, _, answer = done.stdout.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
    return int(fields.pop("Status", "200").split()[0]), fields, answer


def basic_token(header: str) -> str | None:
    """Return the password of a Basic Authorization header, which is where git sends a token."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    return base64.b64decode(value).decode().partition(":")[2]


def git(repository: Path, *arguments: str) -> str | None:
    """Return what a git command prints, None where it fails."""
    done = subprocess.run(["git", *arguments], cwd=repository, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None

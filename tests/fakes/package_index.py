"""Package indexes on this machine: a folder of wheels, or a server of the simple repository API (PEP 691)."""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


def write_wheel(folder: Path, name: str, version: str, *needs: str, code: str | None = None) -> Path:
    """Write a wheel that pip installs; with ``code`` it has a module of its name."""
    plain = name.replace("-", "_")
    path = folder / f"{plain}-{version}-py3-none-any.whl"
    info = f"{plain}-{version}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {version}",
        *(f"Requires-Dist: {n}" for n in needs),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        if code is not None:
            archive.writestr(f"{plain}.py", code)
        archive.writestr(f"{info}/METADATA", "\n".join(metadata) + "\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "".join(f"{file},,\n" for file in [*archive.namelist(), f"{info}/RECORD"]))
    return path


@functools.cache
def installed_wheels() -> Path:
    """A folder with a wheel of every installed distribution, without its code, for the settings of ``offline``."""
    folder = Path(tempfile.mkdtemp(prefix="perfgate-wheels-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for distribution in importlib.metadata.distributions():
        write_wheel(folder, distribution.name, distribution.version, *(distribution.requires or []))
    return folder


def offline(*folders: Path) -> dict[str, str]:
    """Environment variables with which uv and pip take packages from folders of wheels; default: the installed packages."""
    places = " ".join(map(str, folders or [installed_wheels()]))
    return {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": places, "PIP_CONFIG_FILE": os.devnull, "UV_NO_CACHE": "1"}


@contextmanager
def serve_index(wheels: Path) -> Iterator[str]:
    """Serve the wheels of a folder and yield the address of the index."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            kind, _, name = self.path.strip("/").partition("/")
            if kind == "files" and (wheels / name).is_file():
                self._answer("application/zip", (wheels / name).read_bytes())
                return
            files = {path.name: _sha256(path) for path in sorted(wheels.glob(f"{name.replace('-', '_')}-*.whl"))}
            if kind != "simple" or not files:
                self.send_error(404)
            else:
                listed = [
                    {"filename": file, "url": f"/files/{file}", "hashes": {"sha256": digest}}
                    for file, digest in files.items()
                ]
                page = {"meta": {"api-version": "1.0"}, "name": name, "files": listed}
                self._answer("application/vnd.pypi.simple.v1+json", json.dumps(page).encode())

        def _answer(self, kind: str, body: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - its name in the base class
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()

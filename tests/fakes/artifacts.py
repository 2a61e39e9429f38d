"""Runs with traces in a folder, and the sets that are made of them."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec

from perfgate.document.files import content_sha256, write_document
from perfgate.document.kept import ArtifactSet, set_of_run
from perfgate.document.run import RunDocument
from perfgate.flows.shared.session import artifact_of
from tests.unit.document.minimal import minimal_run

KEPT_AT = "2026-03-01T12:00:00+00:00"
FLAME = b"<!doctype html><title>flame</title><script>1</script>"


def trace_of(text: str) -> bytes:
    return gzip.compress(text.encode(), mtime=0)


def run_folder(
    folder: Path, *, session: str = "s1", project: str = "shop", files: dict[str, bytes] | None = None
) -> RunDocument:
    """Write a run with its artifacts into a folder, as `perfgate run` does; by default a trace, a flame graph and a log."""
    contents = files or {
        "trace-encoder-short.json.gz": trace_of(session),
        "flame.html": FLAME,
        "logs/worker.log": b"log",
    }
    kinds = {".gz": "trace", ".html": "flamegraph", ".log": "log"}
    artifacts = []
    for path, data in contents.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        artifacts.append(artifact_of(file, data, kinds[file.suffix], path))  # type: ignore[arg-type]
    run = msgspec.structs.replace(minimal_run(session=session, project=project), artifacts=artifacts)
    write_document(folder / "run.json", run)
    return run


def artifact_set(folder: Path, *, kept_at: str = KEPT_AT, **options: str) -> ArtifactSet:
    """Write a run into a folder, and return the set of its artifacts."""
    run = run_folder(folder, **options)  # type: ignore[arg-type]
    return set_of_run(run, content_sha256(run), kept_at)


@contextmanager
def file_server(folder: Path) -> Iterator[str]:
    """Serve a folder as any server of files does; yields its address."""
    handler = partial(_Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the library
        pass

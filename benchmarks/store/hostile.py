"""Memory and time of `perfgate serve` while it refuses hostile uploads:
`python benchmarks/store/hostile.py`.

Every kind is sent as 100 MB with its length announced, as 100 MB in chunks without a
length, and cut to the largest size that the service reads. The service is the real
process; its memory is the largest resident set of all its processes together.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from perfgate.service.bodies import MOST_UPLOAD_BYTES

MEGABYTE = 1_000_000
SIZE = 100 * MEGABYTE
PROJECT = "shop"


def nested(size: int) -> bytes:
    return b"[" * size


def nested_within_limits(size: int) -> bytes:
    """Tables of 30 levels, as many as fit."""
    row = b'{"a":' * 30 + b"0" + b"}" * 30
    return (
        b'{"schema":"perfgate/run","x":['
        + b",".join([row] * ((size - 40) // (len(row) + 1)))
        + b"]}"
    )


def huge_string(size: int) -> bytes:
    return b'{"project":"shop","x":"' + b"a" * (size - 25) + b'"}'


def huge_text_outside_ascii(size: int) -> bytes:
    return (
        b'{"project":"shop","x":"' + "\U0001f600".encode() * ((size - 25) // 4) + b'"}'
    )


def many_lines(size: int) -> bytes:
    return b"{}\n" * (size // 3)


def many_documents(size: int) -> bytes:
    """Lines that each look like a small run document."""
    line = b'{"schema":"perfgate/run","project":"shop","session":{"id":"a"},"workloads":[]}\n'
    return line * (size // len(line))


def many_entries(size: int) -> bytes:
    """One document with as many values as a run may have."""
    return (
        b'{"schema":"perfgate/run","project":"shop","warnings":['
        + b'"a",' * ((size - 60) // 4)
        + b'"a"]}'
    )


def few_entries(size: int) -> bytes:
    """As many values as are parsed at all, the rest is one text."""
    entries = b'"ab",' * 1_900_000
    head = b'{"schema":"perfgate/run","project":"shop","x":[' + entries[: size // 2]
    return head + b'"' + b"a" * (size - len(head) - 4) + b'"]}'


def compressed(size: int) -> bytes:  # noqa: ARG001 - the size of the content counts
    """4 GB of zeros, compressed to 4 MB."""
    part = gzip.compress(bytes(100 * MEGABYTE))
    return part * 40


KINDS: tuple[Callable[[int], bytes], ...] = (
    nested,
    nested_within_limits,
    huge_string,
    huge_text_outside_ascii,
    many_lines,
    many_documents,
    many_entries,
    few_entries,
    compressed,
)


class Service:
    """A service with an empty store, and the largest memory that its processes had
    together.
    """

    def __init__(self, folder: Path) -> None:
        store = folder / "store.db"
        command = [
            sys.executable,
            "-m",
            "perfgate",
            "token",
            "create",
            "ci",
            "--scope",
            "write",
            "--project",
            PROJECT,
        ]
        created = subprocess.run(
            [*command, "--store", store], capture_output=True, text=True, check=True
        )
        self.token = next(
            word for word in created.stdout.split() if word.startswith("perfgate_")
        )
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "perfgate",
                "serve",
                "--store",
                store,
                "--port",
                "0",
                "--no-token",
            ],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "XDG_CACHE_HOME": str(folder)},
        )
        assert self._process.stdout is not None
        self.port = next(
            port_of(line) for line in self._process.stdout if "http://" in line
        )
        self.most = 0
        threading.Thread(target=self._watch, daemon=True).start()

    def memory(self) -> int:
        pids = [self._process.pid, *children(self._process.pid)]
        return sum(resident(pid) for pid in pids)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()

    def _watch(self) -> None:
        while self._process.poll() is None:
            self.most = max(self.most, self.memory())
            time.sleep(0.005)


def port_of(line: str) -> int:
    return int(line.split("http://")[1].split("/", maxsplit=1)[0].rpartition(":")[2])


def children(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    except OSError:
        return []
    pids = [int(word) for word in text.split()]
    for child in list(pids):
        pids += children(child)
    return pids


def resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )
    except OSError:
        return 0


def send(
    service: Service, body: bytes, *, announced: bool, encoding: str = ""
) -> tuple[int, float, str]:
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=300)
    headers = {
        "Authorization": f"Bearer {service.token}",
        "Content-Type": "application/json",
    }
    if encoding:
        headers["Content-Encoding"] = encoding
    digest = hashlib.sha256(body).hexdigest()
    began = time.monotonic()
    status, text = 0, "connection closed"
    with suppress(
        BrokenPipeError, ConnectionResetError
    ):  # answered before all was sent
        connection.request(
            "PUT",
            f"/api/v1/projects/{PROJECT}/runs/{digest}",
            body=body if announced else chunks(body),
            headers=headers,
            encode_chunked=not announced,
        )
    try:
        response = connection.getresponse()
        status, text = response.status, response.read().decode()
    except (OSError, http.client.HTTPException) as error:
        text = type(error).__name__
    seconds = time.monotonic() - began
    connection.close()
    return status, seconds, text


def chunks(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), 1 << 20):
        yield body[start : start + (1 << 20)]


def main() -> None:
    names = sys.argv[1:]
    for kind in KINDS:
        if names and kind.__name__ not in names:
            continue
        for way in ("announced", "chunked", "largest"):
            with tempfile.TemporaryDirectory() as folder:
                service = Service(Path(folder))
                at_rest = service.memory()
                body = kind(MOST_UPLOAD_BYTES - 1 if way == "largest" else SIZE)
                encoding = "gzip" if kind is compressed else ""
                status, seconds, text = send(
                    service, body, announced=way != "chunked", encoding=encoding
                )
                print(
                    f"{kind.__name__:26} {way:10} {len(body) / MEGABYTE:6.1f} MB  HTTP {status}  {seconds:6.2f} s  "
                    f"at rest {at_rest / MEGABYTE:4.0f} MB  most {service.most / MEGABYTE:5.0f} MB  {text[:110]}",
                    flush=True,
                )
                service.end()


if __name__ == "__main__":
    main()

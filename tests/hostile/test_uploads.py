"""Hostile uploads to the real process of `perfgate serve`: refused, and its memory stays small."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from perfgate.judging.store.backends.sql import SqlStore
from perfgate.service.bodies import MOST_UPLOAD_BYTES

# 140 MB at rest.
MOST_MEMORY = 300_000_000
PART = 1 << 20


def nested(size: int) -> bytes:
    return b"[" * size


def huge_text(size: int) -> bytes:
    return b'{"project":"shop","x":"' + "\U0001f600".encode() * (size // 4 - 10) + b'"}'


def many_lines(size: int) -> bytes:
    return b"{}\n" * (size // 3)


def many_small_documents(size: int) -> bytes:
    row = b'{"schema":"perfgate/run","project":"shop"},'
    return b"[" + row * (size // len(row) - 1) + b"{}]"


def compressed(size: int) -> bytes:
    """Forty times its size in zeros."""
    return gzip.compress(bytes(size)) * 40


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, int]]:
    """The address of a service, a token that writes, and the id of its process."""
    folder = tmp_path_factory.mktemp("served")
    token = SqlStore(folder / "store.db").ledger().create_token("ci", "shop", "write").secret
    command = [sys.executable, "-m", "perfgate", "serve", "--store", str(folder / "store.db"), "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "XDG_CACHE_HOME": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=folder) as process:
        assert process.stdout is not None
        address = process.stdout.readline().partition("?")[0].strip()
        yield address, token, process.pid
        process.terminate()


@pytest.mark.parametrize("kind", [nested, huge_text, many_lines, many_small_documents, compressed])
def test_upload__hostile_and_as_large_as_possible__refused_within_300_mb(
    served: tuple[str, str, int], kind: object
) -> None:
    address, token, pid = served
    assert callable(kind)
    headers = {"Authorization": f"Bearer {token}"}
    for size in (MOST_UPLOAD_BYTES - 1, 100_000_000):
        body = kind(size)
        url = f"{address}api/v1/projects/shop/runs/{hashlib.sha256(body).hexdigest()}"
        parts = (body[start : start + PART] for start in range(0, len(body), PART))
        try:
            status = requests.put(url, data=parts, headers=headers, timeout=60).status_code
        except requests.ConnectionError:  # refused while it was being sent
            status = 413
        assert status in (413, 422)
    most = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert most is not None
    assert int(most[1]) * 1024 < MOST_MEMORY

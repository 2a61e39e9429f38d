"""prism as a proxy in front of the fake forge: the official API description judges every request and every answer."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.fakes.forge import FakeForge
from tests.fakes.openapi import spec_of

REDIRECTS = Path(__file__).with_name("prism_redirects.js")
# The slice takes 13 s on a quiet machine; only a prism that hangs takes as long.
START_SECONDS = 600.0
LISTENING, VIOLATION, END = "Prism is listening", ("✖", "⚠"), "end-of-the-log"


class Prism:
    """A proxy that listens at ``api_url``, which takes the place of the forge's own."""

    def __init__(self, api_url: str, log: Path) -> None:
        self.api_url = api_url
        self.log = log
        self._asked = 0

    def requests(self) -> int:
        """Return how many requests arrived, so that "no violation" is not said of nothing."""
        return sum("Request received" in line for line in self._lines())

    def violations(self) -> list[str]:
        """Return what prism complained of; such a request was answered by prism with 4xx or 5xx, not by the forge."""
        return [line for line in self._lines() if any(mark in line for mark in VIOLATION)]

    def _lines(self) -> list[str]:
        """Return the log up to now. Prism writes it behind its answers, so a last request of our own shows the end."""
        self._asked += 1
        last = f"/{END}-{self._asked}"
        requests.get(self.api_url + last, timeout=30)
        _wait_for(f"{last} ✖", self.log)
        return [line for line in _text(self.log).splitlines() if END not in line]


@contextmanager
def prism_proxy(forge: FakeForge, folder: Path) -> Iterator[Prism]:
    """Start prism before a forge that runs; skip the test where prism or the API description is not there."""
    program, spec = shutil.which("prism"), spec_of(forge.dialect.slice_file)
    if program is None:
        pytest.skip("prism is not installed; `make test-ci` installs it")
    if spec is None:
        pytest.skip(f"no {forge.dialect.slice_file} beside the checkout")
    folder.mkdir(parents=True, exist_ok=True)
    spec_file, log, port = folder / "openapi.json", folder / "prism.log", free_port()
    below = forge.dialect.undescribed
    spec_file.write_text(json.dumps(_legible(spec, below)), encoding="utf-8")
    forge_url = forge.api_url.removesuffix(below)
    command = [program, "proxy", "--host", "127.0.0.1", "--port", str(port), "--errors", str(spec_file), forge_url]
    modules = Path(program).resolve().parents[2]
    environ = {**os.environ, "NODE_OPTIONS": f"--require {REDIRECTS}", "PRISM_MODULES": str(modules)}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    prism = Prism(f"http://127.0.0.1:{port}{below}", log)
    before = forge.public_api_url
    try:
        _wait_for(LISTENING, log, process)
        # The pages of a list and the redirects of an archive lead through the proxy too.
        forge.public_api_url = prism.api_url
        yield prism
    finally:
        forge.public_api_url = before
        process.terminate()
        process.wait(timeout=20)


def _legible(spec: dict[str, Any], below: str) -> dict[str, Any]:
    """Return a description that prism can follow: it looks for ``refs[]`` under the name ``refs%5b%5d`` and never finds it.

    So such a parameter is not asked for here; the fake's own judge does. Nor does prism know of servers whose API lies
    ``below`` a path.
    """
    for path in spec["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if "[" in parameter.get("name", ""):
                    parameter["required"] = False
    spec["paths"] = {below + path: operations for path, operations in spec["paths"].items()}
    return spec


def free_port() -> int:
    """Return a port that nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _wait_for(words: str, log: Path, process: subprocess.Popen[bytes] | None = None) -> None:
    deadline = time.monotonic() + START_SECONDS
    while words not in _text(log):
        if time.monotonic() > deadline or (process is not None and process.poll() is not None):
            raise AssertionError(f"prism does not say {words!r}:\n{_text(log)}")
        time.sleep(0.1)


def _text(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")

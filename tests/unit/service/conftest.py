"""A server for the tests of a module, and a service over a new store for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.service import Listening, Service, listening, serve_folder


@pytest.fixture(scope="module")
def address() -> Iterator[Listening]:
    with listening() as found:
        yield found


@pytest.fixture
def service(address: Listening, tmp_path: Path) -> Service:
    return serve_folder(address, tmp_path)

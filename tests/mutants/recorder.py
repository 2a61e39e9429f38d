"""A pytest plug-in for the copy: it runs the wanted tests in their order, and records what they reach and take."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[3] / "records"
HANGS_AFTER = 100
_current = ""
_recorded: set[tuple[int, str]] = set()


def reach(number: int) -> None:
    """Record that the current test reaches a mutant; the copy's modules call this, in any process of the test."""
    test = _current or (FOLDER / "current").read_text()
    if (number, test) not in _recorded:
        _recorded.add((number, test))
        _record("reached", number, test)


def _record(name: str, *values: object) -> None:
    with (FOLDER / name).open("a") as file:
        file.write(json.dumps(values) + "\n")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    wanted = FOLDER / "wanted.json"
    if wanted.exists():
        places = {test: place for place, test in enumerate(json.loads(wanted.read_text()))}
        items[:] = sorted((item for item in items if item.nodeid in places), key=lambda item: places[item.nodeid])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    global _current  # noqa: PLW0603 - pytest runs one test at a time
    _current = item.nodeid
    (FOLDER / "current").write_text(item.nodeid)
    signal.signal(signal.SIGALRM, _hang)
    signal.alarm(HANGS_AFTER)
    try:
        return (yield)
    finally:
        signal.alarm(0)


def _hang(*_: object) -> None:
    raise TimeoutError(f"this test takes more than {HANGS_AFTER} s")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _record("results", report.nodeid, report.duration, report.failed)

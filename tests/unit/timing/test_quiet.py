"""The collector is off and the heap frozen while measuring, and both are as before afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from perfgate.system import garbage
from perfgate.system.garbage import collector_off, quiet


@pytest.fixture(autouse=True)
def _outermost(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Leave the context that the whole session is in (conftest.py)."""
    monkeypatch.setattr(garbage, "_depth", 0)
    yield
    gc.enable()
    gc.freeze()


def test_quiet__inside__collector_off_and_heap_frozen() -> None:
    gc.unfreeze()
    with quiet():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_quiet__exception__restored() -> None:
    with pytest.raises(ValueError, match="user code"), quiet():
        raise ValueError("user code")
    assert gc.isenabled()


def test_quiet__nested__the_outer_one_stays_quiet() -> None:
    with quiet():
        with quiet():
            pass
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 0


def test_quiet__collector_was_off__stays_off() -> None:
    gc.disable()
    with quiet():
        pass
    assert not gc.isenabled()


def test_collector_off__cycle_made_inside__collected_at_the_end() -> None:
    with quiet():
        with collector_off():
            cycle: list[object] = []
            cycle.append(cycle)
            del cycle
        assert gc.collect() == 0

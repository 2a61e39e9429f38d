"""States that are left to a gate, because counters alone would not compare what the gate compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfgate.flows.bisect.counting import StateCounter
from perfgate.flows.bisect.search import TrialSides
from perfgate.flows.shared.options import CheckOptions
from tests.unit.flows.test_bisect_commits import TOML, History, Quiet

SETUP = '[measure]\nsetup = "pip install -r requirements.txt"\n'


def make_counter(tmp_path: Path, states: list[dict[str, str]]) -> tuple[StateCounter, TrialSides]:
    """A counter, and the first and the last of these commits."""
    history = History(tmp_path / "clone")
    history.write(states)
    sides = TrialSides(base=history.commits[0], head=history.commits[-1])
    return StateCounter(history.root, CheckOptions(out=tmp_path / "out"), Quiet()), sides


def test_compare__workload_that_is_no_function__left_to_a_gate(tmp_path: Path) -> None:
    counter, sides = make_counter(tmp_path, [{"perfgate.toml": TOML}, {"model.py": "COST = 1\n"}])
    assert counter.compare(sides, {"served"}) is None


def test_compare__commit_without_configuration__left_to_a_gate(tmp_path: Path) -> None:
    counter, sides = make_counter(tmp_path, [{"model.py": "COST = 1\n"}, {"model.py": "COST = 2\n"}])
    assert counter.compare(sides, {"encoder"}) is None


def test_compare__commit_with_packages_of_its_own__left_to_a_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PERFGATE_LOCK", str(tmp_path / "lock"))
    states = [
        {"perfgate.toml": TOML + SETUP, "requirements.txt": "attrs==23.1\n"},
        {"requirements.txt": "attrs==26.1\n"},
    ]
    counter, sides = make_counter(tmp_path, states)
    assert counter.compare(sides, {"encoder"}) is None
    assert not (tmp_path / "out").exists()

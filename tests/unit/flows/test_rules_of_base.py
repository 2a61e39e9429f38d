"""How a check measures and decides: by the base's perfgate.toml, whatever the head's says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from perfgate.config import Config, parse_config
from perfgate.flows.check.opening import settings_of_check
from perfgate.flows.shared.options import ChangeOptions
from perfgate.flows.trust.commits import BaseConfig

WORKLOAD = 'workload = "perf/workload.py:small"\n'


def config(gate: str) -> Config:
    return parse_config(f"{WORKLOAD}[gate]\n{gate}", Path("perfgate.toml"))


def of_check(base: Config | None, head: Config) -> Config:
    change: Any = SimpleNamespace(options=ChangeOptions(), base_config=BaseConfig(base))
    return settings_of_check(change, head)


def test_rules__head_sets_how_pairs_are_measured__those_of_the_base() -> None:
    base = config("aa_pairs = 9\nquads = 8\ncpus = 2")
    head = config(
        'looks = [64]\naa_pairs = 5\nquads = 2\nblock_seconds = 5\ncpus = 0\nalpha = 0.2\ntolerance = {"latency.low" = 9}'
    )
    assert of_check(base, head).gate == base.gate


def test_rules__head_asks_for_more_time__granted_but_never_less() -> None:
    base = config("budget = 30\nchecklist_budget = 20")
    head = config("budget = 90\nchecklist_budget = 0")
    gate = of_check(base, head).gate
    assert (gate.budget, gate.checklist_budget) == (90, 20)


def test_rules__base_has_no_settings__those_of_the_head() -> None:
    head = config("budget = 90")
    assert of_check(None, head) == head

"""The pre-release shape stands for every later one: version 0 had ``samples_ms`` where version 1 has seconds."""

from typing import Any

import pytest

from perfgate.document.upgrade import CURRENT, UPGRADES, upgrade
from perfgate.errors import DocumentError


def to_seconds(old: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in old.items() if key != "samples_ms"}
    return {**rest, "samples": [value / 1000 for value in old["samples_ms"]]}


def add_unit(old: dict[str, Any]) -> dict[str, Any]:
    return {**old, "unit": "s"}


def test_upgrade__two_versions_old__both_steps_in_order() -> None:
    old = {"schema": "perfgate/run", "schema_version": 0, "samples_ms": [500, 250]}
    new = upgrade(old, "perfgate/run", name="run.json", current=2, upgrades={0: to_seconds, 1: add_unit})
    assert new == {"schema": "perfgate/run", "schema_version": 2, "samples": [0.5, 0.25], "unit": "s"}
    assert old["schema_version"] == 0


def test_upgrade__current_version__unchanged() -> None:
    value = {"schema": "perfgate/run", "schema_version": 2}
    assert upgrade(value, "perfgate/run", name="run.json", current=2, upgrades={}) == value


def test_upgrade__old_document_is_not_what_it_says__refused() -> None:
    with pytest.raises(DocumentError, match=r"x: at \$: not a document of version 0 \(KeyError: 'samples_ms'\)"):
        upgrade({"schema": "a", "schema_version": 0}, "a", name="x", current=1, upgrades={0: to_seconds})


def test_upgrade__step_is_missing__says_to_measure_again() -> None:
    with pytest.raises(DocumentError, match="version 1 can no longer be read; measure again"):
        upgrade(
            {"schema": "a", "schema_version": 0, "samples_ms": []}, "a", name="x", current=2, upgrades={0: to_seconds}
        )


def test_upgrades__every_schema__a_step_from_version_1_up_to_the_current_one() -> None:
    for schema, current in CURRENT.items():
        assert sorted(UPGRADES[schema]) == list(range(1, current))

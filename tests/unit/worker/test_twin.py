"""The twin that stands in for a head whose code differs."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from perfgate.measuring.workload.layout import MODULE, define_dead_functions


@pytest.fixture(autouse=True)
def no_twin_left() -> Iterator[None]:
    yield
    sys.modules.pop(MODULE, None)


def functions() -> dict[str, object]:
    return {name: value for name, value in vars(sys.modules[MODULE]).items() if name.startswith("unused_")}


def test_define_dead_functions__forty__forty_callables_of_different_length() -> None:
    define_dead_functions(40, seed=7)
    found = functions()
    assert len(found) == 40
    assert len({len(function.__code__.co_code) for function in found.values()}) > 5  # type: ignore[attr-defined]


def test_define_dead_functions__same_seed__same_code_another_seed_another() -> None:
    codes = []
    for seed in (7, 7, 8):
        define_dead_functions(10, seed=seed)
        codes.append([function.__code__.co_consts for function in functions().values()])  # type: ignore[attr-defined]
    assert codes[0] == codes[1]
    assert codes[0] != codes[2]

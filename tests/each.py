"""One test of many cases, instead of many tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

Test = Callable[..., None]


def each(names: str, cases: Iterable[Any] | Callable[[], Iterable[Any]]) -> Callable[[Test], Test]:
    """Like ``pytest.mark.parametrize`` with the names separated by commas, but one test, which names every case that fails.

    Setting up and reporting a test takes 6 ms. Use it for whole catalogues whose cases take less. All cases share the
    fixtures, so none may change them. Cases that are expensive to list come from a function, which only the test calls.
    """
    wanted = [name.strip() for name in names.split(",")]

    def decorated(test: Test) -> Test:
        signature = inspect.signature(test)

        @functools.wraps(test)
        def all_cases(**fixtures: Any) -> None:
            first, failures = None, []
            listed = list(cases() if callable(cases) else cases)
            assert listed, f"no case of {names}"
            for values in listed:
                try:
                    test(**fixtures, **dict(zip(wanted, values if len(wanted) > 1 else (values,), strict=True)))
                except (Exception, pytest.fail.Exception, pytest.skip.Exception) as error:  # noqa: BLE001 - reported below
                    first = first or error
                    failures.append(f"{_name(values)}: {type(error).__name__}: {error}")
            if failures:
                raise AssertionError(f"{len(failures)} of {len(listed)} cases:\n" + "\n".join(failures)) from first

        kept = [parameter for name, parameter in signature.parameters.items() if name not in wanted]
        all_cases.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return all_cases

    return decorated


def _name(value: Any) -> str:
    name = getattr(value, "name", None)
    if isinstance(name, str) and not isinstance(value, Path):
        return name
    if isinstance(value, tuple):
        return ", ".join(map(_name, value))
    return str(value)[:200]

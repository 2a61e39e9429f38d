"""Tests read alike: every parameter has its type, and the result is None."""

from __future__ import annotations

import inspect

import pytest


def test_tests__of_this_run__parameters_and_result_are_annotated(request: pytest.FixtureRequest) -> None:
    tests = {item.function for item in request.session.items if isinstance(item, pytest.Function)}
    assert [f"{test.__module__}.{test.__name__}" for test in tests if not _is_annotated(inspect.signature(test))] == []


def _is_annotated(signature: inspect.Signature) -> bool:
    annotations = [parameter.annotation for parameter in signature.parameters.values()]
    return inspect.Signature.empty not in (*annotations, signature.return_annotation)

"""Workloads that load slowly: whether the pairs fit is known from the first load, and said before any pair."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.document.message import Message
from perfgate.document.run import LOADS_TOO_SLOWLY, ErrorDetail, FailedPair
from perfgate.flows.check.measure import pairs_too_slow, too_slow_line
from perfgate.protocol import Tried
from tests.unit.conductor.conftest import reference_to


@pytest.fixture
def ahead(bench: Bench, checkout: Checkout) -> Iterator[None]:
    """Base loads ahead, as on an accelerator."""
    bench.load_ahead(checkout, reference_to("well"))
    yield
    bench.let_go_ahead()


@pytest.mark.usefixtures("ahead")
def test_pairs_too_slow__only_head_loads_slowly__measured_and_base_is_loaded_once(
    bench: Bench, checkout: Checkout
) -> None:
    tried = Tried(seconds=0.01, load_seconds=120.0)

    assert pairs_too_slow(bench, reference_to("well"), checkout, tried) is None

    assert bench.has_ahead(checkout, reference_to("well"))


def test_too_slow_line__says_the_time_and_the_budget_that_would_be_enough() -> None:
    values = {"call": 0.01, "load": 120, "pairs": 23, "seconds": 628, "allowed": 300.0, "budget": 760}
    error = ErrorDetail(kind="timeout", message=Message(LOADS_TOO_SLOWLY, values))

    line = too_slow_line(FailedPair(pair=0, arm="ab", workload="model", error=error))

    assert line == (
        "model: no pairs will be measured: loading takes 120 s, so the 23 pairs that decide about times would take about "
        "628 s; without a larger [gate] budget, at most 300 s are available; [gate] budget = 760 would be enough"
    )

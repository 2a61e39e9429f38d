"""Budgets as people write them."""

from __future__ import annotations

import pytest

from perfgate.catalogue.lookup import metric
from perfgate.document.budget import Budget, parse_budget


@pytest.mark.parametrize(
    ("key", "written", "expected"),
    [
        ("latency.p99", "20 ms", Budget(metric="latency.p99", bound=0.02, at_most=True)),
        ("latency.p99", "< 20ms at 50 QPS", Budget(metric="latency.p99", bound=0.02, at_most=True, rate=50.0)),
        ("latency.p99@encoder", 0.02, Budget(metric="latency.p99", bound=0.02, at_most=True, workload="encoder")),
        (
            "throughput.median@en*/long",
            ">= 1e3 items/s",
            Budget(metric="throughput.median", bound=1000.0, at_most=False, workload="en*", shape="long"),
        ),
        ("memory.peak", "2 GiB", Budget(metric="memory.peak", bound=2.0**31, at_most=True)),
        ("utilization.busy", "80 %", Budget(metric="utilization.busy", bound=0.8, at_most=False)),
        ("counters.syncs", 0, Budget(metric="counters.syncs", bound=0.0, at_most=True)),
    ],
)
def test_parse_budget__written__base_units(key: str, written: object, expected: Budget) -> None:
    name = key.partition("@")[0]
    assert parse_budget(key, written, metric(name)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("latency.p99", "fast", "'fast' is no budget; write \"< 20 ms\""),
        ("latency.p99", "20 parsec", "has a unit that is not known"),
        ("latency.p99", "2 GiB", "is in B, and latency.p99 is measured in s"),
        ("latency.p99", "-1 ms", "is no budget"),
        ("batch.knee", "8", "say which bound it is, with < or >"),
    ],
)
def test_parse_budget__nonsense__says_what_to_write(name: str, written: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_budget(name, written, metric(name))

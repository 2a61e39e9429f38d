"""The numbers of a turn, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.conductor.load.measures import goodput, measure_load
from perfgate.conductor.load.record import Exchange, Load


def exchange(name: str, at: float, tokens: tuple[float, ...], count: int | None, error: str = "") -> Exchange:
    return Exchange(
        id=name,
        at=at,
        sent=at + 0.001,
        first=tokens[0] if tokens else None,
        last=tokens[-1] if tokens else at + 0.01,
        tokens=list(tokens),
        input_tokens=3,
        output_tokens=count,
        text="x" * len(tokens),
        status=200,
        error=error,
    )


def load(*exchanges: Exchange, seconds: float = 2.0) -> Load:
    return Load(list(exchanges), seconds, np.array([exchange.sent - exchange.at for exchange in exchanges]))


QUICK = exchange("quick", 0.0, (0.1, 0.2, 0.3), 5)  # glued together: three chunks of five tokens
SLOW = exchange("slow", 1.0, (1.5, 1.9), 3)
SINGLE = exchange("single", 1.2, (1.4,), 1)
SILENT = exchange("silent", 1.3, (), 0)
FAILED = exchange("failed", 1.4, (1.5,), None, error="HTTP 500")


def test_measures__turn__each_by_its_formula() -> None:
    measures = measure_load(load(QUICK, SLOW, SINGLE))
    assert measures.time_to_first_token == pytest.approx([0.1, 0.5, 0.2])
    assert measures.time_per_output_token == pytest.approx([0.05, 0.2])
    assert measures.mean_time_per_output_token == pytest.approx(0.125)
    assert measures.inter_token == pytest.approx([0.1, 0.1, 0.4])
    assert measures.latency == pytest.approx([0.3, 0.9, 0.2])
    assert measures.output_tokens == 9
    assert measures.output_tokens_per_second == pytest.approx(4.5)


def test_measures__failed_and_silent_requests__in_no_number() -> None:
    measures = measure_load(load(QUICK, SILENT, FAILED))
    assert measures.silent == 1
    assert measures.time_to_first_token == pytest.approx([0.1])
    assert measures.output_tokens == 5
    assert measures.latency == pytest.approx([0.3])


def test_measures__server_counts_no_tokens__throughput_is_absent_not_zero() -> None:
    measures = measure_load(load(QUICK, exchange("uncounted", 0.0, (0.1, 0.2), None)))
    assert measures.output_tokens is None
    assert measures.output_tokens_per_second is None
    assert measures.time_per_output_token == pytest.approx([0.05])


def test_measures__nothing_went_well__no_numbers() -> None:
    measures = measure_load(load(FAILED, SILENT))
    assert measures.latency.size == measures.inter_token.size == 0
    assert measures.mean_time_per_output_token is None
    assert measures.output_tokens is None


def test_goodput__limits__failures_miss_and_silent_requests_do_not_count() -> None:
    turn = load(QUICK, SLOW, SINGLE, SILENT, FAILED)
    assert goodput(turn.exchanges, first_token=0.2001) == pytest.approx(2.5 / 5)
    assert goodput(turn.exchanges, first_token=1.0) == pytest.approx(3.5 / 5)
    assert goodput(turn.exchanges, first_token=1.0, per_token=0.1) == pytest.approx(2.5 / 5)
    assert goodput(load(exchange("uncounted", 0.0, (0.1,), None)).exchanges, first_token=1.0, per_token=0.1) == 0.25
    assert goodput(load(SILENT).exchanges, first_token=1.0) is None

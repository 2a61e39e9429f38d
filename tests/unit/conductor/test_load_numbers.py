"""The numbers of a turn, worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from perfgate.conductor.load.record import Exchange, Load
from perfgate.conductor.sides.server.server_numbers import goodput, turn_of_load
from perfgate.document.samples import unpack
from perfgate.job_settings import JobSettings


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


def measured(*exchanges: Exchange) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the numbers of a turn, and the samples of each in seconds."""
    result = turn_of_load(load(*exchanges), 0.9, JobSettings(serve="s"))
    return result.values, {one.metric: (unpack(one.samples) / 1e9).tolist() for one in result.samples}


def test_turn__each_number_by_its_formula() -> None:
    values, samples = measured(QUICK, SLOW, SINGLE)
    assert samples["serving.ttft"] == pytest.approx([0.1, 0.5, 0.2])
    assert samples["serving.tpot"] == pytest.approx([0.05, 0.2])
    assert samples["serving.itl"] == pytest.approx([0.1, 0.1, 0.4])
    assert samples["serving.e2e"] == pytest.approx([0.3, 0.9, 0.2])
    assert values["serving.ttft"] == pytest.approx(0.2)
    assert values["serving.tpot"] == pytest.approx(0.125)
    assert values["serving.e2e"] == pytest.approx(0.3)
    assert values["serving.throughput"] == pytest.approx(4.5)
    assert values["serving.cpu"] == pytest.approx(0.1)


def test_turn__silent_requests__in_no_number() -> None:
    turn = load(QUICK, SILENT)
    result = turn_of_load(turn, 0.5, JobSettings(serve="s"))
    assert result.work == {"requests": 2, "input_tokens": 6, "output_tokens": 5, "without_text": 1}
    assert result.values["serving.ttft"] == pytest.approx(0.1)
    assert result.values["serving.e2e"] == pytest.approx(0.3)
    assert result.values["serving.cpu"] == pytest.approx(0.1)


def test_turn__server_counts_no_tokens__throughput_is_absent_not_zero() -> None:
    values, samples = measured(QUICK, exchange("uncounted", 0.0, (0.1, 0.2), None))
    assert "serving.throughput" not in values
    assert values["serving.cpu"] == pytest.approx(0.45)  # of a request
    assert samples["serving.tpot"] == pytest.approx([0.05])


def test_turn__nothing_went_well__no_numbers() -> None:
    values, samples = measured(SILENT)
    assert samples == {}
    assert values == {"serving.cpu": pytest.approx(0.9)}


def test_goodput__limits__failures_miss_and_silent_requests_do_not_count() -> None:
    turn = load(QUICK, SLOW, SINGLE, SILENT, FAILED)
    assert goodput(turn.exchanges, first_token=0.2001) == pytest.approx(2.5 / 5)
    assert goodput(turn.exchanges, first_token=1.0) == pytest.approx(3.5 / 5)
    assert goodput(turn.exchanges, first_token=1.0, per_token=0.1) == pytest.approx(2.5 / 5)
    assert goodput(load(exchange("uncounted", 0.0, (0.1,), None)).exchanges, first_token=1.0, per_token=0.1) == 0.25
    assert goodput(load(SILENT).exchanges, first_token=1.0) is None

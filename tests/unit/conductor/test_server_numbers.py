"""The numbers of a load: per token where tokens are known, per request where they are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.conductor.load.record import Exchange, Load
from perfgate.conductor.sides.server.server_numbers import numbers_of, turn_of_load
from perfgate.document.job import TurnResult
from perfgate.job_settings import JobReference, JobSettings


def load(*exchanges: dict[str, Any]) -> Load:
    common: dict[str, Any] = {"sent": 0.0, "input_tokens": None, "output_tokens": None, "tokens": (), "text": "t"}
    whole = [
        Exchange(**{"id": str(number), "at": 0.0, "status": 200, "error": "", **common, **exchange})
        for number, exchange in enumerate(exchanges)
    ]
    return Load(whole, 1.0, np.zeros(len(whole)))


PLAIN = load({"first": 0.1, "last": 0.4}, {"first": 0.2, "last": 0.6}, {"first": 0.3, "last": 0.8})


def turn(of: Load, **settings: Any) -> tuple[TurnResult, JobSettings]:
    job = JobSettings(serve="s", **settings)
    return turn_of_load(of, 0.3, job), job


def test_turn__plain_http__times_of_headers_and_answer_and_cpu_of_a_request() -> None:
    result, _ = turn(PLAIN, api="http")

    assert result.values == pytest.approx({"serving.e2e": 0.6, "serving.first_byte": 0.2, "serving.request_cpu": 0.1})
    assert {one.metric for one in result.samples} == {"serving.e2e", "serving.first_byte"}


def test_turn__a_function_of_the_project__its_answer_comes_at_once() -> None:
    result, _ = turn(load({"first": 0.4, "last": 0.4}), client="client.py:ask")

    assert result.values == pytest.approx({"serving.e2e": 0.4, "serving.request_cpu": 0.3})


def test_turn__tokens__cpu_of_a_token() -> None:
    times = tuple(0.1 * number for number in range(1, 5))
    result, _ = turn(load({"first": 0.1, "last": 0.4, "tokens": times, "output_tokens": 4}))

    assert result.values["serving.cpu"] == pytest.approx(0.075)
    assert {"serving.ttft", "serving.tpot"} <= result.values.keys()
    assert not result.values.keys() & {"serving.first_byte", "serving.request_cpu"}


@pytest.mark.parametrize("settings", [{"api": "http"}, {"client": "client.py:ask"}])
def test_turn__no_tokens_known__nothing_named_after_them_and_what_must_gate_is_there(settings: dict[str, str]) -> None:
    result, job = turn(PLAIN, **settings)
    numbers = numbers_of(result.values, is_closed_loop=True, is_highest_rate=False)

    told = {*result.values, *(one.metric for one in result.samples)}
    assert [name for name in told if "token" in METRICS[name].title + METRICS[name].explanation] == []
    assert {one.metric for one in numbers if one.gating} == set(JobReference("job", job).must_gate(on_device=False))

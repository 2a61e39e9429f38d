"""Settings of a load, and the plans made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.conductor.load.plan import LoadPlan, plan_load
from perfgate.errors import ConfigError
from perfgate.load_settings import LoadSettings


def test_plan__same_seed__same_plan_and_another_seed_another() -> None:
    settings = LoadSettings(rate=4.0, requests=20, prefix=8)
    assert plan_load(settings, seed=1) == plan_load(settings, seed=1)
    assert plan_load(settings, seed=1) != plan_load(settings, seed=2)


def test_plan__seed_1__the_words_and_times_of_every_machine() -> None:
    plan = plan_load(LoadSettings(rate=2.0, requests=2, input=4, output=3), seed=1)
    assert plan.concurrency is None
    assert [request.prompt for request in plan.requests] == ["who when your your", "if she other first"]
    assert [request.at for request in plan.requests] == [0.0, 0.536515]
    assert [request.id for request in plan.requests] == ["perfgate-1-00000", "perfgate-1-00001"]
    assert [request.output_tokens for request in plan.requests] == [3, 3]


def test_plan__rate__mean_gap_is_its_inverse() -> None:
    plan = plan_load(LoadSettings(rate=20.0, requests=20_001, input=1), seed=3)
    times = [request.at for request in plan.requests]
    assert np.diff(times).mean() == pytest.approx(0.05, rel=0.02)
    assert times == sorted(times)


def test_plan__concurrency__closed_loop_without_times() -> None:
    plan = plan_load(LoadSettings(concurrency=4, requests=3), seed=1)
    assert plan.concurrency == 4
    assert [request.at for request in plan.requests] == [0.0, 0.0, 0.0]


def test_plan__prefix__shared_words_first_and_prompts_of_full_length_that_differ() -> None:
    plan = plan_load(LoadSettings(concurrency=1, requests=3, input=12, prefix=8), seed=1)
    words = [request.prompt.split() for request in plan.requests]
    assert [len(each) for each in words] == [12, 12, 12]
    assert words[0][:8] == words[1][:8] == words[2][:8]
    assert len({tuple(each[8:]) for each in words}) == 3


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "none of rate, concurrency and log; write exactly one: rate = 4"),
        ({"rate": 4, "concurrency": 2}, "rate and concurrency; write exactly one"),
        ({"rate": 4, "concurrency": 2, "log": "a"}, "rate and concurrency and log"),
        ({"concurrency": 2, "burstiness": 2}, "remove burstiness"),
        ({"concurrency": 2, "input": 4, "prefix": 5}, "write prefix = 4 or less"),
    ],
)
def test_settings__contradiction__what_to_write(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        msgspec.convert(settings, LoadSettings)


@pytest.mark.parametrize(
    "settings",
    [{"rate": 0}, {"rate": float("nan")}, {"concurrency": 0}, {"rate": 1, "requests": 0}, {"rate": 1, "speed": 2}],
)
def test_settings__out_of_bounds_or_unknown__refused(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, LoadSettings)


def replay(folder: Path, text: str, **settings: Any) -> LoadPlan:
    (folder / "log.jsonl").write_text(text, encoding="utf-8")
    return plan_load(LoadSettings(log="log.jsonl", **settings), seed=1, root=folder)


def test_log__recorded_requests__times_after_the_first_and_prompts_as_they_were(tmp_path: Path) -> None:
    text = '{"at": 100.5, "prompt": "你好", "output": 3}\n\n{"at": 100.75, "input": 5, "output": 7}\n{"at": 101, "junk'
    plan = replay(tmp_path, text, requests=2)
    assert plan.concurrency is None
    assert [(request.at, request.output_tokens) for request in plan.requests] == [(0.0, 3), (0.25, 7)]
    assert plan.requests[0].prompt == "你好"
    assert len(plan.requests[1].prompt.split()) == 5


def test_log__prefix__before_recorded_prompts_and_part_of_drawn_ones(tmp_path: Path) -> None:
    text = '{"at": 0, "prompt": "hello", "output": 1}\n{"at": 0, "input": 4, "output": 1}\n{"at": 0, "input": 2, "output": 1}\n'
    first, second, third = (request.prompt.split() for request in replay(tmp_path, text, requests=3, prefix=3).requests)
    assert first[3:] == ["hello"]
    assert len(second) == 4
    assert first[:3] == second[:3]
    assert third == first[:2]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "has 0 requests and requests = 2; record some"),
        ('{"at": 0, "input": 1, "output": 1}\n', "has 1 requests and requests = 2; write requests = 1 or less"),
        ('{"at": 0, "output": 1}\n', ':1: a request has either "prompt"'),
        ('{"at": 0, "prompt": "a", "input": 1, "output": 1}\n', ':1: a request has either "prompt"'),
        ('{"at": 1, "input": 1, "output": 1}\n{"at": 0, "input": 1, "output": 1}\n', ":2: at = 0.0 is before"),
        ('{"at": -1, "input": 1, "output": 1}\n', ":1: Expected `float` >= 0.0"),
        ("at 0\n", ":1: JSON is malformed"),
    ],
)
def test_log__malformed__file_line_and_remedy(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError) as raised:
        replay(tmp_path, text, requests=2)
    assert error in str(raised.value)


def test_log__missing__a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        plan_load(LoadSettings(log="nowhere.jsonl"), seed=1, root=tmp_path)

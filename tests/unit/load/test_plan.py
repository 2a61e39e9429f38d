"""Settings of a load, and the plans made of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from perfgate.conductor.load.plan import LoadPlan, plan_load
from perfgate.errors import ConfigError
from perfgate.load_settings import LoadSettings
from tests.each import each


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


@each(
    "settings, text",
    [
        ({}, "none of rate, concurrency and log; write one: rate = 4"),
        ({"dataset": "a"}, "none of rate, concurrency and log; write one: rate = 4"),
        ({"rate": 4, "concurrency": 2}, "rate and concurrency; write one"),
        ({"rate": 4, "concurrency": 2, "log": "a"}, "rate and concurrency; write one"),
        ({"rate": 4, "log": "a", "dataset": "b"}, "a log and a dataset; write one of them"),
        ({"log": "a", "burstiness": 2}, "this load has log"),
        ({"concurrency": 2, "burstiness": 2}, "remove burstiness"),
        ({"concurrency": 2, "input": 4, "prefix": 5}, "write prefix = 4 or less"),
        ({"concurrency": 2, "input": [9, 4], "prefix": 5}, "write prefix = 4 or less"),
        ({"concurrency": 2, "input": {"least": 4, "most": 9}, "prefix": 5}, "write prefix = 4 or less"),
        ({"concurrency": 2, "input": {"least": 4, "most": 3}}, "least <= median <= most, found least = 4, most = 3"),
        ({"concurrency": 2, "output": {"median": 4, "most": 9}}, "median and sigma belong together"),
    ],
)
def test_settings__contradiction__what_to_write(settings: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        msgspec.convert(settings, LoadSettings)


@pytest.mark.parametrize(
    "settings",
    [
        {"rate": 0},
        {"rate": float("nan")},
        {"concurrency": 0},
        {"rate": 1, "requests": 0},
        {"rate": 1, "speed": 2},
        {"rate": 1, "input": []},
        {"rate": 1, "input": [0]},
        {"rate": 1, "input": {"least": 2}},
    ],
)
def test_settings__out_of_bounds_or_unknown__refused(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, LoadSettings)


def replay(folder: Path, text: str, **settings: Any) -> LoadPlan:
    (folder / "log.jsonl").write_text(text, encoding="utf-8")
    return plan_load(LoadSettings(log="log.jsonl", **settings), seed=0, root=folder)


def test_log__recorded_requests__times_after_the_first_and_prompts_as_they_were(tmp_path: Path) -> None:
    text = '{"at": 100.5, "prompt": "你好", "output": 3}\n\n{"at": 100.75, "input": 5, "output": 7}\n'
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


LOG = "".join(f'{{"at": {number}, "prompt": "question {number}", "output": 2}}\n' for number in range(5))


def prompts(folder: Path, turn: int, **settings: Any) -> list[str]:
    (folder / "log.jsonl").write_text(LOG, encoding="utf-8")
    plan = plan_load(LoadSettings(log="log.jsonl", requests=2, **settings), seed=turn, root=folder)
    return [request.prompt for request in plan.requests]


def test_log__turn_after_turn__the_next_window_and_then_the_first_behind_a_number(tmp_path: Path) -> None:
    assert [prompts(tmp_path, turn) for turn in range(5)] == [
        ["question 0", "question 1"],
        ["question 2", "question 3"],
        ["[1] question 0", "[1] question 1"],
        ["[1] question 2", "[1] question 3"],
        ["[2] question 0", "[2] question 1"],
    ]


def test_log__many_turns_and_those_of_the_warm_up__no_prompt_is_asked_twice_and_both_sides_are_asked_the_same(
    tmp_path: Path,
) -> None:
    turns = [*range(64), *range(1_000_000, 1_000_012), *range(2_000_000, 2_000_004)]
    asked = [prompt for turn in turns for prompt in prompts(tmp_path, turn)]
    assert len(set(asked)) == len(asked)
    other = tmp_path / "other checkout"
    other.mkdir()
    assert asked == [prompt for turn in turns for prompt in prompts(other, turn)]
    settings = LoadSettings(log="log.jsonl", requests=2)
    plans = [plan_load(settings, seed=turn, root=folder) for turn in (0, 2) for folder in (tmp_path, other)]
    assert plans[0].sha256 == plans[1].sha256 != plans[2].sha256 == plans[3].sha256


@pytest.mark.parametrize(
    ("settings", "concurrency", "are_spread"),
    [({}, None, True), ({"concurrency": 2}, 2, False), ({"rate": 4.0}, None, True)],
)
def test_log__prompts_with_other_times_than_its_own(
    tmp_path: Path, settings: dict[str, Any], concurrency: int | None, are_spread: bool
) -> None:
    plan = replay(tmp_path, LOG, requests=2, **settings)
    assert (plan.concurrency, [request.prompt for request in plan.requests]) == (
        concurrency,
        ["question 0", "question 1"],
    )
    assert (plan.requests[1].at > plan.requests[0].at == 0) is are_spread


def test_log__changed_between_turns__is_read_anew(tmp_path: Path) -> None:
    assert prompts(tmp_path, 0) == ["question 0", "question 1"]
    longer = replay(tmp_path, LOG.replace("question", "another question"), requests=2)
    assert longer.requests[0].prompt == "another question 0"


CONVERSATIONS = """[
 {"id": "a", "conversations": [{"from": "human", "value": "hello there"}, {"from": "gpt", "value": "good day to you"},
                               {"from": "human", "value": "more"}, {"from": "gpt", "value": "no"}]},
 {"id": "b", "conversations": [{"from": "gpt"}, {"from": "user", "value": "你好"}, {"from": "gpt", "value": "y"}]},
 {"id": "c", "conversations": [{"from": "human", "value": "without an answer"}]},
 {"id": "d", "conversations": []}, {"id": "e"}, 3,
 {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "one two"},
               {"role": "assistant", "content": "a b c"}]}
]"""


def asked_of(folder: Path, text: str, **settings: Any) -> list[tuple[str, int]]:
    (folder / "data.json").write_text(text, encoding="utf-8")
    load = LoadSettings(dataset="data.json", concurrency=2, requests=3, **settings)
    return [(one.prompt, one.output_tokens) for one in plan_load(load, seed=0, root=folder).requests]


def test_dataset__conversations__first_questions_and_as_many_tokens_as_their_answers_have_words(tmp_path: Path) -> None:
    assert asked_of(tmp_path, CONVERSATIONS) == [("hello there", 4), ("你好", 1), ("one two", 3)]
    assert [tokens for _, tokens in asked_of(tmp_path, CONVERSATIONS, output=[7])] == [7, 7, 7]
    lines = "\n".join(json.dumps(entry) for entry in json.loads(CONVERSATIONS))
    assert asked_of(tmp_path, lines) == asked_of(tmp_path, CONVERSATIONS)


@pytest.mark.parametrize(
    ("text", "error"),
    [("[{", "a dataset is a JSON list, or lines, of"), ('{"a": 1}', "has 0 requests and requests = 3; record some")],
)
def test_dataset__malformed_or_empty__what_it_should_be(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        asked_of(tmp_path, text)


@pytest.mark.parametrize(
    ("written", "shortest", "median", "longest"),
    [
        ([16, 64, 512], 16, 64, 512),
        ({"least": 10, "most": 20}, 10, 15, 20),
        ({"median": 100, "sigma": 0.5, "most": 200}, 1, 100, 200),
    ],
)
def test_lengths__drawn__within_their_bounds_and_another_draw_each_turn(
    written: Any, shortest: int, median: int, longest: int
) -> None:
    settings = msgspec.convert({"rate": 1, "requests": 2000, "input": written, "output": written}, LoadSettings)
    plans = [plan_load(settings, seed=seed) for seed in (1, 1, 2)]
    lengths = [[len(request.prompt.split()) for request in plan.requests] for plan in plans]
    assert lengths[0] == lengths[1] != lengths[2]
    assert shortest <= min(lengths[0]) <= max(lengths[0]) <= longest
    assert np.median(lengths[0]) == pytest.approx(median, rel=0.1)
    outputs = [request.output_tokens for request in plans[0].requests]
    assert np.median(outputs) == pytest.approx(median, rel=0.1)
    assert outputs != lengths[0]


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

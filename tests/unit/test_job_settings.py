"""The tables of jobs in perfgate.toml: what may stand in them, and what is said of what may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.config import Config, parse_config
from perfgate.errors import ConfigError
from perfgate.job_settings import JobReference, JobSettings
from tests.each import each

COMMAND = '[workloads.bench]\ncommand = "python bench.py"\n'
RANKS = '[workloads.train]\ntorchrun = "train.py"\n'
SERVER = '[workloads.chat]\nserve = "python serve.py --port $PORT"\n'


def parse(text: str) -> Config:
    return parse_config(text, Path("perfgate.toml"))


def test_jobs__beside_a_function__are_told_apart() -> None:
    config = parse(f'[workloads]\nencoder = "perf/workload.py:encoder"\n{COMMAND}{SERVER}')
    assert [reference.name for reference in config.references] == ["encoder"]
    assert [(job.name, job.kind) for job in config.jobs] == [("bench", "command"), ("chat", "server")]
    assert [job.name for job in config.selected_jobs(("chat",))] == ["chat"]
    assert config.selected(("chat",)) == ()


def test_job__alone__is_a_project() -> None:
    assert parse(COMMAND).references == ()


def test_number__its_tolerance__is_one_of_the_policy() -> None:
    config = parse(COMMAND + 'numbers.step = { json = "a", unit = "ms", tolerance = 0.07 }\n')
    assert config.policy().tolerances == {"number.step@bench": 0.07}


def test_ranks__losses_may_differ__is_a_tolerance_of_the_policy() -> None:
    config = parse(RANKS + "ranks = 2\nloss_tolerance = 0.001\nsame_output = true\nready_timeout = 9\n")
    assert [(job.name, job.kind) for job in config.jobs] == [("train", "ranks")]
    assert config.policy().tolerances == {"ranks.loss@train": 0.001}


def test_job__other_budget__measures_the_same() -> None:
    plain, longer = parse(COMMAND).jobs[0], parse(COMMAND + "budget = 7\n").jobs[0]
    other = parse(COMMAND.replace("bench.py", "other.py")).jobs[0]
    assert plain.sha256 == longer.sha256 != other.sha256


@each(
    "text, error",
    [
        (
            "[workloads.bench]\ntimeout = 3\n",
            r"\[workloads.bench\] needs one of `command`, `serve`, `torchrun` and `workload`, found none",
        ),
        (COMMAND + 'serve = "x"\n', "found `command` and `serve`"),
        (COMMAND + 'comand = "x"\n', "unknown key 'comand'; did you mean 'command'"),
        (COMMAND + 'ready = "/v1/models"\n', "ready is a setting of a server, and this is a command; remove it"),
        (SERVER + 'file = "out.json"\n', "file is a setting of a command, and this is a server"),
        (RANKS, "torchrun needs the number of ranks; write e.g. ranks = 2"),
        (RANKS + "ranks = 2\nsteps = 0\n", "steps"),
        (SERVER + "ranks = 2\n", "ranks is a setting of a torchrun job, and this is a server; remove it"),
        (COMMAND + "same_output = false\n", "same_output is a setting of a server"),
        (RANKS + 'ranks = 2\nsame_output = "share"\n', 'same_output = "share" is for the answers of a server'),
        (
            SERVER + 'same_output = "share"\ncheck = "c"\n',
            "check and same_output both define which answers are accepted",
        ),
        (SERVER + "budget = -1\n", r"\[workloads.chat\] budget must be `float` > 0.0, found -1"),
        (SERVER + "load = { requests = 8 }\n", r"\[workloads.chat\] a load has none of rate"),
        (
            SERVER + "load = { request = 8 }\n",
            r"\[workloads.chat\] load: unknown key 'request'; did you mean 'requests'",
        ),
        (SERVER + "load = { rate = 1, input = { mos = 9 } }\n", r"load.input: unknown key 'mos'; did you mean 'most'"),
        (SERVER + "load = { rate = 1, output = [1, 0] }\n", r"load.output\[1\] must be `int` >= 1, found 0"),
        (SERVER + "load = { concurrency = 0 }\n", r"\[workloads.chat\] load.concurrency must be `int` >= 1, found 0"),
        (
            SERVER + "sla = { first = 1 }\n",
            r"sla: unknown key 'first'; did you mean 'first_token'\?; known keys: first_token",
        ),
        (
            COMMAND + 'numbers.a = { jso = "x" }\n',
            r"\[workloads.bench.numbers\] a: unknown key 'jso'; did you mean 'json'",
        ),
        (SERVER.replace("$PORT", "8000"), "does not name \\$PORT, where perfgate looks for the server"),
        (SERVER.replace("$PORT", "$PORTS"), "does not name \\$PORT"),
        (COMMAND + 'numbers.a = { unit = "ms" }\n', "needs one of `json`, `column` and `pattern`, found none"),
        (COMMAND + 'numbers.a = { column = "x" }\n', "is a column, and no `file` is named"),
        (
            COMMAND + 'numbers.a = { json = "x", unit = "parsec" }\n',
            "unit 'parsec' is not known; the units are 1, s, ms",
        ),
        (COMMAND + 'numbers.a = { json = "x", unit = "tok/s" }\n', 'is a rate in tok/s, .*write better = "higher"'),
        (COMMAND + "numbers.a = { pattern = '(' }\n", "pattern is not a regular expression"),
        (COMMAND + "numbers.a = { pattern = 'x' }\n", "pattern needs one group around the number"),
        (COMMAND + 'numbers."a b" = { json = "x" }\n', "a name has letters, digits"),
        ('[workloads."a b"]\ncommand = "x"\n', "workload name 'a b'"),
    ],
)
def test_job__wrong__says_what_and_what_to_write(text: str, error: str) -> None:
    with pytest.raises(ConfigError, match=error):
        parse(text)


def must_gate(*, on_device: bool = False, **settings: Any) -> tuple[str, ...]:
    reference = JobReference(name="one", settings=msgspec.convert(settings, JobSettings))
    return reference.must_gate(on_device=on_device)


def test_must_gate__of_every_kind__is_what_the_settings_alone_tell() -> None:
    assert must_gate(serve="s") == ("serving.ttft", "serving.tpot", "serving.cpu", "serving.throughput")
    assert must_gate(serve="s", load={"rate": 4}) == ("serving.ttft", "serving.tpot", "serving.cpu")
    assert must_gate(serve="s", api="http") == ("serving.e2e", "serving.request_cpu")
    at_highest_rate = must_gate(serve="s", sla={"first_token": 0.5}, load={"rate": "highest"})
    assert at_highest_rate == ("serving.goodput", "serving.cpu")
    assert must_gate(torchrun="t.py", ranks=2) == ("ranks.step", "ranks.cpu")
    assert must_gate(on_device=True, torchrun="t.py", ranks=2) == ("ranks.step", "ranks.memory")
    assert must_gate(command="c", file="out.json", gates=["median_tpot", "p99_*"]) == ("number.median_tpot",)
    numbers = {"a": {"json": "a"}, "b": {"json": "b"}}
    assert must_gate(command="c", numbers=numbers) == ("number.a", "number.b")
    assert must_gate(command="c", numbers=numbers, gates=["b"]) == ("number.b",)


@pytest.mark.parametrize(
    "settings",
    [
        {
            "command": "c",
            "numbers": {"a": {"json": "a", "unit": "ms", "better": "higher"}},
            "gates": ["a"],
            "budget": 9.0,
        },
        {"serve": "s $PORT", "same_output": False, "metrics": "", "ignore_eos": False, "sla": {"first_token": 0.5}},
        {"serve": "s $PORT", "load": {"rate": 4, "requests": 16}, "extra": {"seed": 1}, "fits": "alternate"},
        {"serve": "s $PORT", "same_output": "share"},
        {"torchrun": "t.py", "ranks": 2, "loss_tolerance": 0.001, "steps": 8},
    ],
)
def test_from_written__what_is_written__is_the_same_job(settings: dict[str, Any]) -> None:
    job = JobReference("one", msgspec.convert(settings, JobSettings))
    assert JobReference.from_written("one", job.written, judged_by=job.settings) == job


def test_from_written__what_says_how_it_is_judged__is_that_of_the_other() -> None:
    own = JobReference("one", msgspec.convert({"command": "c", "gates": ["a"]}, JobSettings))
    again = JobReference.from_written("one", {**own.written, "gates": '["b"]'}, judged_by=own.settings)
    assert again == own


@pytest.mark.parametrize(
    "written", [{}, {"command": "{"}, {"command": "3"}, {"serve": '"s"', "load": "{}"}, {"other": "1"}]
)
def test_from_written__no_job__none(written: dict[str, str]) -> None:
    assert JobReference.from_written("one", written, judged_by=JobSettings(command="c")) is None

"""Results readers on files that the real tools wrote: asv on a suite, the clients on a real server.

Tools are installed at pinned versions into ``build/tools``, some minutes the first time. Left out: AISBench, and the clients of
vLLM and SGLang, whose packages take gigabytes; hyperfine, which no package of the index holds; Megatron, whose loop is in none.
docs/jobs.md says with which versions their readers were tried. Of torchtitan and verl only the loggers run, without a training.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from perfgate.conductor.results.result import Results, read_results, written_file
from perfgate.errors import ResultsError
from tests.jobs.tools import installed
from tests.waiting import wait_until

pytest.importorskip("transformers", reason="make test-jobs installs examples/serving/requirements.txt")

ROOT = Path(__file__).parents[2]
REQUESTS, WORDS, TOKENS = 8, 16, 8
WORK = {"requests": REQUESTS, "input_tokens": REQUESTS * WORDS, "output_tokens": REQUESTS * TOKENS}


class Served(NamedTuple):
    url: str
    model: Path


class Client(NamedTuple):
    """A tool that asks a server: its arguments, where it writes, and one time and one rate of its file."""

    package: str
    arguments: str
    file: str
    time: str
    rate: str


CLIENTS = {
    "guidellm": Client(
        "guidellm==0.8.1",
        "guidellm run --backend kind=openai_http,target={url},model=model,request_format=/v1/completions,max_tokens=8 "
        "--profile kind=concurrent,streams=2 --constraint kind=max_requests,count=8 "
        "--tokenizer kind=huggingface_auto,model={model} --data kind=json_file,path=prompts.jsonl "
        "--output kind=json,path=benchmarks.json --disable-console",
        "benchmarks.json",
        "request_latency",
        "requests_per_second",
    ),
    "evalscope": Client(
        "evalscope[perf]==1.14.1",
        "evalscope perf --model model --url {url}/v1/completions --api openai --parallel 2 --number 8 --dataset random "
        "--tokenizer-path {model} --min-prompt-length 16 --max-prompt-length 16 --max-tokens 8 --outputs-dir out",
        "out/**/benchmark_summary.json",
        "avg_latency",
        "req_throughput",
    ),
    "aiperf": Client(
        "aiperf==0.13.0",
        "aiperf profile --model model --url {url} --endpoint-type completions --streaming --tokenizer {model} "
        "--concurrency 2 --request-count 8 --synthetic-input-tokens-mean 16 --output-tokens-mean 8 --artifact-dir out "
        "--ui none",
        "out/profile_export_aiperf.json",
        "request_latency",
        "request_throughput",
    ),
}
SUITE = """
class Suite:
    params = [10, 100_000]
    def time_sum(self, n):
        sum(range(n))
    def peakmem_list(self, n):
        [0] * n
    def track_share(self, n):
        return 0.5
"""


# What torchtitan's logger asks a GPU for is given to it.
TORCHTITAN = """
import time
from types import SimpleNamespace
from torchtitan.components.metrics import BaseLogger, DeviceMemStats, MetricsProcessor
from torchtitan.tools.logging import init_logger
from torchtitan.tools.utils import Color

init_logger()
memory = DeviceMemStats(27.25, 34.0, 28.0, 35.0, 0, 0)
processor = object.__new__(MetricsProcessor)
vars(processor).update(
    logger=BaseLogger(),
    color=Color(),
    config=MetricsProcessor.Config(log_freq=1),
    has_quantization=False,
    parallel_dims=SimpleNamespace(non_data_parallel_size=1),
    gpu_peak_flops=312e12,
    num_flops_per_token=10**9,
    device_memory_monitor=SimpleNamespace(get_peak_stats=lambda: memory, reset_peak_stats=lambda: None),
    optimizers=SimpleNamespace(optimizers=[]),
    model_parts=[],
)
for step in range(1, 21):
    processor.ntokens_since_last_log, processor.data_loading_times = 2048, [0.001]
    processor.time_last_log = time.perf_counter() - 0.25
    processor.log(step, 7.0 - step / 100, 7.2, 1.25)
"""
# The module alone: the package imports Ray.
VERL = """
import importlib.util, runpy
from pathlib import Path

package = Path(importlib.util.find_spec("verl").origin).parent
logger = runpy.run_path(str(package / "utils" / "logger" / "aggregate_logger.py"))["LocalLogger"]()
for step in range(1, 21):
    logger.log({"timing_s/step": 46.5, "perf/throughput": 801.5, "perf/max_memory_allocated_gb": 20.25}, step)
"""
GOOGLE = """
import google_benchmark as benchmark

@benchmark.register(name="sum")
@benchmark.option.arg(10)
@benchmark.option.arg(100_000)
@benchmark.option.unit(benchmark.kMicrosecond)
def total(state):
    while state:
        sum(range(state.range(0)))

benchmark.main()
"""
PYPERF = """
import pyperf

runner = pyperf.Runner(processes=2, values=3, warmups=1)
for number in (10, 100_000):
    runner.bench_func(f"sum/{number}", sum, range(number))
"""
PYTEST = """
import pytest

@pytest.mark.parametrize("n", [10, 100_000])
def test_sum(benchmark, n):
    benchmark.pedantic(lambda: sum(range(n)), rounds=20)
"""


def run(arguments: list[str], folder: Path) -> str:
    """Run a tool to its end; return what it printed."""
    environment = {**os.environ, "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        arguments, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    (folder / "hub").mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "HF_HUB_CACHE": str(folder / "hub"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("tool_server.py")), str(folder), str(port)]
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT) as server,
    ):
        try:
            wait_until(lambda: server.poll() is not None or answers(f"http://127.0.0.1:{port}/health"))
            assert server.poll() is None, (folder / "log").read_text()
            yield Served(f"http://127.0.0.1:{port}", folder / "model")
        finally:
            server.kill()


def answers(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (URLError, OSError):
        return False


def read(folder: Path, pattern: str, format: str) -> Results:  # noqa: A002 - as perfgate.toml calls it
    """The results, found out by their content. Another format refuses them by its name."""
    file = written_file(folder, pattern, 0.0)
    results = read_results(file, format="auto")
    assert results.format == format
    with pytest.raises(ResultsError, match=f"{re.escape(file.name)}: it is not in the format vllm_bench"):
        read_results(file, format="vllm_bench")
    return results


@pytest.mark.parametrize("name", CLIENTS)
def test_client__its_file__is_read_with_units_and_work(name: str, served: Served, tmp_path: Path) -> None:
    client = CLIENTS[name]
    program, *arguments = client.arguments.format(url=served.url, model=served.model).split()
    prompt = json.dumps({"prompt": " ".join(f"word{number}" for number in range(WORDS))})
    (tmp_path / "prompts.jsonl").write_text(2 * REQUESTS * f"{prompt}\n", encoding="utf-8")
    run([str(installed(client.package) / program), *arguments], tmp_path)
    results = read(tmp_path, client.file, name)
    numbers = {number.name: number for number in results.numbers}
    latency, rate = numbers[client.time], numbers[client.rate]
    assert (latency.unit, latency.better, rate.unit, rate.better) == ("s", "lower", "items/s", "higher")
    # Two at a time: what a wrong unit would be a thousand times away from.
    assert 0.2 < latency.value * rate.value < 4
    assert results.work == WORK


def test_asv__its_file__is_read_with_units(tmp_path: Path) -> None:
    programs = installed("asv==0.6.6")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "__init__.py").touch()
    (tmp_path / "benchmarks" / "suite.py").write_text(SUITE, encoding="utf-8")
    settings = {"version": 1, "project": "p", "repo": ".", "branches": ["main"], "environment_type": "existing"}
    (tmp_path / "asv.conf.json").write_text(json.dumps(settings), encoding="utf-8")
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.invalid"]
    for line in (["init", "-qb", "main"], ["add", "--all"], ["commit", "-qm", "suite"]):
        subprocess.run([*git, *line], cwd=tmp_path, check=True)
    run([str(programs / "asv"), "machine", "--yes"], tmp_path)
    run(
        [
            *(str(programs / "asv"), "run", "--environment", "existing:same", "--set-commit-hash", "main"),
            *("--record-samples", "-a", "repeat=5", "-a", "rounds=1", "-a", "sample_time=0.01"),
        ],
        tmp_path,
    )
    results = read(tmp_path, "results/*/*-existing-*.json", "asv")
    numbers = {number.name: number for number in results.numbers}
    assert numbers.keys() == {
        f"suite.Suite.{name}({n})" for name in ("time_sum", "peakmem_list") for n in (10, 100_000)
    }
    few, many = numbers["suite.Suite.time_sum(10)"], numbers["suite.Suite.time_sum(100000)"]
    assert (many.unit, len(many.samples)) == ("s", 5)
    assert 1e-8 < few.value < 1e-4 < many.value * 10 < 1
    assert numbers["suite.Suite.peakmem_list(10)"].unit == "B"
    assert 2**20 < numbers["suite.Suite.peakmem_list(10)"].value < 2**30
    assert results.work == {"benchmarks": 4}


@pytest.mark.parametrize(
    ("package", "options", "script", "name", "expected"),
    [
        (
            "torchtitan==0.3.0",
            [],
            TORCHTITAN,
            "torchtitan",
            {"tps": (8192, "tokens/s", "higher"), "memory": (28 * 2**30, "B", "lower")},
        ),
        (
            "verl==0.9.1",
            ["--no-deps"],
            VERL,
            "verl",
            {
                "step": (46.5, "s", "lower"),
                "throughput": (801.5, "tokens/s", "higher"),
                "memory": (20.25 * 2**30, "B", "lower"),
            },
        ),
    ],
    ids=["torchtitan", "verl"],
)
def test_log__of_a_training__is_read_with_units(
    package: str,
    options: list[str],
    script: str,
    name: str,
    expected: dict[str, tuple[float, str, str]],
    tmp_path: Path,
) -> None:
    programs = installed(package, *options)
    (tmp_path / "script.py").write_text(script, encoding="utf-8")
    (tmp_path / "train.log").write_text(run([str(programs / "python"), "script.py"], tmp_path), encoding="utf-8")
    numbers = {number.name: number for number in read(tmp_path, "train.log", name).numbers}
    for number, (value, unit, better) in expected.items():
        # Tokens per second are of a time that the logger takes itself; a wrong unit would be a thousand times away.
        assert 0.5 < numbers[number].value / value < 2
        assert (numbers[number].unit, numbers[number].better) == (unit, better)


@pytest.mark.parametrize(
    ("package", "files", "command", "name", "small", "large"),
    [
        (
            "google-benchmark==1.9.5",
            {"suite.py": GOOGLE},
            "python suite.py --benchmark_out=out.json --benchmark_min_time=0.01s",
            "google_benchmark",
            "sum/10",
            "sum/100000",
        ),
        (
            "pyperf==2.11.0",
            {"suite.py": PYPERF},
            "python suite.py -o out.json --quiet",
            "pyperf",
            "sum/10",
            "sum/100000",
        ),
        (
            "pytest-benchmark==5.3.1",
            {"test_suite.py": PYTEST},
            "python -m pytest -q -p no:cacheprovider test_suite.py --benchmark-json=out.json",
            "pytest_benchmark",
            "test_suite.py::test_sum[10]",
            "test_suite.py::test_sum[100000]",
        ),
    ],
    ids=["google_benchmark", "pyperf", "pytest_benchmark"],
)
def test_suite__its_file__is_read_in_seconds(
    package: str, files: dict[str, str], command: str, name: str, small: str, large: str, tmp_path: Path
) -> None:
    program, *arguments = command.split()
    for file, text in files.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    run([str(installed(package) / program), *arguments], tmp_path)
    results = read(tmp_path, "out.json", name)
    numbers = {number.name: number for number in results.numbers}
    assert numbers.keys() == {small, large}
    assert {number.unit for number in numbers.values()} == {"s"}
    # What a wrong unit would be a thousand times away from.
    assert 1e-8 < numbers[small].value < 1e-4 < numbers[large].value * 10 < 1
    assert results.work == {"benchmarks": 2}

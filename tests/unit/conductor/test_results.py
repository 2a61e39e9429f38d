"""Every format is read with its units, told from every other, and refused where it is damaged, stale or of failed work.

The files of pytest-benchmark, pyperf, Google Benchmark and hyperfine were written by these programs. The others are written
here by hand, with the keys of what the programs wrote (docs/jobs.md says which versions; tests/jobs/test_tools.py runs them).
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfgate.conductor.results.result import Results, all_readers, read_results, written_file
from perfgate.errors import ResultsError

DATA = Path(__file__).parents[2] / "data" / "results"


def written(name: str) -> str:
    return (DATA / f"{name}.json").read_text(encoding="utf-8")


def dumped(**document: Any) -> str:
    return json.dumps(document)


VLLM = {
    "date": "20260823-101500",
    "backend": "openai",
    "tokenizer_id": "m",
    "completed": 8,
    "failed": 0,
    "total_input_tokens": 512,
    "total_output_tokens": 128,
    "duration": 2.0,
    "request_throughput": 4.0,
    "output_throughput": 64.0,
    "total_token_throughput": 320.0,
    "request_goodput": None,
    "mean_ttft_ms": 41.0,
    "median_ttft_ms": 40.0,
    "p99_ttft_ms": 50.0,
    "mean_tpot_ms": 10.0,
    "median_e2el_ms": 200.0,
    "ttfts": [0.039, 0.041],
}
SGLANG = {
    "backend": "sglang",
    "completed": 8,
    "total_input_tokens": 512,
    "total_output_tokens": 128,
    "request_throughput": 4.0,
    "output_throughput": 64.0,
    "mean_ttft_ms": 40.0,
    "p99_itl_ms": 12.0,
}
STATISTICS = {"mean": 41.0, "median": 40.0, "percentiles": {"p50": 40.0, "p99": 60.0}, "count": 8, "total_sum": 328.0}
# What is counted in moments has quantiles of moments.
RATE = {"mean": 12.5, "median": 12.3, "percentiles": {"p50": 12.3, "p99": 192.4}, "count": 8, "total_sum": 100.0}
GUIDELLM = {
    "metadata": {"version": 2, "guidellm_version": "0.8.0"},
    "benchmarks": [
        {
            "config": {
                "profile": {"kind": "concurrent", "streams": [2]},
                "strategy": {"type_": "concurrent", "streams": 2},
            },
            "metrics": {
                "request_totals": {"successful": 8, "errored": 0, "incomplete": 0, "total": 8},
                "time_to_first_token_ms": {"successful": STATISTICS},
                "time_per_output_token_ms": None,
                "request_latency": {"successful": {"median": 0.2, "percentiles": {"p99": 0.3}}},
                "requests_per_second": {"successful": RATE},
                "output_tokens_per_second": {"successful": RATE},
                "prompt_token_count": {"successful": {"total_sum": 40.0}},
                "output_token_count": {"successful": {"total_sum": 128.0}},
            },
        }
    ],
}
AIPERF = {
    "schema_version": "1.4",
    "is_complete": True,
    "was_cancelled": False,
    "request_count": {"unit": "requests", "avg": 8.0},
    "total_isl": {"unit": "tokens", "avg": 128.0},
    "total_osl": {"unit": "tokens", "avg": 64.0},
    "request_throughput": {"unit": "requests/sec", "avg": 4.0},
    "time_to_first_token": {"unit": "ms", "avg": 41.0, "p50": 40.0, "p99": 60.0},
}
EVALSCOPE = {
    "Test Duration (s)": 2.0,
    "Request Rate (req/s)": -1.0,
    "Total Requests": 8,
    "Failed Requests": 0,
    "Avg Input Tokens": 16.0,
    "Avg Output Tokens": 8.0,
    "Input Throughput (tok/s)": 0.0,
    "Output Throughput (tok/s)": 64.0,
    "Avg TTFT (ms)": 40.0,
    "Avg Latency (s)": 0.2,
}
AISBENCH = {
    "Benchmark Duration": {"total": "2000.0 ms"},
    "Total Requests": {"total": 8},
    "Failed Requests": {"total": 0},
    "Success Requests": {"total": 8},
    "Max Concurrency": {"total": 2},
    "Total Input Tokens": {"total": 128},
    "Total Generated Tokens": {"total": 64},
    "Output Token Throughput": {"total": "64.0 token/s"},
    "Request Throughput": {"total": "4.0 req/s"},
}
ASV = {
    "version": 2,
    "commit_hash": "0" * 40,
    "result_columns": ["result", "params", "version", "samples"],
    "results": {
        "suite.time_sum": [[1e-6, 2e-6], [["10", "100"]], "v", [[1e-6, 1.1e-6], None]],
        "suite.peakmem_list": [[4096], [], "v"],
        "suite.time_skipped": [[float("nan")], [], "v"],
        "suite.track_share": [[0.5], [], "v"],
    },
}
TORCHTITAN = "\n".join(
    f"[rank0]:[titan] - \x1b[31mstep: {step:2}  \x1b[32mloss:  7.1  \x1b[33mmemory: 27.30GiB(34.5%)  "
    f"\x1b[34mtps: 5,76{step % 3}  mfu: N/A\x1b[39m"
    for step in range(1, 13)
) + (
    "\n[rank0]:[titan] - \x1b[33mvalidate step: 12  \x1b[32mloss:  7.3  \x1b[38;2;54;234;195mmemory: 27.30GiB(34.5%)  "
    "\x1b[34mtps: 627,259,061\x1b[39m"
)
MEGATRON = "\n".join(
    f" iteration {step:8}/ 100 | consumed samples: 12 | elapsed time per iteration (ms): 28{step % 3}.9/281.2 | "
    "throughput per GPU (TFLOP/s/GPU): 40.4 | number of skipped iterations:   0 | number of nan iterations:   0 |"
    for step in range(1, 13)
)
VERL = "\n".join(
    f"(TaskRunner pid=7) step:{step} - actor/loss:np.float64(-0.01) - response_length/mean:512.0 - timing_s/step:4{step}.5 - "
    "perf/throughput:np.float64(801.4)"
    for step in range(1, 7)
)
LINES = (
    '{"name": "step", "value": 12, "unit": "ms"}\n{"name": "rate", "value": 3, "unit": "tok/s", "better": "higher"}\n'
)
FILES = {
    "vllm_bench": json.dumps(VLLM),
    "sglang": json.dumps(SGLANG) + "\n",
    "guidellm": json.dumps(GUIDELLM),
    "aiperf": json.dumps(AIPERF),
    "evalscope": json.dumps(EVALSCOPE),
    "aisbench": json.dumps(AISBENCH),
    "pytest_benchmark": written("pytest_benchmark"),
    "google_benchmark": written("google_benchmark"),
    "hyperfine": written("hyperfine"),
    "pyperf": written("pyperf"),
    "asv": json.dumps(ASV),
    "torchtitan": TORCHTITAN,
    "megatron": MEGATRON,
    "verl": VERL,
    "json_lines": LINES,
}
# A number of each, in its base unit, with its direction.
EXPECTED = {
    "vllm_bench": ("median_ttft", 0.04, "s", "lower"),
    "sglang": ("output_throughput", 64.0, "tokens/s", "higher"),
    "guidellm": ("requests_per_second", 12.5, "items/s", "higher"),
    "aiperf": ("time_to_first_token.p99", 0.06, "s", "lower"),
    "evalscope": ("output_throughput", 64.0, "tokens/s", "higher"),
    "aisbench": ("request_throughput", 4.0, "items/s", "higher"),
    "asv": ("suite.peakmem_list", 4096, "B", "lower"),
    "torchtitan": ("tps", 5761.0, "tokens/s", "higher"),
    "megatron": ("iteration", 0.2819, "s", "lower"),
    "verl": ("throughput", 801.4, "tokens/s", "higher"),
    "json_lines": ("step", 0.012, "s", "lower"),
}


def read(folder: Path, text: str, format: str = "auto") -> Results:  # noqa: A002
    file = folder / "out.json"
    file.write_text(text, encoding="utf-8")
    return read_results(file, format=format)


def test_formats__all_of_them__have_a_file_here() -> None:
    assert set(all_readers()) == FILES.keys()


@pytest.mark.parametrize("name", FILES)
def test_file__of_each_format__is_told_from_the_others(tmp_path: Path, name: str) -> None:
    assert read(tmp_path, FILES[name]).format == name
    for other in FILES.keys() - {name}:
        with pytest.raises(ResultsError, match=f"it is not in the format {other}, which reads"):
            read(tmp_path, FILES[name], other)


@pytest.mark.parametrize("name", EXPECTED)
def test_number__of_each_format__is_in_its_base_unit(tmp_path: Path, name: str) -> None:
    found = {number.name: number for number in read(tmp_path, FILES[name]).numbers}
    wanted, value, unit, better = EXPECTED[name]
    assert (found[wanted].unit, found[wanted].better) == (unit, better)
    assert found[wanted].value == pytest.approx(value)


def test_number__of_programs_that_wrote_the_file__is_the_middle_of_its_samples() -> None:
    (sleep,) = read_results(DATA / "hyperfine.json", format="auto").numbers
    assert sleep.name == "sleep 0.01"
    assert 0.01 <= sleep.value < 1
    assert len(sleep.samples) == 5
    (loop,) = read_results(DATA / "google_benchmark.json", format="auto").numbers
    assert loop.name == "sum_range"
    assert 1e-6 < loop.value < 1e-3
    assert len(loop.samples) == 3
    total, ordered = read_results(DATA / "pyperf.json", format="auto").numbers
    assert (total.name, ordered.name, len(total.samples)) == ("sum", "sort", 4)
    assert 1e-7 < ordered.value < total.value < 1e-6
    names = [number.name for number in read_results(DATA / "pytest_benchmark.json", format="auto").numbers]
    assert names == ["test_a.py::test_sum", "test_a.py::test_sorted"]


def test_work__is_what_must_be_equal(tmp_path: Path) -> None:
    assert read(tmp_path, FILES["vllm_bench"]).work == {"requests": 8, "input_tokens": 512, "output_tokens": 128}
    tokens = {"requests": 8, "input_tokens": 128, "output_tokens": 64}
    assert [read(tmp_path, FILES[name]).work for name in ("aiperf", "evalscope", "aisbench")] == 3 * [tokens]
    assert read(tmp_path, FILES["guidellm"]).work == {"requests": 8, "input_tokens": 40, "output_tokens": 128}
    assert read(tmp_path, FILES["megatron"]).work == {"iterations": 12}
    assert read(tmp_path, FILES["verl"]).work == {"steps": 5, "response_length": 512}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", "it is empty"),
        ("{}", "no format recognises it"),
        (dumped(**{**VLLM, "failed": 2}), "2 requests failed"),
        (dumped(**{**VLLM, "error_requests": 2}), "2 requests failed"),
        (dumped(**{**VLLM, "unsuccessful_requests": 2}), "2 requests failed"),
        (dumped(**{**SGLANG, "timeouts": 2}), "2 requests failed"),
        (dumped(**{**VLLM, "output_throughput": float("nan")}), "output_throughput is nan, not a valid measurement"),
        (dumped(**{**VLLM, "mean_ttft_ms": -1}), "mean_ttft_ms is -1|mean_ttft is -1"),
        (2 * FILES["sglang"], "it holds 2 runs"),
        (f"{json.dumps(VLLM)}\n{json.dumps(VLLM)}", "it holds 2 runs; leave out --append-result"),
        (dumped(**{**SGLANG, "errors": ["", "timeout"]}), "1 requests failed: timeout"),
        (FILES["guidellm"].replace('"version": 2', '"version": 3'), "metadata.version is 3"),
        (FILES["guidellm"].replace('"errored": 0', '"errored": 1'), "1 requests failed"),
        (dumped(**{**AIPERF, "schema_version": "2.0"}), "schema_version is 2.0"),
        (dumped(**{**AIPERF, "is_complete": False}), "the run is incomplete"),
        (dumped(**{**AIPERF, "request_throughput": {"unit": "parsec", "avg": 1}}), "has the unknown unit 'parsec'"),
        (dumped(**{**EVALSCOPE, "Failed Requests": 1}), "1 requests failed"),
        (dumped(**{**AISBENCH, "Failed Requests": {"total": 1}}), "1 requests failed"),
        (
            FILES["google_benchmark"].replace('"json_schema_version": 1', '"json_schema_version": 9'),
            "is 9; only 1 is supported",
        ),
        (FILES["hyperfine"].replace("0\n", "1\n", 1), "a non-zero exit code"),
        (FILES["asv"].replace("[1e-06, 2e-06]", "[1e-06, null]"), r"suite.time_sum\(100\) failed"),
        (FILES["asv"].replace('"version": 2', '"version": 1'), "version 1 of asv.*: asv update"),
        (dumped(version=1, commit_hash="0", results={"time_a": 1.0}), "version 1 of asv.*: asv update"),
        (FILES["pytest_benchmark"].replace('"version": "5', '"version": "9'), "version 9"),
        (FILES["pyperf"].replace('"version": "1', '"version": "2'), "version 2.0 of pyperf"),
        (FILES["pyperf"].replace('"unit": "second"', '"unit": "parsec"'), "sum has the unknown unit 'parsec'"),
        (FILES["pyperf"].replace('"values"', '"other"'), "sum has no values; let pyperf measure"),
        ("\n".join(TORCHTITAN.splitlines()[:5]), "it has 3 steps after the warm-up"),
        (MEGATRON.replace("nan iterations:   0", "nan iterations:   1"), "1 nan iterations"),
        (MEGATRON.replace("skipped iterations:   0", "skipped iterations:   1"), "1 skipped iterations"),
        (LINES.replace("lower", "x").replace("higher", "x"), 'better is \'x\'; write "lower" or "higher"'),
        (LINES.replace("12", '"fast"'), "step is 'fast', not a number"),
        ('{"name": "step", "value": 1, "unit": "parsec"}', "unit 'parsec'"),
    ],
)
def test_file__that_cannot_count__is_refused_with_the_reason(tmp_path: Path, text: str, error: str) -> None:
    with pytest.raises(ResultsError, match=error):
        read(tmp_path, text)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_file__written_on_windows__is_read(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "out.json"
    path.write_text(FILES["vllm_bench"], encoding=encoding)

    assert read_results(path, format="auto").format == "vllm_bench"


def names_of(results: Results) -> list[str]:
    return [number.name for number in results.numbers]


def test_asv__cases_skipped_and_tracked__are_left_out(tmp_path: Path) -> None:
    results = read(tmp_path, FILES["asv"])
    assert names_of(results) == ["suite.time_sum(10)", "suite.time_sum(100)", "suite.peakmem_list"]
    assert [number.samples for number in results.numbers] == [(1e-6, 1.1e-6), (), ()]
    failed = {**ASV, "results": {"suite.time_all": [None, [["10", "100"]], "v"]}}
    with pytest.raises(ResultsError, match=r"suite.time_all\(10\) failed"):
        read(tmp_path, json.dumps(failed))


def test_asv__functions_in_camel_case__are_read(tmp_path: Path) -> None:
    names = ("suite.TimeSort", "suite.PeakMemSort", "suite.Timer", "suite.TrackShare", "suite.memory")
    camel = {**ASV, "results": {name: [[1.0], [], "v"] for name in names}}
    numbers = read(tmp_path, json.dumps(camel)).numbers
    assert [(number.name, number.unit) for number in numbers] == [("suite.TimeSort", "s"), ("suite.PeakMemSort", "B")]


def test_google_benchmark__aggregates_only__the_median_counts(tmp_path: Path) -> None:
    entry = {"run_name": "BM_sort", "run_type": "aggregate", "real_time": 5.0, "time_unit": "us"}
    names = {"mean": 6.0, "median": 5.0, "stddev": 1.0}
    entries = [
        {**entry, "name": f"BM_sort_{name}", "aggregate_name": name, "real_time": value}
        for name, value in names.items()
    ]
    (number,) = read(tmp_path, dumped(context={"json_schema_version": 1}, benchmarks=entries)).numbers
    assert (number.name, number.value, number.unit, number.samples) == ("BM_sort", pytest.approx(5e-6), "s", ())


def test_guidellm__several_benchmarks__are_named_by_their_strategies(tmp_path: Path) -> None:
    (benchmark,) = GUIDELLM["benchmarks"]
    strategies = [{"type_": "synchronous"}, {"type_": "constant", "rate": 2.5}]
    several = [{**benchmark, "config": {"strategy": strategy}} for strategy in strategies]
    names = names_of(read(tmp_path, json.dumps({**GUIDELLM, "benchmarks": several})))
    assert {"synchronous.request_latency.p99", "constant@2.5.request_latency.p99"} <= set(names)
    with pytest.raises(
        ResultsError, match=r"it holds synchronous.output_tokens_per_second twice; let the program write"
    ):
        read(tmp_path, json.dumps({**GUIDELLM, "benchmarks": 2 * several[:1]}))


def test_aiperf__before_it_wrote_whether_it_is_complete__is_read(tmp_path: Path) -> None:
    older = {key: value for key, value in AIPERF.items() if key != "is_complete"}
    assert read(tmp_path, json.dumps(older)) == read(tmp_path, FILES["aiperf"])
    with pytest.raises(ResultsError, match="the run is incomplete"):
        read(tmp_path, dumped(**{**older, "was_cancelled": True}))


def test_genai_perf__predecessor_of_aiperf__is_read_alike(tmp_path: Path) -> None:
    """The keys and units of genai-perf 0.0.16 (genai_perf/metrics/statistics.py)."""
    times = {"avg": 48.0, "p50": 45.0, "p99": 60.0, "min": 40.0, "max": 61.0, "std": 3.0, "unit": "ms"}
    export = {
        "request_throughput": {"unit": "requests/sec", "avg": 4.0},
        "request_latency": times,
        "request_count": {"unit": "count", "avg": 8.0},
        "time_to_first_token": times,
        "output_sequence_length": {"unit": "tokens", "avg": 16.125, "p50": 16.0, "p99": 17.0},
        "input_sequence_length": {"unit": "tokens", "avg": 64.0, "p50": 64.0, "p99": 64.0},
        "output_token_throughput": {"unit": "tokens/sec", "avg": 64.5},
        "input_config": {"model_names": ["m"]},
    }
    results = read(tmp_path, json.dumps(export))
    assert [(number.name, number.value, number.unit) for number in results.numbers] == [
        ("request_throughput", 4.0, "items/s"),
        ("output_token_throughput", 64.5, "tokens/s"),
        ("time_to_first_token", pytest.approx(0.045), "s"),
        ("time_to_first_token.p99", pytest.approx(0.06), "s"),
        ("request_latency", pytest.approx(0.045), "s"),
        ("request_latency.p99", pytest.approx(0.06), "s"),
    ]
    assert results.work == {"requests": 8, "input_tokens": 512, "output_tokens": 129}


def test_evalscope__before_1_7__counts_the_same_tokens(tmp_path: Path) -> None:
    older = {
        "Time taken for tests (s)": 2.0,
        "Number of concurrency": 2,
        "Total requests": 8,
        "Succeed requests": 8,
        "Failed requests": 0,
        "Output token throughput (tok/s)": 64.0,
        "Average latency (s)": 0.2,
        "Average input tokens per request": 16.0,
        "Average output tokens per request": 8.0,
    }
    results = read(tmp_path, json.dumps(older))
    assert results.work == {"requests": 8, "input_tokens": 128, "output_tokens": 64}
    assert names_of(results) == ["output_token_throughput", "average_latency"]


def test_evalscope__what_was_asked_for_or_not_measured__is_no_number(tmp_path: Path) -> None:
    assert names_of(read(tmp_path, FILES["evalscope"])) == ["output_throughput", "avg_ttft", "avg_latency"]


def test_megatron__lines_of_training_log__are_read_as_those_of_forks(tmp_path: Path) -> None:
    lines = [
        f" [2026-08-23 10:15:00.123456] iteration {step:8d}/{100:8d} | consumed samples: {8 * step:12d} | elapsed time per "
        f"iteration (ms): {280.0 + step:.1f} | learning rate: 1.000000E-04 | global batch size: {8:5d} | lm loss: 5.540000E+00 "
        f"| loss scale: 1.0 | grad norm: 1.200 | number of skipped iterations: {0:3d} | number of nan iterations: {0:3d} |"
        for step in range(1, 12)
    ]
    (iteration,) = read(tmp_path, "\n".join(lines)).numbers
    assert iteration.value == pytest.approx(0.287)


def test_megatron__skipped_while_the_loss_scale_is_found__counts_the_others(tmp_path: Path) -> None:
    log = MEGATRON.replace("skipped iterations:   0", "skipped iterations:   1", 2)
    (iteration, _) = read(tmp_path, log).numbers
    assert len(iteration.samples) == 10


def test_torchtitan__validation__is_no_step(tmp_path: Path) -> None:
    rate, _ = read(tmp_path, TORCHTITAN).numbers
    assert max(rate.samples) == 5762


def test_torchtitan__lines_of_several_ranks__the_same_in_any_order(tmp_path: Path) -> None:
    """LOG_RANK=0,1: ranks of a pipeline hold other amounts of memory."""
    lines = []
    for step in range(1, 13):
        other = f"[rank1]: step: {step:2d}  loss:  7.1  memory: 40.50GiB(51%)  tps: 5,{step:03d}  tflops: 299.1\n"
        lines.append([f"[rank0]: step: {step:2d}  loss: -1.0  memory: 27.25GiB(34%)  tps: 5,7{step:02d}\n", other])
    first, second = "".join(map("".join, lines)), "".join("".join(reversed(pair)) for pair in lines)
    assert read(tmp_path, first) == read(tmp_path, second)
    rate, memory = read(tmp_path, first).numbers
    assert (rate.value, memory.value) == (5007.5, 40.5 * 2**30)


def test_aisbench__times__are_read_from_the_table_beside_it(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text(
        "Performance Parameters,Stage,Average,Median,P99,N\n"
        "TTFT,stable,1.0 ms,1.0 ms,1.0 ms,4\nTTFT,total,9.8 ms,9.2 ms,14.0 ms,8\nInputTokens,total,16.0,16.0,16.0,8\n"
    )
    found = {number.name: number.value for number in read(tmp_path, FILES["aisbench"]).numbers}
    assert found == {
        "output_token_throughput": 64.0,
        "request_throughput": 4.0,
        "ttft": pytest.approx(0.0092),
        "ttft.p99": pytest.approx(0.014),
    }


def test_aisbench__keys_in_other_capitals__are_the_same_work(tmp_path: Path) -> None:
    text = FILES["aisbench"].replace("Total Generated Tokens", "Total generated tokens").replace("total", "Total")
    assert read(tmp_path, text) == read(tmp_path, FILES["aisbench"])


def test_aisbench__stable_stage_and_other_statistics__are_named(tmp_path: Path) -> None:
    (tmp_path / "out.csv").write_text(
        "Performance Parameters,Stage,Average,P95,N\nTTFT,stable,9.8 ms,14.0 ms,4\n", encoding="utf-8-sig"
    )
    numbers = read(tmp_path, FILES["aisbench"].replace('"total"', '"stable"')).numbers
    assert {number.name: number.value for number in numbers} == {
        "stable.output_token_throughput": 64.0,
        "stable.request_throughput": 4.0,
        "stable.ttft.mean": pytest.approx(0.0098),
    }


def test_json_lines__rate_without_a_direction__is_better_if_higher(tmp_path: Path) -> None:
    lines = '{"name": "rate", "value": 3, "unit": "tok/s"}\n{"name": "step", "value": 3, "unit": "s"}\n'
    assert [number.better for number in read(tmp_path, lines).numbers] == ["higher", "lower"]


def test_written_file__of_this_run__is_the_one_that_the_pattern_means(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"ended without writing out/\*/a.json; let it write there, or set `file`"):
        written_file(tmp_path, "out/*/a.json", 100.0)
    files = [tmp_path / "out" / day / "a.json" for day in ("1", "2", "3")]
    for file, written in zip(files, (50.0, 150.0, 60.0), strict=True):
        file.parent.mkdir(parents=True)
        file.touch()
        os.utime(file, (written, written))
    assert written_file(tmp_path, "out/*/a.json", 100.0) == files[1]
    assert written_file(tmp_path, "out/2/a.json", 100.0) == files[1]
    with pytest.raises(
        ResultsError, match=r"out/3/a\.json is older than this run of the program, which did not write it"
    ):
        written_file(tmp_path, "out/*/a.json", 200.0)
    with pytest.raises(ResultsError, match=r"wrote 2 files .*: out/2/a\.json, out/3/a\.json; let `file` match one"):
        written_file(tmp_path, "out/*/a.json", 55.0)


def test_format__unknown__names_all_there_are(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match=r"unknown format 'vlm'; the formats are aiperf: .*vllm_bench: "):
        read(tmp_path, LINES, "vlm")


@given(name=st.sampled_from(sorted(FILES)), cut=st.integers(0, 4000), junk=st.text(max_size=5))
def test_file__damaged__is_refused_and_never_crashes(tmp_path_factory: Any, name: str, cut: int, junk: str) -> None:
    folder = tmp_path_factory.getbasetemp()
    text = FILES[name][:cut] + junk + FILES[name][cut + 3 :]
    with suppress(ResultsError):
        read(folder, text, name)

"""The comment's layout: what stands where, what is never dropped, what is never shown."""

from __future__ import annotations

import re

import pytest

from perfgate.catalogue.lookup import METRICS
from perfgate.document.budget import parse_budget
from perfgate.document.decision import Failure, Invalid, Missing, Policy, PowerCap, Procedure, SideSummary, StepSummary
from perfgate.document.explanation import OperatorDelta, Part
from perfgate.document.message import Message, quote
from perfgate.document.run import CALLS_TOO_SLOW, TIME_SPENT, ErrorDetail
from perfgate.errors import EXIT_INCONCLUSIVE
from perfgate.judging.forge.comment import MAX_CHARACTERS, TEXT_BUDGET, CommentState, compose, marker
from perfgate.judging.gate.verdict import exit_code
from perfgate.judging.report.render.comment import CommentContext, render_comment
from perfgate.toml import tomllib
from tests.fakes.documents import (
    kept_file,
    make_bound,
    make_comparison,
    make_counter,
    make_decision,
    make_difference,
    make_failed_check,
    make_failure,
    operator_changes,
    regressed_counters,
    regressed_time,
    suggestions,
    traces,
    unchanged_comparisons,
)

CONTEXT = CommentContext(marker="<!-- perfgate:v1:demo -->")


def title(text: str) -> str:
    return text.splitlines()[2]


def failing(**fields):
    comparisons = regressed_time() + regressed_counters()
    return make_decision("FAIL", **{"comparisons": comparisons, "operator_changes": operator_changes(), **fields})


def test_render_comment__any_decision__first_line_is_the_marker() -> None:
    assert render_comment(make_decision(), CONTEXT).splitlines()[0] == "<!-- perfgate:v1:demo -->"


@pytest.mark.parametrize("marker", ["", "perfgate", "<!-- a\nb -->", "<!-- a --> @all"])
def test_render_comment__marker_is_no_single_html_comment__is_refused(marker: str) -> None:
    with pytest.raises(ValueError, match="one line of HTML comment"):
        render_comment(make_decision(), CommentContext(marker=marker))


def test_title__time_regressed__names_worst_number_and_cause() -> None:
    assert title(render_comment(failing(), CONTEXT)) == (
        "## ❌ perfgate: FAIL – fast-path latency 6.8 % slower (36.1 → 38.6 ms): 24 more `aten::add` at `model.py:88`"
    )


def test_title__only_counters_regressed__names_the_counter_with_its_new_count() -> None:
    decision = failing(comparisons=regressed_counters())
    assert title(render_comment(decision, CONTEXT)) == (
        "## ❌ perfgate: FAIL – framework ops per call 40 → 65 (exact): 24 more `aten::add` at `model.py:88`"
    )


def test_title__several_places__names_the_one_of_its_number() -> None:
    other = make_comparison(shape="short", outcome="unchanged")
    slower = "FAIL – fast-path latency of `encoder/long` 6.8 % slower (36.1 → 38.6 ms)"
    assert slower in title(render_comment(failing(comparisons=[*regressed_time(), other]), CONTEXT))
    failed = [make_failure(workload="decoder")]
    assert slower in title(render_comment(failing(comparisons=regressed_time(), failures=failed), CONTEXT))


def test_title__faster_but_wrong_output__the_correctness_check_comes_first() -> None:
    wrong = make_failed_check(quote("cosine 0.31 < 0.99"))
    faster = make_comparison("latency.low", outcome="improved", delta=-0.3, interval=(-0.32, -0.28))
    text = render_comment(make_decision("FAIL", comparisons=[faster, wrong]), CONTEXT)
    assert title(text) == "## ❌ perfgate: FAIL – the output of `encoder/long` is wrong: its correctness check failed"
    assert "A wrong output cannot be accepted" in text
    assert "`cosine 0.31 < 0.99`" in text


def test_pass__nothing_moved__is_one_line_and_folds() -> None:
    lines = render_comment(make_decision(), CONTEXT).splitlines()
    outside = [line for line in unfolded(lines) if line]
    assert outside == [
        "<!-- perfgate:v1:demo -->",
        "## ✅ perfgate: PASS – no slowdown above 2 %: fast-path latency +0.2 %, at most +0.9 %",
        "<sub>Full results: `report.html` and `decision.json` of this check</sub>",
    ]


def test_title__pass_with_a_shape_that_may_only_be_faster__names_the_shape_that_may_be_slower() -> None:
    faster = make_comparison(shape="long", delta=-0.004, interval=(-0.006, -0.002))
    open_end = make_comparison(shape="short", delta=0.0, interval=(-0.001, 0.0015))
    expected = "worst of 2 shapes is fast-path latency of `encoder/short` 0.0 %, at most +0.1 %"
    assert expected in title(render_comment(make_decision(comparisons=[faster, open_end]), CONTEXT))


def test_title__pass_of_a_job_with_a_rate_that_may_only_be_higher__names_the_number_that_may_be_worse() -> None:
    job = {"shape": "", "evidence": "quad", "pairs": 8}
    higher = make_comparison("serving.rate", unit="1/s", better="higher", delta=0.03, interval=(0.02, 0.04), **job)
    slower = make_comparison("serving.latency", delta=0.001, interval=(-0.002, 0.004), **job)
    expected = "worst is"
    line = title(render_comment(make_decision(comparisons=[higher, slower]), CONTEXT))
    assert expected in line
    assert "+0.1 %, at most +0.4 %" in line


def unfolded(lines: list[str]) -> list[str]:
    """Return the lines outside <details>."""
    depth, found = 0, []
    for line in lines:
        depth += line.count("<details>")
        if depth == 0:
            found.append(line)
        depth -= line.count("</details>")
    return found


def test_facts__always__noise_floor_pairs_time_base_and_testbed_are_said() -> None:
    text = render_comment(failing(), CONTEXT)
    assert "noise floor ±0.9 % (A/A in this job) · 14 pairs + 7 A/A in 3 m 10 s on `AMD EPYC 7B13, 2 CPUs`" in text
    assert "\nbase `a1b2c3d4e`: merge-base with main · head `0f1e2d3c4` · testbed identical" in text


def test_table__something_failed__holds_failing_and_better_rows_only() -> None:
    better = make_counter("memory.peak", 3_328_599_654, 2_909_798_400)
    decision = failing(comparisons=unchanged_comparisons()[:2] + regressed_counters() + [better])
    table = [line for line in render_comment(decision, CONTEXT).splitlines() if line.startswith("| **")]
    assert [line.split("|")[1].strip() for line in table] == ["**FAIL**", "**FAIL**", "**FAIL**", "**better**"]
    assert "aten::add` calls" not in "".join(table)


def test_table__only_operators_regressed__they_become_rows() -> None:
    decision = failing(comparisons=[make_counter("ops.count:aten::clone", 0, 3)], operator_changes=[])
    assert "| **FAIL** | calls to `aten::clone` · `encoder/long` | 0 | 3 | 3 more (exact) |" in render_comment(
        decision, CONTEXT
    )


def test_why__counter_parts_and_traces__operator_new_count_and_source_line() -> None:
    text = render_comment(failing(suggestions=suggestions()), CONTEXT)
    assert "- 24 more `aten::add` at `model.py:88`; in `encoder/long`, 12 → 36, 1.90 ms more self time" in text
    assert "- Try: Replace the loop of 24 `aten::add` by one batched call" in text


def test_trace__links_and_command__artifact_is_linked_and_command_is_code() -> None:
    context = CommentContext(
        marker="<!-- m -->", artifact_url="https://forge.example/a/1", reproduce="perfgate local --base a1b2c3d4e"
    )
    text = render_comment(failing(links=traces()), context)
    assert "**Trace** `base/encoder-long.trace.json.gz` ·" in text
    assert "in [the artifact](https://forge.example/a/1)" in text
    assert "**Reproduce** `perfgate local --base a1b2c3d4e`" in text


def test_end__nothing_was_measured__promises_no_report() -> None:
    unread = make_decision(
        "INCONCLUSIVE", procedure=Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy())
    )
    job = CommentContext(
        marker="<!-- m -->", artifact_url="https://forge.example/a/1", job_url="https://forge.example/j/1"
    )
    assert render_comment(unread, job).endswith("\n\n<sub>[the job](https://forge.example/j/1)</sub>\n")
    assert "report.html" not in render_comment(unread, CONTEXT)


def test_trace__flame_graph_kept__named_before_the_traces() -> None:
    page = kept_file("head/flame.html", 40_960, "flamegraph")
    text = render_comment(failing(links=[*traces(), page]), CONTEXT)
    assert "Flame graph** `head/flame.html` · **Trace** `base/encoder-long.trace.json.gz`" in text


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "https://x.example/a b", "https://x.example/)[", "https://x/(y"]
)
def test_link__address_that_could_break_out__is_not_linked(url: str) -> None:
    assert url not in render_comment(make_decision(), CommentContext(marker="<!-- m -->", artifact_url=url))


def test_title__fewer_operators_and_faster_calls__tells_both_and_the_interval() -> None:
    fewer = make_counter("counters.framework_ops", 140, 110)
    for interval, told in (
        ((-0.089, -0.020), ", fast-path latency 5.6 % faster (2.0 to 8.9 %), 1 unchanged"),
        ((-0.030, 0.020), "improved: 140 → 110, 1 unchanged"),
        ((0.001, 0.004), "improved: 140 → 110, 1 unchanged"),
    ):
        time = make_comparison(delta=sum(interval) / 2 if interval[1] > 0 else -0.056, interval=interval, pairs=8)
        text = render_comment(make_decision(comparisons=[fewer, time]), CONTEXT)
        assert title(text).startswith("## ✅ perfgate: PASS – framework ops per call improved: 140 → 110")
        assert title(text).endswith(told)


def test_title__faster_calls__tells_the_interval() -> None:
    time = make_comparison(outcome="improved", delta=-0.056, interval=(-0.089, -0.020), base=0.01, head=0.00944)
    text = render_comment(make_decision(comparisons=[time]), CONTEXT)
    assert "PASS – fast-path latency 5.6 % faster (2.0 to 8.9 %): 10.0 → 9.44 ms" in title(text)


def test_inconclusive__noise_larger_than_limit__says_how_many_pairs_would_decide() -> None:
    noisy = make_comparison(outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, pairs_needed=44)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[noisy]), CONTEXT)
    assert title(text).endswith("undecided: 1.2 % faster to 4.1 % slower after 14 pairs")
    assert "about 44 pairs would settle it; this job measured" in text
    assert (
        "Run `perfgate check --append` to add to these. To measure more in one job, raise `budget` under `[gate]`"
        in text
    )


def test_inconclusive__more_undecided_than_made_the_verdict__asks_for_the_pairs_of_what_made_it() -> None:
    """A time that need not decide may want hundreds of pairs: the verdict does not wait for it."""
    wanted = {"latency.low": 37, "latency.p50": 159, "latency.turnaround": 649, "latency.p99": 9_000}
    comparisons = [
        make_comparison(metric=metric, outcome="inconclusive", gating=metric != "latency.p50", pairs=20, pairs_needed=n)
        for metric, n in sorted(wanted.items(), reverse=True)
    ]
    assert {c.metric for c in comparisons if c.must_decide} == {"latency.low"}
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=comparisons, pairs=64), CONTEXT)
    assert "**To do:** about 37 pairs would settle it; this job measured 20." in text
    assert title(text).startswith("## ❔ perfgate: INCONCLUSIVE – fast-path latency undecided")


def test_inconclusive__measured_by_a_ci_job__is_to_be_run_again() -> None:
    noisy = make_comparison(outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, pairs_needed=44)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[noisy], in_ci=True), CONTEXT)
    assert "about 44 pairs would settle it; this job measured 14. Re-run the job to add to these." in text
    assert "--append" not in text


def test_inconclusive__turns_of_a_step__no_job_is_promised_to_add_to_them() -> None:
    speedup = make_comparison(metric="graph.speedup", evidence="turn", outcome="inconclusive", pairs_needed=30)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[speedup], in_ci=True), CONTEXT)
    assert (
        "about 30 turns would settle it; this job measured 14. To measure more in one job, raise `budget` under `[gate]`"
        in text
    )


def test_inconclusive__last_look_measured__no_budget_alone_gives_more_pairs() -> None:
    noisy = make_comparison(outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, pairs=128, pairs_needed=160)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[noisy]), CONTEXT)
    assert "add a larger number to `looks` under `[gate]` in `perfgate.toml`, and raise `budget` with it" in text


def test_inconclusive__uncommitted_changes__no_pairs_are_promised_to_add_to_these() -> None:
    noisy = make_comparison(outcome="inconclusive", interval=(-0.012, 0.041), delta=0.013, pairs_needed=44)
    head = SideSummary(commit="b" * 40, dirty=True)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[noisy], head=head), CONTEXT)
    assert (
        "about 44 pairs would settle it; this job measured 14. To measure more in one job, raise `budget` under `[gate]` in "
        "`perfgate.toml`." in text
    )
    assert "--append" not in text


def test_inconclusive__more_pairs_wanted_than_jobs_give__asks_for_a_quieter_machine() -> None:
    noisy = make_comparison(outcome="inconclusive", interval=(-0.021, 0.144), delta=0.016, pairs_needed=485)
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[noisy]), CONTEXT)
    assert "measure on a quieter machine: this one would need about 485 pairs, and this job measured 14" in text
    assert "--append" not in text


def test_inconclusive__other_testbed__names_the_fields_and_what_to_do() -> None:
    decision = make_decision(
        "INCONCLUSIVE",
        testbed_differences=[make_difference(), make_difference("python", None, "3.12.1")],
        comparisons=[make_comparison(outcome="not_comparable")],
    )
    text = render_comment(decision, CONTEXT)
    assert "testbed differs: `torch` `2.12.0` → `2.13.0`, `python` none → `3.12.1`" in text
    assert "**To do:** measure both sides on one machine" in text


@pytest.mark.parametrize(
    ("kind", "message", "remedy"),
    [
        ("aa_differs", "base against base differs in latency.low", "its pairs add to these"),
        ("throttled", "the device was throttled", "let the device cool down"),
        ("foreign_process", "another process used the device", "reserve the device for this job"),
        ("worker_clock", "the worker's clock misses time", "none of its measurements were used"),
    ],
)
def test_inconclusive__times_prove_nothing__says_why_and_what_to_do(kind: str, message: str, remedy: str) -> None:
    invalid = Invalid(workload="encoder", shape="long", kind=kind, message=message)  # type: ignore[arg-type]
    text = render_comment(make_decision("INCONCLUSIVE", invalid=[invalid]), CONTEXT)
    assert "the times of `encoder/long` are invalid" in title(text)
    assert message in title(text).replace("`", "")
    assert remedy in text


def test_inconclusive__time_budget_spent_before_a_pair__asks_for_more_of_it() -> None:
    spent = Failure(
        side="pair", workload="encoder", what="pair 0", error=ErrorDetail(kind="timeout", message=TIME_SPENT)
    )
    absent = Missing(workload="encoder", shape="long", metric="latency.low", side="both")
    text = render_comment(make_decision("INCONCLUSIVE", comparisons=[], failures=[spent], missing=[absent]), CONTEXT)
    assert "the time budget ran out before a verdict on `encoder`" in title(text)
    assert "**To do:** the time budget ran out before base and head were compared. Raise `--time-budget` or" in text
    assert "neither counters nor pairs" not in text


def test_inconclusive__calls_too_slow_for_the_budget__says_which_would_do() -> None:
    values = {"call": 2.6, "pairs": 23, "seconds": 860, "allowed": 300.0, "budget": 1040}
    error = ErrorDetail(kind="timeout", message=Message(CALLS_TOO_SLOW, values))
    slow = Failure(side="pair", workload="encoder", what="pair 0", error=error)
    decision = make_decision("INCONCLUSIVE", comparisons=[], failures=[slow])
    text = render_comment(decision, CONTEXT)
    assert "`encoder`: a call takes 2.60 s, so the 23 pairs that decide about times would take about 860 s" in title(
        text
    )
    assert "times of `encoder` not measured: 23 pairs of 37 s need `budget = 1040`" in text
    assert "**To do:** set `budget = 1040` under `[gate]` in `perfgate.toml`" in text
    assert "**Error**" not in text
    assert exit_code(decision) == EXIT_INCONCLUSIVE


def test_error__head_does_not_load__traceback_in_a_fence() -> None:
    decision = make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure()])
    text = render_comment(decision, CONTEXT)
    assert title(text).endswith("the change could not be measured: `loading` of `encoder` failed")
    assert '\n```\nTraceback (most recent call last):\n  File "model.py", line 88, in forward\n' in text


def test_error__base_fails_alike__said_once_and_not_of_the_change() -> None:
    hint = Message("mistake.not-installed", {"module": "einops", "python": "/opt/hosted/python/3.11.9/x64/bin/python"})
    bare = "ModuleNotFoundError: No module named 'einops'"
    placed = Message("mistake.at", {"error": bare, "place": "perf/workload.py:1"})
    on_base, on_head = (Message("mistake.hint", {"error": error, "hint": hint}) for error in (bare, placed))
    errors = {"base": on_base, "head": on_head}
    steps = [
        StepSummary(number=n, slug=f"step_{n}", workload="encoder", status="error", reason=on_head) for n in (1, 2)
    ]
    failures = [
        make_failure(side, error=ErrorDetail(kind="exception", message=message)) for side, message in errors.items()
    ]
    decision = make_decision("INCONCLUSIVE", comparisons=[], failures=failures, steps=steps)
    text = render_comment(decision, CONTEXT)
    assert title(text).endswith("neither base nor head runs here: `loading` of `encoder` failed")
    assert "**To do:** the base fails in the same place, so this change is not the cause." in text
    assert text.count("install the package that has einops") == 2  # with the folded checklist, at its first step
    assert "**Error** in the head + base, " in text
    assert "| as step 1 |" in text
    assert "or name the folder of the project that holds it in [measure] python_path`" in text


def test_budget__thousands_of_ops__stays_within_60000_and_keeps_the_failing_rows() -> None:
    parts = [Part(name=f"custom::op_{n}" + "x" * 90, base=n, head=n + 1, line=f"model.py:{n}") for n in range(5000)]
    changes = [
        OperatorDelta(workload="encoder", shape="long", op=part.name, base_count=part.base, head_count=part.head)
        for part in parts
    ]  # fmt: skip
    ops = [make_counter(f"ops.count:{part.name}", part.base, part.head, gating=False) for part in parts]
    many = [make_comparison("latency.p90", workload="w" * 100 + str(n)) for n in range(3000)]
    counter = make_counter("counters.framework_ops", 40, 5040, parts=parts)
    text = render_comment(failing(comparisons=[counter, *ops, *many], operator_changes=changes), CONTEXT)
    assert len(text) <= 60_000
    assert "| **FAIL** | framework ops per call" in text
    assert text.count("<details>") == text.count("</details>")
    assert text.rstrip().endswith("</sub>")


def test_budget__too_small_for_the_folds__they_go_from_the_bottom_and_are_named() -> None:
    whole = render_comment(failing(comparisons=regressed_counters() + unchanged_comparisons()[:2]), CONTEXT)
    text = render_comment(
        failing(comparisons=regressed_counters() + unchanged_comparisons()[:2]), CONTEXT, budget=len(whole) - 10
    )
    assert "Omitted to fit the size limit: environment and samples." in text
    assert "<summary>2 unchanged metrics</summary>" in text
    assert len(text) <= len(whole) - 10


def test_budget__thousands_of_failing_rows__the_worst_stay_and_the_rest_is_counted() -> None:
    rows = [make_counter("counters.copies", 2, 3 + n, workload=f"workload-{n:04}" + "y" * 100) for n in range(2000)]
    text = render_comment(failing(comparisons=rows, operator_changes=[]), CONTEXT)
    shown = len(re.findall(r"^\| \*\*FAIL\*\*", text, re.MULTILINE))
    assert len(text) <= 60_000
    assert shown == 120
    assert "1,880 more rows of this table in `decision.json`." in text
    assert "workload-1999" in text.split("| **FAIL** |")[1]


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("name", ["算子名称" * 40, "x" * 500, "🏎️" * 60, "`" * 79 + "|", "</details>" * 20])
def test_budget__five_thousand_regressed_metrics__fits_as_posted_and_keeps_failing_rows(
    language: str, name: str
) -> None:
    rows = [
        make_counter("counters.copies", 2, 3 + n, workload=f"{n:04}{name}", shape=name, reason=quote(name))
        for n in range(5000)
    ]
    context = CommentContext(
        marker=marker("default"),
        artifact_url="https://forge.example/a/1",
        reproduce="perfgate local",
        language=language,
    )
    text = render_comment(
        failing(comparisons=rows, operator_changes=[], warnings=[name] * 9), context, budget=TEXT_BUDGET
    )
    state = CommentState(run=10**17, attempt=10**17, head="a" * 64, verdict="INCONCLUSIVE", decided="FAIL")
    posted = compose(text, state, marker("default"))
    assert len(posted) <= MAX_CHARACTERS
    assert posted.count("\n| **FAIL**") >= 40
    assert "4999" in posted.split("\n| **FAIL** |")[1]
    assert posted.count("\n<details>") == posted.count("\n</details>")
    assert "https://forge.example/a/1" in posted.splitlines()[-1]


@pytest.mark.parametrize("metric", ["function.model.py:mask", "module.Net.layers.*", "op.aten::mm"])
def test_causes__part_of_a_call_that_is_judged__its_time(metric: str) -> None:
    name = metric.partition(".")[2]
    part = Part(name=name, base=24e-6, head=30e-6)
    slower = make_comparison(metric, outcome="regressed", base=24e-6, head=30e-6, delta=0.25, parts=[part])
    comment = render_comment(make_decision("FAIL", comparisons=[slower]), CONTEXT)
    assert f"- `{name}` takes 6.00 µs longer; in `encoder/long`\n" in comment


@pytest.mark.parametrize(
    ("clock", "decides"),
    [("cpu", "; the verdict is based on CPU time"), ("device", "; the verdict is based on device time")],
)
@pytest.mark.parametrize("verdict", ["PASS", "INCONCLUSIVE"])
def test_facts__workers_waited_for_cpus__the_comment_begins_with_it(verdict: str, clock: str, decides: str) -> None:
    outcome = "unchanged" if verdict == "PASS" else "inconclusive"
    made = make_decision(verdict, comparisons=[make_comparison(outcome=outcome, clock=clock)], waited=0.259)
    lines = render_comment(made, CONTEXT).splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("> **Busy machine:**"))
    assert [line for line in lines[:at] if line][-1].startswith("## ")
    assert lines[at] == (
        "> **Busy machine:** workers spent 25.9 % of the measured time waiting for a CPU that other processes were using"
        + decides
    )
    assert lines[at + 1] == ""


def test_environment__power_limit__its_share_of_the_blocks_on_both_sides() -> None:
    text = render_comment(make_decision("PASS", power_cap=PowerCap(base=1.0, head=0.98)), CONTEXT)
    assert "- the device was at its power limit in 100 % of base's blocks and 98.0 % of head's\n" in text
    assert "power limit" not in render_comment(make_decision("PASS"), CONTEXT)


def test_invalid__clocks_differ__by_how_much_and_what_to_do() -> None:
    message = Message("gate.clocks-differ", {"change": -0.1})
    entry = Invalid(workload="encoder", shape="long", kind="clocks_differ", message=message)
    text = render_comment(make_decision("INCONCLUSIVE", invalid=[entry]), CONTEXT)
    assert "lock the device's clock at a value that both sides can hold (`nvidia-smi -lgc` on a GPU)" in text


def test_facts__workers_waited_a_little_and_the_wall_decides__nothing_is_said_of_it() -> None:
    assert "Busy machine" not in render_comment(make_decision("PASS", waited=0.03), CONTEXT)
    assert "Busy machine" in render_comment(make_decision("PASS", waited=0.3), CONTEXT)


@pytest.mark.parametrize(
    ("metric", "fields", "head", "expected"),
    [
        ("latency.p99", {}, 0.0234, "0.024"),
        ("latency.p99", {"reason": Message("gate.at-rate", {"rate": 50.0})}, 0.0234, '"< 0.024 s at 50 QPS"'),
        ("latency.p50", {"better": "higher"}, 0.00123, '"> 0.0012 s"'),
        ("batch.knee", {"unit": "1", "better": "higher"}, 6.0, '"> 6"'),
    ],
)
def test_intended__broken_budget__the_line_is_a_budget_that_the_head_meets(
    metric: str, fields: dict[str, object], head: float, expected: str
) -> None:
    better = fields.get("better", "lower")
    broken = make_bound(metric, 0.02 if better == "lower" else 8.0, head, outcome="regressed", **fields)
    comment = render_comment(make_decision("FAIL", comparisons=[broken]), CONTEXT)
    (line,) = re.findall(r"under `\[budget\]`: `(.*?)`\.", comment)
    assert line == f'"{metric}@encoder/long" = {expected}'
    (key, written), *_ = tomllib.loads(f"[budget]\n{line}")["budget"].items()
    budget = parse_budget(key, written, METRICS[metric])
    assert budget.at_most == (better == "lower")
    assert (head <= budget.bound) if budget.at_most else (head >= budget.bound)
    assert budget.rate == (50.0 if "reason" in fields else None)

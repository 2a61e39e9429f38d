"""The page stands alone: no network, no script, everything of both sides on it."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

from msgspec.structs import replace

import perfgate
from perfgate.document.decision import Missing, NoiseFloor, StepSummary
from perfgate.document.explanation import OperatorDelta
from perfgate.document.message import Message
from perfgate.document.run import OperatorRow, RunDocument, Side
from perfgate.judging.report.render.html import render_html
from perfgate.judging.report.text import svg
from perfgate.judging.report.view.page_tables import paired_samples
from tests.fakes.documents import (
    kept_file,
    make_comparison,
    make_counter,
    make_decision,
    make_difference,
    make_failure,
    make_run,
    operator_changes,
    partial_coverage,
    regressed_counters,
    regressed_time,
)
from tests.fakes.records import changed


def failing_page() -> str:
    decision = make_decision(
        "FAIL", comparisons=regressed_time() + regressed_counters(), operator_changes=operator_changes()
    )
    return render_html(decision, make_run("base"), make_run("head", slowdown=0.07), language="en")


def test_render_html__page__its_policy_allows_nothing_but_its_own_style() -> None:
    page = failing_page()
    style = re.search("<style>(.*?)</style>", page, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'sha256-{digest}'" in page
    assert "http://" not in page
    assert "https://" not in page
    assert "<script" not in page
    assert " style=" not in page


def test_render_html__regression__verdict_rows_plots_operators_and_testbed_are_there() -> None:
    page = failing_page()
    assert "FAIL – fast-path latency 6.8 % slower (36.1 → 38.6 ms)" in page
    assert "ms): 24 more <code>aten::add</code> at <code>model.py:88</code></h1>" in page
    assert page.count('<svg class="bar"') == 2
    assert "<title>5.9 to 7.7 %</title>" in page
    assert page.count('<svg class="plot"') == 2
    assert page.count('<circle class="head"') == 14
    assert page.count('<circle class="noise"') == 7
    assert "<code>aten::native_layer_norm</code>" in page
    assert "AMD EPYC 7B13" in page


def test_render_html__another_count_within_the_limit__allowed_and_not_the_same() -> None:
    more = replace(make_counter("counters.python_calls", 14, 15), outcome="unchanged", tolerance=20.0)
    page = render_html(make_decision("PASS", comparisons=[more]), make_run("base"), make_run("head"), language="en")
    assert ">allowed</span>" in page
    assert ">same</span>" not in page


def test_render_html__workers_waited_for_cpus__the_page_says_so_above_its_counts() -> None:
    waited = make_decision("PASS", waited=0.259)
    page = render_html(waited, make_run("base"), make_run("head"), language="en")
    assert "<p><strong>Busy machine:</strong> workers spent 25.9 % of the measured time" in page
    assert "Busy machine" not in failing_page()


def test_render_html__some_changed_functions_not_run__how_many_were_and_the_others() -> None:
    page = render_html(make_decision(coverage=partial_coverage()), make_run("base"), make_run("head"), language="en")
    assert "Measured: 3 of 5 changed functions. No workload runs <code>export</code>" in page


def test_render_html__numbers_missing_beside_a_regression__all_are_listed_by_name() -> None:
    missing = [Missing(workload="encoder", shape=f"s{number}", metric="seen_ns", side="head") for number in range(30)]
    decision = changed(make_decision("FAIL", comparisons=regressed_time()), missing=missing)

    page = render_html(decision, make_run("base"), make_run("head", slowdown=0.07), language="en")

    assert "30 numbers missing, possibly regressed" in page
    assert all(f"<code>encoder/s{number}</code> is missing in the head" in page for number in range(30))


def test_render_html__operators_that_each_side_traced_by_itself__times_of_the_pairs_alone() -> None:
    # Seen: aten::copy_ 3.49 to 0.343 ms in this table, 54 % slower in the one above it.
    def traced(side: Side, self_time: float, count: float) -> RunDocument:
        row = OperatorRow(workload="encoder", shape="long", op="aten::copy_", kind="host", self_time=self_time,
                          count=count, share=0.3)  # fmt: skip
        return changed(make_run(side), operators=[row])

    times = [OperatorDelta(workload="encoder", shape="long", op="aten::copy_", base=98e-6, head=151e-6, seconds=53e-6)]
    change = OperatorDelta(workload="encoder", shape="long", op="aten::copy_", base_count=9, head_count=25)
    decision = make_decision("FAIL", comparisons=regressed_time(), operator_changes=[change], operator_times=times)
    page = render_html(decision, traced("base", 3.49e-3, 9), traced("head", 0.343e-3, 25), language="en")
    (row,) = re.findall(r"<tr[^>]*><td><code>aten::copy_</code></td><td class=\"number\">9.*?</tr>", page, re.DOTALL)
    assert re.findall(r'<td class="number">(.*?)</td>', row) == ["9", "25", "98.0 µs", "151 µs", "100 %"]
    assert "53.0 µs" in page
    assert not [number for number in ("3.49", "343 µs", "0.343") if number in page]


def test_render_html__checklist__step_without_a_run_says_why_and_the_last_is_the_decision() -> None:
    left_out = StepSummary(
        number=19, slug="thermal", workload="encoder", status="left_out", reason=Message("gate.step-not-asked")
    )
    page = render_html(make_decision("PASS", comparisons=[], steps=[left_out]), None, make_run(), language="en")
    (row,) = re.findall(r"<tr><td class=\"number\">19</td>.*?</tr>", page, re.DOTALL)
    assert "Temperature, clock and power" in row
    assert "not run" in row
    assert "not asked for" in row
    assert "Regression gate" in page


def test_render_html__no_base_run__head_alone_is_shown() -> None:
    page = render_html(
        make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure("base")]), None, make_run(), language="en"
    )
    assert "the base could not be measured" in page
    assert '<circle class="head"' not in page


def test_render_html__nothing_measured__still_a_page() -> None:
    empty = make_run(steps=[], operators=[], counters=[], replicates=[])
    page = render_html(
        make_decision("INCONCLUSIVE", comparisons=[], steps=[], noise_floors=[]), None, empty, language="en"
    )
    assert "no metric could be compared" in page


def test_render_html__testbed_differs__the_field_is_marked() -> None:
    decision = make_decision("INCONCLUSIVE", testbed_differences=[make_difference()])
    head = make_run()
    base = make_run(
        "base", testbed=type(head.testbed)(fingerprint="0" * 64, device_kind="cpu", comparable={"torch": "2"})
    )
    assert '<tr class="differs"><td>torch</td><td><code>2</code></td>' in render_html(
        decision, base, head, language="en"
    )


def test_paired_samples__one_shape__the_calls_of_all_its_pairs() -> None:
    samples = paired_samples(make_run("base"), make_run("head", slowdown=0.07))
    assert {at: (base.size, head.size) for at, (base, head) in samples.items()} == {("encoder", "long"): (840, 840)}


def test_render_html__dots_of_the_pairs__are_what_the_judge_took_from_each_and_not_the_samples() -> None:
    """They were of the clock on the wall, whatever clock decided, and their limit was that of any metric."""
    effects, noise = [0.061, 0.072, 0.055], [0.001, -0.002]
    slower = make_comparison(outcome="regressed", delta=0.061, tolerance=0.005, effects=effects, clock="cpu")
    tail = make_comparison("latency.p99", outcome="regressed", tolerance=0.2)
    floor = NoiseFloor(
        workload="encoder", shape="long", metric="latency.low", floor=0.009, pairs=2, differs=False, effects=noise
    )
    decision = make_decision("FAIL", comparisons=[tail, slower], noise_floors=[floor])
    page = render_html(decision, make_run("base"), make_run("head"), language="en")
    assert str(svg.dot_strip(effects, noise, 0.005)) in page
    assert "head against base, 3 pairs" in page
    assert "base against base, 2 pairs" in page


def test_pictures__of_all_pages__drawn_by_one_file_alone() -> None:
    package = Path(perfgate.__file__).parent
    files = [file for pattern in ("*.py", "*.j2", "*.js") for file in package.rglob(pattern)]
    drawing = [file for file in files if "<svg" in file.read_text(encoding="utf-8")]
    assert [file.relative_to(package).as_posix() for file in drawing] == ["judging/report/text/svg.py"]


def test_render_html__flame_graph__only_our_own_page_opens_by_a_click() -> None:
    paths = ["head/flame.html", "javascript:alert(1)", "head/../../flame.html"]
    links = [kept_file(path, 10, "flamegraph") for path in paths]
    page = render_html(make_decision(links=links), None, make_run(), language="en")
    assert re.findall(r'<a href="([^"]*)">', page) == ["head/flame.html"]
    assert "javascript:alert(1)" in page


def test_render_html__chinese__language_headings_and_plots_are_chinese_and_the_policy_is_the_same() -> None:
    decision = make_decision(
        "FAIL", comparisons=regressed_time() + regressed_counters(), operator_changes=operator_changes()
    )
    page = render_html(decision, make_run("base"), make_run("head", slowdown=0.07), "zh")
    assert '<html lang="zh">' in page
    for words in ("FAIL（不通过）", "<h2>样本</h2>", "<h2>检查清单</h2>", "无干扰时延", "head 的中位数："):
        assert words in page
    policy = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(page)[0] == policy.search(failing_page())[0]


def test_render_html__interval_around_no_change__its_bar_says_both_directions() -> None:
    page = render_html(make_decision(), make_run("base"), make_run("head"), language="en")
    assert "<title>0.4 % faster to 0.9 % slower</title>" in page

"""What a terminal shows: the same decision, in 80 columns, without control characters from outside."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from perfgate.document.decision import Policy, Procedure
from perfgate.document.message import Message, quote
from perfgate.document.run import FROM_PROFILE, CounterSet, ErrorDetail, Finding, StepResult, Value, WorkloadRecord
from perfgate.judging.report.render.terminal import render_run, render_terminal
from perfgate.judging.report.view.run_steps import recorded_lines, step_row
from perfgate.locale import speaking
from tests.fakes.documents import (
    make_bound,
    make_counter,
    make_decision,
    make_failure,
    make_run,
    operator_changes,
    partial_coverage,
    regressed_counters,
    regressed_time,
    suggestions,
)
from tests.fakes.records import changed


def shown(render, document, *, colour: bool = False, environ: dict[str, str] | None = None, width: int = 80) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, force_terminal=colour, _environ=environ or {})
    render(document, console, "en")
    return stream.getvalue()


def without_commands(text: str) -> list[str]:
    """The lines that are not a command to copy, which is never wrapped."""
    return [line for line in text.splitlines() if not line.startswith("      perfgate ")]


def failing():
    return make_decision(
        "FAIL",
        comparisons=regressed_time() + regressed_counters(),
        operator_changes=operator_changes(),
        suggestions=suggestions(),
    )


def test_render_terminal__failure__verdict_rows_why_and_try_in_80_columns() -> None:
    text = shown(render_terminal, failing())
    assert text.startswith("FAIL – fast-path latency 6.8 % slower (36.1 → 38.6 ms):")
    assert "framework ops per" in text
    assert "24 more aten::add at" in text
    assert "1. model.py:88\n" in text
    assert "Replace the loop of 24 aten::add by one batched call" in text
    assert max(map(len, without_commands(text))) <= 80


@pytest.mark.parametrize("width", [40, 80, 300])
def test_render_terminal__command_to_accept__is_one_line_at_any_width(width: int) -> None:
    lines = shown(render_terminal, failing(), width=width).splitlines()
    (command,) = (line for line in lines if "perfgate baseline accept latency.low" in line)
    assert command.rstrip().endswith("--reason TEXT")
    assert command.lstrip().startswith("• If intended:" if width == 300 else "perfgate baseline accept")


def test_render_terminal__narrow__every_row_has_its_metric_and_both_sides_whole() -> None:
    text = shown(render_terminal, failing(), width=40)
    lines = [line.rstrip() for line in text.splitlines()]
    assert max(map(len, without_commands(text))) <= 40
    assert "…" not in text
    first = lines.index("  metric fast-path latency ·")
    assert lines[first - 1] == "FAIL"
    assert lines[first + 2 : first + 5] == [
        "  base 36.1 ms",
        "  head 38.6 ms",
        "  change 6.8 % slower (5.9 to 7.7 %)",
    ]


def test_render_run__narrow__no_name_is_cut_off() -> None:
    text = shown(render_run, make_run("head"), width=40)
    assert "…" not in text
    assert max(map(len, text.splitlines())) <= 40


def test_render_terminal__not_a_terminal__plain_text() -> None:
    assert "\x1b" not in shown(render_terminal, failing())


def test_render_terminal__terminal_with_no_color__no_colours() -> None:
    assert "\x1b[31m" not in shown(render_terminal, failing(), colour=True, environ={"NO_COLOR": "1", "TERM": "xterm"})
    assert "\x1b[" in shown(render_terminal, failing(), colour=True, environ={"TERM": "xterm"})


def test_render_terminal__workloads_left_out_on_the_command_line__are_not_said_again() -> None:
    left_out = Message("notes.head", {"note": Message("notes.not-selected", {"names": ["chat"]})})
    other = Message("notes.head", {"note": Message("notes.token-allowed", {"names": ["A"]})})
    text = shown(render_terminal, make_decision(warnings=[left_out, other]))
    assert "--workload" not in text
    assert "Note: head: measured with a token" in text


def test_render_terminal__pass__three_short_facts_and_no_table() -> None:
    text = shown(render_terminal, make_decision())
    assert text.startswith("PASS – no slowdown above 2 %: fast-path latency +0.2 %, at most +0.9 %\n")
    assert "─" not in text


def test_render_terminal__some_changed_functions_not_run__how_many_were_and_the_others() -> None:
    text = " ".join(shown(render_terminal, make_decision(coverage=partial_coverage())).split())
    assert "Measured: 3 of 5 changed functions. No workload runs export (export.py:7)." in text
    assert "Not seen running: old_pool (model.py:203)" in text


def test_render_terminal__no_workload_runs_the_change_and_one_is_demanded__next_step() -> None:
    procedure = Procedure(name="none", version=1, seed=0, quantiles=[], policy=Policy())
    decision = make_decision(
        "FAIL", reasons=[Message("gate.unmeasured")], procedure=procedure, comparisons=[], steps=[]
    )
    text = " ".join(shown(render_terminal, decision).split())
    assert text.startswith("FAIL – not measured: no workload runs the changed code")
    assert "To do: add a workload or a shape that runs the changed code." in text


def test_render_terminal__error__last_lines_of_the_traceback() -> None:
    text = shown(render_terminal, make_decision("INCONCLUSIVE", comparisons=[], failures=[make_failure()]))
    assert "Error in the head, loading of encoder (exception)" in text
    assert "RuntimeError: mat1 and mat2 shapes cannot be multiplied" in text


def test_render_run__five_steps__values_reasons_and_findings() -> None:
    text = shown(render_run, make_run())
    assert text.startswith("demo at 0f1e2d3c4 on cpu, 5 steps")
    assert "P50 latency 37.1 ms (36.8 to 37.5 ms)" in text
    assert "P99 latency: not available, needs 662 calls" in text
    assert "not applicable   the device shares the host's memory" in text
    assert "! Softmax takes 18 % of the busy time" in text
    assert max(len(line) for line in text.splitlines()) <= 80


def test_render_run__workload_that_does_not_load__its_error_is_said() -> None:
    error = ErrorDetail(kind="exception", message="ImportError: no module named 'models'")
    broken = WorkloadRecord(
        name="encoder", reference="perf/workload.py:encoder", sha256="e" * 64, batch=1, shapes=[], error=error
    )
    text = shown(render_run, make_run(workloads=[broken], steps=[]))
    assert "error in workload encoder: ImportError: no module named 'models'" in text


def test_step_row__worker_waited_for_a_cpu__said_before_what_was_found() -> None:
    finding = Finding(rule="latency.steady_state", severity="severe", message=quote("words"))
    busy, idle = (
        step_row(
            StepResult(
                number=1, slug="latency", workload="w", status="attention", findings=[finding], waited=waited, values=[]
            )
        )
        for waited in (0.76, 0.02)
    )
    assert busy.notes[0] == ("busy machine: waited 76.0 % of the time for a CPU")
    assert busy.notes[1:] == idle.notes


def test_render_terminal__failure__failing_rows_with_both_sides_first_and_better_ones_last() -> None:
    better = make_counter("counters.allocations", 12, 8, outcome="improved")
    decision = failing()
    text = shown(render_terminal, msgspec.structs.replace(decision, comparisons=[better, *decision.comparisons]))
    title, *lines = text.splitlines()
    title += f" {lines[0]}"
    assert "ms): 24 more aten::add at" in title
    rows = [line.split() for line in lines if line.startswith(("FAIL ", "worse ", "better "))]
    assert [row[0] for row in rows] == sorted((row[0] for row in rows), key=["FAIL", "worse", "better"].index)
    latency = next(row for row in rows if "latency" in row)
    assert {"36.1", "38.6"} <= set(latency)
    assert text.index("better") > text.index("framework ops per")
    assert text.index("1. ") > text.index("better")


def test_render_terminal__two_broken_limits__each_with_its_value_and_its_limit() -> None:
    rule = {"outcome": "regressed", "unit": "1"}
    broken = [
        make_bound("transfer.share", 0.05, 0.3, limit="transfer.share.warning", **rule),
        make_bound("format.share", 0.05, 0.16, limit="format.share.warning", **rule),
    ]
    text = " ".join(shown(render_terminal, make_decision("FAIL", comparisons=broken)).split())
    assert "is 30.0 %, 500 % above the limit of 5.00 % (transfer.share.warning)" in text
    assert "2. format conversion share of encoder/long: 16.0 %, limit 5.00 % (220 % above the limit)" in text


def test_render_run__value_with_its_interval__one_unit_and_digits_that_tell_them_apart() -> None:
    values = [
        Value(metric="latency.p50", value=1.002e-3, interval=(0.9982e-3, 1.004e-3), confidence=0.95),
        Value(metric="latency.p90", value=36.1e-3, interval=(36.09e-3, 36.12e-3), confidence=0.95),
        Value(metric="latency.p99", value=36.1e-3, interval=(35.0e-3, None), confidence=0.95),
    ]
    step = StepResult(number=1, slug="latency", workload="encoder", status="ok", values=values)
    assert step_row(step).notes == [
        "P50 latency 1.002 ms (0.9982 to 1.004 ms)",
        "P90 latency 36.10 ms (36.09 to 36.12 ms)",
        "P99 latency 36.1 ms (35.0 ms to not estimable)",
    ]


def test_recorded_lines__counters__have_their_unit_and_the_separators_of_the_language() -> None:
    counted = CounterSet(
        workload="encoder",
        shape="rank 0",
        repeats=0,
        values={"counters.copy_bytes": 1572864, "counters.copies": 2500},
        ops=[],
    )
    run = changed(make_run(None, operators=[]), command=FROM_PROFILE, counters=[counted])
    assert recorded_lines(run) == ["rank 0: bytes copied per call 1.50 MiB, copies per call 2,500"]
    with speaking("zh"):
        assert recorded_lines(run) == ["rank 0：每次调用拷贝的字节数 1.50 MiB、每次调用的拷贝次数 2,500"]

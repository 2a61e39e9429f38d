"""Whatever user code does ends as an error with its cause in the run document, and the next worker works."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from perfgate.conductor.sides.checklist import checklist
from perfgate.conductor.sides.checklist.checklist import ChecklistPlan, Findings, run_checklist
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.rooms import Rooms
from perfgate.document.run import ErrorDetail, StepResult
from perfgate.judging.report.text.messages import word
from perfgate.protocol import CallTimed, TimeCallRequest
from tests.unit.conductor.conftest import ASLEEP, reference_to, with_settings
from tests.waiting import left_in_the_end

Measure = Callable[..., Findings]

# name, kind, words of the message, words of the traceback (None: there can be none)
LOADING = [
    ("build_raises", "exception", "ValueError: no such checkpoint", "in _raise"),
    ("build_none", "exception", "build(device) returned None; return the model", None),
    ("build_exits", "exit", "SystemExit: I quit", "sys.exit"),
    ("build_aborts", "signal", "killed by SIGABRT", "failing.py"),
]
CALLING = [
    ("inputs_none", "exception", "inputs(1, seed) returned None; return a tensor", None),
    ("inputs_raise", "exception", "KeyError: 'row 7'", "in _raise"),
    ("inputs_wrong", "exception", "must be Tensor, not str", "TypeError"),
    ("call_raises", "exception", "RuntimeError: mat1 and mat2 shapes", "in _raise"),
    ("call_raises_surrogate", "exception", "FileNotFoundError: caf?.bin", "in _raise"),
    ("call_exits", "exit", "SystemExit: 3", "sys.exit"),
    ("call_exits_hard", "exit", "exited with code 7", None),
    ("call_aborts", "signal", "killed by SIGABRT", "failing.py"),
    ("call_segfaults", "signal", "killed by SIGSEGV", "in _segfault"),
    ("call_is_killed", "signal", "killed by SIGKILL; the kernel's out-of-memory killer", None),
    ("call_takes_memory", "memory", "can't allocate memory", "in _allocate"),
    ("call_takes_python_memory", "memory", "MemoryError", "in _allocate_python"),
    ("call_recurses", "exception", "RecursionError", "in _exhaust_stack"),
    ("call_closes_everything", "exit", "close files it did not open?", None),
    ("call_writes_garbage", "protocol", "it announces 542393671 bytes", None),
    ("call_writes_json", "protocol", "missing required field", None),
    ("call_answers_itself", "protocol", "a BlockDone is no answer", None),
]


def _error(step: StepResult) -> ErrorDetail:
    assert step.status == "error"
    assert step.error is not None
    return step.error


def _expect(error: ErrorDetail, kind: str, words: str, trace: object) -> None:
    assert error.kind == kind
    assert words in word(error.message)
    assert (str(trace) in error.traceback) if trace and error.traceback else trace is None


@pytest.mark.parametrize(("name", "kind", "words", "trace"), LOADING)
def test_run_checklist__workload_fails_to_load__every_step_has_the_error(
    measure: Measure, name: str, kind: str, words: str, trace: str
) -> None:
    findings = measure(name)
    assert findings.workload.error is not None
    _expect(findings.workload.error, kind, words, trace)
    assert [(step.number, step.status) for step in findings.steps] == [(2, "error"), (3, "error")]
    assert findings.steps[0].error == findings.workload.error


@pytest.mark.parametrize(("name", "kind", "words", "trace"), CALLING)
def test_run_checklist__call_fails__that_step_has_the_error_and_the_next_is_measured(
    measure: Measure, name: str, kind: str, words: str, trace: str
) -> None:
    findings = measure(name, steps=(2, 3))
    assert findings.workload.error is None
    _expect(_error(findings.steps[0]), kind, words, trace)
    assert (findings.steps[1].number, findings.steps[1].status) == (3, "not_applicable")


def test_run_checklist__call_kills_the_fork_server__nothing_is_measured_after_that(
    measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As on a kernel whose walls let signals pass.
    monkeypatch.setattr(Rooms, "walls", lambda *_: None)
    findings = measure("call_kills_server", steps=(2, 3))
    for step in findings.steps:
        _expect(_error(step), "signal", "the fork server was killed by SIGKILL", None)


def test_run_checklist__call_hangs__stopped_at_the_time_limit_with_its_python_stack(
    measure: Measure, said: list[str]
) -> None:
    said.clear()
    findings = measure("call_hangs", steps=(2, 3), step_timeout=3)
    error = _error(findings.steps[0])
    assert error.kind == "timeout"
    assert "took longer than 3 s and was killed" in word(error.message)
    assert error.traceback is not None
    assert error.traceback.splitlines()[-1].endswith("in _sleep"), "a traceback ends where the code was"
    assert findings.hangs
    assert findings.steps[1].status == "unavailable"
    assert word(findings.steps[1].reason or "").startswith(
        "not measured, because the workload seems to hang: call_hangs: step 2 utilization"
    )
    (checked,) = findings.correctness
    assert checked.status == "error"
    assert word(checked.message or "").startswith("not measured, because the workload seems to hang")
    assert any(re.fullmatch(r"call_hangs: step 2 utilization.* \([123] s\)", line) for line in said)


def test_run_checklist__check_hangs__the_steps_after_it_do_not_wait_as_long(
    bench: Bench, checkout: Checkout, tmp_path: Path
) -> None:
    bench.config = with_settings(bench.config, step_timeout=5)
    findings = run_checklist(bench, checkout, reference_to("check_hangs"), ChecklistPlan((2, 19), tmp_path))
    assert [(step.number, step.status) for step in findings.steps] == [(2, "ok"), (19, "unavailable")]
    (checked,) = findings.correctness
    assert checked.status == "error"
    assert "checking the output of check_hangs took longer than 5 s" in word(checked.message or "")


def test_run_checklist__informing_step_takes_longer_than_it_may__other_steps_are_measured(
    bench: Bench, checkout: Checkout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checklist, "INFORMING_TIMEOUT", 0.01)
    plan = ChecklistPlan((7,), tmp_path, informing=(1,))
    latency, formats = run_checklist(bench, checkout, reference_to("well"), plan).steps
    assert (latency.status, formats.status) == ("error", "ok")


def test_run_checklist__half_a_message__the_conductor_does_not_wait_for_the_rest(measure: Measure) -> None:
    error = _error(measure("call_writes_half_a_message", steps=(2,), step_timeout=1.5).steps[0])
    assert error.kind == "timeout"


def test_run_checklist__build_hangs__stopped_at_the_load_limit(measure: Measure, said: list[str]) -> None:
    said.clear()
    findings = measure("build_hangs", load_timeout=3)
    assert findings.workload.error is not None
    assert findings.workload.error.kind == "timeout"
    assert "building build_hangs took longer than 3 s" in word(findings.workload.error.message)
    assert any(re.search(r"loading workload build_hangs: building build_hangs \([123] s\)", line) for line in said)


def test_run_checklist__worker_killed_from_outside__signal_in_the_document(measure: Measure, bench: Bench) -> None:
    def kill_the_worker() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            workers = [worker for server in bench.servers.running.values() for worker in server._workers.values()]
            if workers and workers[0].pid:
                time.sleep(0.5)
                os.kill(workers[0].pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    killer = threading.Thread(target=kill_the_worker)
    killer.start()
    findings = measure("build_hangs")
    killer.join()
    assert findings.workload.error is not None
    assert (findings.workload.error.kind, findings.workload.error.signal) == ("signal", "SIGKILL")


@pytest.mark.parametrize(
    ("name", "status", "words"),
    [
        ("well", "passed", None),
        ("check_says_false", "failed", "check returned False"),
        ("check_says_tensor_false", "failed", "check returned tensor(False)"),
        ("check_raises", "failed", "AssertionError: off by 0.5"),
        ("check_aborts", "error", "killed by SIGABRT"),
        ("call_raises", "not_checked", None),
    ],
)
def test_run_checklist__check__its_word_and_the_steps_all_the_same(
    measure: Measure, name: str, status: str, words: str
) -> None:
    findings = measure(name, steps=(3,))
    assert [found.status for found in findings.correctness] == [status]
    assert words is None or words in word(findings.correctness[0].message)
    assert [step.status for step in findings.steps] == ["not_applicable"]


def test_run_checklist__workload_prints__into_the_log_alone(measure: Measure, bench: Bench, capfd: object) -> None:
    findings = measure("prints_much", steps=(2,))
    log = bench.log("prints_much").read_text()
    assert findings.steps[0].status in ("ok", "attention")
    assert findings.workload.shapes == ["default"]  # not the forged message that was printed
    assert "::error::forged by the workload" in log
    assert '"type": "Loaded"' in log
    assert "written past Python" in log
    captured = capfd.readouterr()  # type: ignore[attr-defined]
    assert "forged" not in captured.out + captured.err


@pytest.mark.parametrize("name", ["leaves_process", "leaves_daemon"])
def test_run_checklist__workload_leaves_processes__killed_and_named_for_its_side(
    bench: Bench, measure: Measure, checkout: Checkout, name: str
) -> None:
    measure(name, steps=(2,))
    (note,) = bench.leftover_notes(checkout.root)
    assert re.fullmatch(r"left \d+ processes running, now killed: sleep ×\d+(, .*)?", word(note))
    assert bench.leftover_notes(Path("/the/other/side")) == []
    assert left_in_the_end(lambda: _processes_with(ASLEEP.encode())) == []


@pytest.mark.parametrize("name", ["leaves_sibling", "leaves_sibling_apart"])
def test_worker__process_that_is_the_servers_child__named_for_the_side_that_made_it(
    bench: Bench, checkout: Checkout, tmp_path: Path, name: str
) -> None:
    shutil.copytree(checkout.root, tmp_path / "head")
    head = Checkout(tmp_path / "head", tmp_path / "head")
    options = {"cpus": bench.cpus, "layout_seed": 0, "log_name": name}
    with bench.worker(head, reference_to(name), **options) as (worker, _):
        worker.ask(TimeCallRequest(), CallTimed, timeout=60, doing="calling")
        with bench.worker(checkout, reference_to("well"), **options) as (of_base, _):
            pass
        assert (of_base.left_behind, of_base.of_unknown) == ([], [])
        assert _processes_with(ASLEEP.encode())
    assert set(worker.left_behind) == {"sleep"}
    assert left_in_the_end(lambda: _processes_with(ASLEEP.encode())) == []


def _processes_with(word: bytes) -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if word in (folder / "cmdline").read_bytes():
                found.append(folder.name)
        except OSError:
            continue
    return found


def test_run_checklist__two_steps_that_look_at_one_trace__it_is_kept_once(measure: Measure) -> None:
    findings = measure("well", steps=(4, 18))

    assert [step.error for step in findings.steps] == [None, None]
    assert [(artifact.path, artifact.workload) for artifact in findings.artifacts] == [
        ("trace-well-default.json.gz", "well")
    ]

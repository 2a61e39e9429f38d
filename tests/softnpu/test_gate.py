"""perfgate itself on the real torch_npu: gates of planted changes, and runs of what goes wrong."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.wording import worded
from tests.softnpu.checkout import Project

RELU = "x = torch.relu(self.first(x))"
SIGMOID = "x = torch.sigmoid(self.second(x))"
IMPORT = "import torch\nfrom torch import nn"


def _told(project: Project, column: str) -> list[Any]:
    """Return a column of what the watcher told of every block of the head."""
    run = json.loads((project.root / "out" / "head" / "run.json").read_text())
    shapes = [columns for member in run["pairs"]["replicates"] for columns in member["shapes"].values()]
    return [value for columns in shapes for value in columns["device"][column]]


def _of(decision: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(found for found in decision["comparisons"] if found["metric"] == metric)


def test_check__refactoring__passes_unless_the_host_is_busy_and_sides_stay_for_several_pairs(project: Project) -> None:
    project.commit("other words", ("return self.last(x)", "scores = self.last(x)\n        return scores"))
    done, decision, comment = project.check()
    # Only a host whose workers waited for CPUs may leave it open.
    is_open = (done.returncode, decision["verdict"]) == (4, "INCONCLUSIVE") and "**Busy machine:**" in comment
    assert is_open or (done.returncode, decision["verdict"]) == (0, "PASS"), comment
    # The first look, the second, or as many pairs after it as the budget allows.
    pairs = decision["measured"]["pairs"]
    assert pairs == 8 or 16 <= pairs <= 32
    run = json.loads((project.root / "out" / "head" / "run.json").read_text())
    starts = Counter(replicate["start"] for replicate in run["pairs"]["replicates"] if replicate["arm"] == "ab")
    assert max(starts.values()) > 1
    # The watcher was there: it read the fake npu-smi beside the pairs, and found nobody.
    assert {count for count in _told(project, "foreign_processes") if count is not None} == {0}


def test_check__another_process_on_the_device__inconclusive_and_says_so(project: Project) -> None:
    project.commit("other words", ("return self.last(x)", "scores = self.last(x)\n        return scores"))
    done, decision, comment = project.check(SOFTNPU_SMI_PROCESSES="4242:python:177")
    assert (done.returncode, decision["verdict"]) == (4, "INCONCLUSIVE"), comment
    assert {entry["kind"] for entry in decision["gaps"]["invalid"]} == {"foreign_process"}
    assert "another process used the device" in comment


def test_check__clock_below_its_rate_while_pairs_run__inconclusive_and_says_so(project: Project) -> None:
    # Blocks that last longer than an answer of npu-smi.
    settings = project.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("quads = 2", "quads = 10\nblock_seconds = 0.1"))
    project.commit("other words", ("return self.last(x)", "scores = self.last(x)\n        return scores"))
    done, decision, comment = project.check(SOFTNPU_SMI_FREQUENCY="1200", SOFTNPU_SMI_UTILIZATION="80")
    assert (done.returncode, decision["verdict"]) == (4, "INCONCLUSIVE"), comment
    assert {entry["kind"] for entry in decision["gaps"]["invalid"]} == {"slow_clock"}
    assert "the clock was below 97% of its rated value" in comment
    assert min(share for share in _told(project, "clock_share") if share is not None) == pytest.approx(1200 / 1800)


def test_check__one_operator_slower_on_the_device__fails_and_names_it_with_its_share(project: Project) -> None:
    delay = 'import os\n\nimport torch\nfrom torch import nn\n\nos.environ["SOFTNPU_DELAY_US"] = "aclnnRelu=8000"'
    project.commit("a slower activation", (IMPORT, delay))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (1, "FAIL"), comment
    assert _of(decision, "latency.low")["outcome"] == "regressed"
    assert _of(decision, "counters.kernels")["outcome"] == "unchanged"
    slower = [test for test in decision["explained"]["operators"] if test["outcome"] == "regressed"]
    # What lost most comes first; on a software device its neighbours lose their caches to it.
    assert slower[0]["op"] == "Relu", decision["explained"]["operators"]
    assert slower[0]["head"] - slower[0]["base"] == pytest.approx(0.008, rel=0.2)
    assert "`Relu` takes" in comment
    assert 0 < slower[0]["share"] < 1
    assert "of the call" in comment
    line = project.line("torch.relu(")
    assert slower[0]["line"] == line
    (explained,) = decision["explained"]["explanations"]
    assert (explained["contributions"][0]["op"], explained["contributions"][0]["line"]) == ("Relu", line)
    assert f"`{line}`" in comment


def test_check__format_conversion_on_one_side__the_exact_counter_names_transdata(project: Project) -> None:
    imports = "import torch\nimport torch_npu\nfrom torch import nn\n\ntorch.npu.config.allow_internal_format = True"
    there_and_back = "torch_npu.npu_format_cast(torch_npu.npu_format_cast(self.first(x), 29), 2)"
    project.commit("a format cast", (IMPORT, imports), (RELU, f"x = torch.relu({there_and_back})"))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (1, "FAIL"), comment
    found = _of(decision, "counters.format_conversions")
    assert (found["base"], found["head"], found["outcome"]) == (0, 2, "regressed")
    assert [(part["name"], part["line"]) for part in found["parts"]] == [
        ("TransData", project.line("npu_format_cast("))
    ]
    assert "`TransData`" in comment


def test_check__lost_pinned_memory__the_host_waits_for_the_copy_and_its_line_is_named(project: Project) -> None:
    project.git("checkout", "-q", "main")
    table = "self.table = torch.ones(1 << 18)"
    project.commit(
        "a table on the host",
        ("self.last = nn.Linear(512, 64)", f"self.last = nn.Linear(512, 64)\n        {table}.pin_memory()"),
        (
            "return self.last(x)",
            "table = self.table.to(x.device, non_blocking=True)\n        return self.last(x) + table[:64]",
        ),
    )
    project.git("checkout", "-q", "-B", "feature")
    project.commit("copied plainly", (".pin_memory()", ""), (", non_blocking=True", ""))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (1, "FAIL"), comment
    found = _of(decision, "counters.syncs")
    assert (found["base"], found["head"], found["outcome"]) == (0, 1, "regressed")
    (part,) = found["parts"]
    assert (part["name"], part["base"], part["head"], part["line"]) == ("aten::_to_copy", 0, 1, "model.py:18")
    title = next(line for line in comment.splitlines() if line.startswith("## "))
    assert "since `model.py:18`" in title, comment


def test_run__operator_that_fails__costs_its_step_and_spoils_no_other(project: Project) -> None:
    fails = f'if len(x) == 32:\n            os.environ["SOFTNPU_FAIL"] = "aclnnSigmoid"\n        {SIGMOID}'
    project.commit("fails at batch 32", (IMPORT, f"import os\n\n{IMPORT}"), (SIGMOID, fails))
    done, run = project.run("--steps", "1,5,4")
    steps = {step["slug"]: step for step in run["checklist"]["steps"]}
    # Another batch size is an experiment: its failure is the reason for a missing step, and no error of the workload.
    assert done.returncode == 0
    assert steps["batch"]["status"] == "unavailable"
    assert "error code is 507015" in worded(steps["batch"]["reason"])
    assert [steps[slug]["status"] for slug in ("latency", "top_ops")] == ["ok", "ok"]
    assert [check["status"] for check in run["checklist"]["correctness"]] == ["passed"]


def test_run__operator_that_the_npu_does_not_have__runs_on_the_host_and_is_a_finding_with_its_line(
    project: Project,
) -> None:
    project.commit("an operator without a kernel", (SIGMOID, "x = torch.special.i0(self.second(x))"))
    done, run = project.run("--steps", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    finding = next(
        found for step in run["checklist"]["steps"] for found in step["findings"] if found["rule"] == "ops.fallback"
    )
    assert finding["severity"] == "warning"
    assert finding["evidence"]["op"] == "aten::i0"
    assert finding["evidence"]["line"].startswith("model.py:")
    assert run["checklist"]["counters"][0]["values"]["counters.fallbacks"] == 1


def test_run__device_memory_full__error_of_kind_memory(project: Project) -> None:
    project.commit("a huge layer", ("nn.Linear(512, 64)", "nn.Linear(512, 1 << 17)"))
    done, run = project.run("--steps", "1", SOFTNPU_MEM_MB="64")
    assert done.returncode == 4
    error = run["workloads"][0]["error"]
    assert error["kind"] == "memory"
    assert "NPU out of memory" in worded(error["message"])


def test_run__no_msprof__the_trace_is_an_error_that_says_what_to_do_and_the_rest_is_measured(project: Project) -> None:
    environment = project.environment
    kept = [part for part in environment["PATH"].split(os.pathsep) if not (Path(part) / "msprof").exists()]
    done, run = project.run("--steps", "1,4", PATH=os.pathsep.join(kept))
    steps = {step["slug"]: step for step in run["checklist"]["steps"]}
    assert done.returncode == 4
    assert steps["latency"]["status"] == "ok"
    assert steps["top_ops"]["status"] == "error"
    assert "msprof" in worded(steps["top_ops"]["reason"])


def test_run__no_cann__stops_at_once_and_says_what_is_missing(project: Project) -> None:
    done = project.perfgate("run", "--quick", "--out", "out", LD_LIBRARY_PATH="")
    assert done.returncode == 4
    assert "libascendcl.so" in done.stderr
    assert "set_env.sh" in done.stderr
    assert not (project.root / "out" / "run.json").exists()


def test_run__blocking_launches__refused(project: Project) -> None:
    done = project.perfgate("run", "--quick", "--out", "out", ASCEND_LAUNCH_BLOCKING="1")
    assert done.returncode == 4
    assert "ASCEND_LAUNCH_BLOCKING" in done.stderr

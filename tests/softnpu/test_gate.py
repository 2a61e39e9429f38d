"""perfgate itself on the real torch_npu: a checklist, and gates of planted changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.softnpu

PROJECT = Path(__file__).parent / "project"
RELU = "x = torch.relu(self.first(x))"
SIGMOID = "x = torch.sigmoid(self.second(x))"
IMPORT = "import torch\nfrom torch import nn"


class Project:
    """A git repository with the small model, its commit on main, and perfgate as a process of its own."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.root = folder / "project"
        shutil.copytree(PROJECT, self.root)
        temporary = folder / "tmp"
        temporary.mkdir()
        who = {f"GIT_{role}_{what}": "someone" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        self.environment = {
            **environment,
            **who,
            "HOME": str(folder),
            "TMPDIR": str(temporary),
            "PERFGATE_LOCK": str(folder / "lock"),
            "PERFGATE_STORE": str(folder / "store.sqlite"),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.git("init", "-q", "-b", "main")
        self.commit("the model")
        self.git("checkout", "-q", "-b", "feature")

    def git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self.root, env=self.environment, check=True, capture_output=True)

    def commit(self, message: str, *changes: tuple[str, str]) -> None:
        """Commit the work tree with texts of the model replaced."""
        model = self.root / "model.py"
        text = model.read_text()
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        model.write_text(text)
        self.git("add", "--all")
        self.git("commit", "-qm", message)

    def perfgate(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "perfgate.cli.main", *arguments],
            cwd=self.root,
            env={**self.environment, **variables},
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    def check(self) -> tuple[subprocess.CompletedProcess[str], dict[str, Any], str]:
        """Gate the feature branch; return the process, the decision and the comment."""
        done = self.perfgate("check", "--base", "main", "--out", "out", "--steps", "1,4")
        assert (self.root / "out" / "decision.json").exists(), done.stdout + done.stderr
        decision = json.loads((self.root / "out" / "decision.json").read_text())
        return done, decision, (self.root / "out" / "comment.md").read_text()

    def run(self, *arguments: str, **variables: str) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
        """Run the checklist; return the process and the run document."""
        done = self.perfgate("run", "--quick", "--out", "out", *arguments, **variables)
        assert (self.root / "out" / "run.json").exists(), done.stdout + done.stderr
        return done, json.loads((self.root / "out" / "run.json").read_text())


@pytest.fixture
def project(tmp_path: Path, npu_environment: dict[str, str]) -> Project:
    return Project(tmp_path, npu_environment)


def _of(decision: dict[str, Any], metric: str) -> dict[str, Any]:
    return next(found for found in decision["comparisons"] if found["metric"] == metric)


def test_run__small_model__every_step_measured_on_the_npu_and_its_kernels_by_type(project: Project) -> None:
    done, run = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert {step["slug"]: step["status"] in ("ok", "attention") for step in run["steps"]} == {
        "latency": True,
        "utilization": True,
        "transfer": True,
        "top_ops": True,
        "batch": True,
    }
    assert run["testbed"]["device_kind"] == "npu"
    assert run["testbed"]["comparable"]["device.name"] == "Ascend910B3"
    kernels = {row["op"]: row["count"] for row in run["operators"] if row["kind"] == "compute"}
    assert (kernels["MatMulV2"], kernels["Relu"], kernels["Sigmoid"]) == (3, 1, 1)
    counters = run["counters"][0]
    assert counters["values"]["counters.kernels"] == 5
    assert counters["values"]["counters.format_conversions"] == 0
    assert "counters.kernels" not in counters["unstable"]
    trace = next(artifact for artifact in run["artifacts"] if artifact["kind"] == "trace")
    top = project.perfgate("trace", "top", "--json", f"out/{trace['path']}")
    rows = json.loads(top.stdout)["timelines"][0]["rows"]
    assert rows[0]["name"] == "MatMulV2"
    assert rows[0]["kind"] == "compute"


def test_check__refactoring__passes(project: Project) -> None:
    project.commit("other words", ("return self.last(x)", "scores = self.last(x)\n        return scores"))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (0, "PASS"), comment
    assert decision["pairs"] in (8, 16, 32)


def test_check__one_operator_slower_on_the_device__fails_and_names_it_with_its_share(project: Project) -> None:
    delay = 'import os\n\nimport torch\nfrom torch import nn\n\nos.environ["SOFTNPU_DELAY_US"] = "aclnnRelu=8000"'
    project.commit("a slower activation", (IMPORT, delay))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (1, "FAIL"), comment
    assert _of(decision, "latency.low")["outcome"] == "regressed"
    assert _of(decision, "counters.kernels")["outcome"] == "unchanged"
    slower = [test for test in decision["operator_tests"] if test["outcome"] == "regressed"]
    # What lost most comes first; on a software device its neighbours lose their caches to it.
    assert slower[0]["op"] == "Relu", decision["operator_tests"]
    assert slower[0]["head"] - slower[0]["base"] == pytest.approx(0.008, rel=0.2)
    assert "`Relu` takes" in comment
    assert 0 < slower[0]["share"] < 1
    assert "of the call" in comment


def test_check__format_conversion_on_one_side__the_exact_counter_names_transdata(project: Project) -> None:
    imports = "import torch\nimport torch_npu\nfrom torch import nn\n\ntorch.npu.config.allow_internal_format = True"
    there_and_back = "torch_npu.npu_format_cast(torch_npu.npu_format_cast(self.first(x), 29), 2)"
    project.commit("a format cast", (IMPORT, imports), (RELU, f"x = torch.relu({there_and_back})"))
    done, decision, comment = project.check()
    assert (done.returncode, decision["verdict"]) == (1, "FAIL"), comment
    found = _of(decision, "counters.format_conversions")
    assert (found["base"], found["head"], found["outcome"]) == (0, 2, "regressed")
    assert [part["name"] for part in found["parts"]] == ["TransData"]
    assert "`TransData`" in comment


def test_run__operator_that_fails__costs_its_step_and_spoils_no_other(project: Project) -> None:
    fails = f'if len(x) == 32:\n            os.environ["SOFTNPU_FAIL"] = "aclnnSigmoid"\n        {SIGMOID}'
    project.commit("fails at batch 32", (IMPORT, f"import os\n\n{IMPORT}"), (SIGMOID, fails))
    done, run = project.run("--steps", "1,5,4")
    steps = {step["slug"]: step for step in run["steps"]}
    assert done.returncode == 4
    assert steps["batch"]["status"] == "error"
    assert "igmoid" in steps["batch"]["reason"] + steps["batch"]["error"]["traceback"]
    assert [steps[slug]["status"] for slug in ("latency", "top_ops")] == ["ok", "ok"]
    assert [check["status"] for check in run["correctness"]] == ["passed"]


def test_run__operator_that_the_npu_does_not_have__runs_on_the_host_and_is_a_finding_with_its_line(
    project: Project,
) -> None:
    project.commit("an operator without a kernel", (SIGMOID, "x = torch.special.i0(self.second(x))"))
    done, run = project.run("--steps", "4")
    assert done.returncode == 0, done.stdout + done.stderr
    finding = next(found for step in run["steps"] for found in step["findings"] if found["rule"] == "ops.fallback")
    assert finding["severity"] == "warning"
    assert finding["evidence"]["op"] == "aten::i0"
    assert finding["evidence"]["line"].startswith("model.py:")
    assert run["counters"][0]["values"]["counters.fallbacks"] == 1


def test_run__device_memory_full__error_of_kind_memory(project: Project) -> None:
    project.commit("a huge layer", ("nn.Linear(512, 64)", "nn.Linear(512, 1 << 17)"))
    done, run = project.run("--steps", "1", SOFTNPU_MEM_MB="64")
    assert done.returncode == 4
    error = run["workloads"][0]["error"]
    assert error["kind"] == "memory"
    assert "NPU out of memory" in error["message"]


def test_run__no_msprof__the_trace_is_an_error_that_says_what_to_do_and_the_rest_is_measured(project: Project) -> None:
    environment = project.environment
    kept = [part for part in environment["PATH"].split(os.pathsep) if not (Path(part) / "msprof").exists()]
    done, run = project.run("--steps", "1,4", PATH=os.pathsep.join(kept))
    steps = {step["slug"]: step for step in run["steps"]}
    assert done.returncode == 4
    assert steps["latency"]["status"] == "ok"
    assert steps["top_ops"]["status"] == "error"
    assert "msprof" in steps["top_ops"]["reason"]


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

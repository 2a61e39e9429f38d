"""The real `perfgate report` on check folders and run folders, twice in a process of its own."""

from __future__ import annotations

import os
import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from perfgate.cli.commands.report import COMMAND
from perfgate.document.decision import DecisionDocument, Policy
from perfgate.document.files import write_document
from perfgate.document.history import History
from perfgate.document.message import quote
from perfgate.document.run import (
    CiContext,
    CorrectnessResult,
    CounterSet,
    CounterSite,
    OpCount,
    RunDocument,
    StepResult,
    Value,
)
from perfgate.errors import PerfgateError
from perfgate.judging.gate.decide import decide
from tests.command import run_perfgate
from tests.fakes.documents import make_decision, make_run
from tests.fakes.runner import separating_runner
from tests.unit.forge.test_runner import command_of, outputs_of
from tests.unit.gate.builders import pairs_of

HEAD = "a" * 40


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


class Step:
    """A step of a job: its folder with a project, what an earlier step measured there, its files."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.out = folder, folder / "models" / "perfgate-out"
        self.project = folder / "models"
        self.project.mkdir()
        (self.project / "model.py").write_text("pass\n" * 20)
        (self.project / "perfgate.toml").write_text('workload = "perf.py:encoder"\n')
        subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
        self.outputs, self.summary = folder / "outputs", folder / "summary.md"
        self.environ = {"GITHUB_OUTPUT": str(self.outputs), "GITHUB_STEP_SUMMARY": str(self.summary)}

    def check(self, *, ops: int = 40, name: str = "encoder", **fields: Any) -> DecisionDocument:
        """Write what `perfgate check` writes; the head dispatches ``ops`` operators where the base does 40."""
        base, head = _run("base", 40, name, **fields), _run("head", ops, name, **fields)
        decision = decide(base, head, policy=Policy(strict=True), history=History())
        for side, run in (("base", base), ("head", head)):
            (self.out / side).mkdir(parents=True, exist_ok=True)
            write_document(self.out / side / "run.json", run)
        write_document(self.out / "decision.json", decision)
        (self.out / "report.html").write_text("<p>")
        return decision

    def report(self, *options: str) -> Done:
        """Run the command in this process, as `main` does."""
        run = separating_runner().invoke(COMMAND, [str(self.out), "-C", str(self.project), *options], env=self.environ)
        if isinstance(run.exception, PerfgateError):
            return Done(run.exception.exit_code, run.stdout, str(run.exception))
        if run.exception is not None:
            raise run.exception
        return Done(run.exit_code, run.stdout, run.stderr)

    def start(self, *options: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own."""
        plain = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        arguments = ["report", str(self.out), "-C", str(self.project), *options]
        return run_perfgate(*arguments, cwd=self.folder, environment={**plain, **self.environ})

    def read_outputs(self) -> dict[str, str]:
        return outputs_of(self.outputs.read_text())


def _run(side: Any, ops: int, name: str, **fields: Any) -> RunDocument:
    site = CounterSite(metric="counters.framework_ops", name="aten::add", count=ops, line="model.py:8", code="x + y")
    counters = CounterSet(
        workload=name, shape="short", repeats=3, values={"counters.framework_ops": ops},
        ops=[OpCount(op="aten::add", count=ops, line="model.py:8")], sites=[site],
    )  # fmt: skip
    firsts, seconds = pairs_of([1.0 + 0.0005 * (-1) ** pair for pair in range(16)], shape="short")
    values: dict[str, Any] = {
        "counters": [counters],
        "workloads": [msgspec.structs.replace(make_run().workloads[0], name=name, shapes=["short"])],
        "correctness": [CorrectnessResult(workload=name, shape="short", status="passed", signature="float32[4]")],
        "steps": [],
        "replicates": [msgspec.structs.replace(one, workload=name) for one in (firsts if side == "base" else seconds)],
    }
    return make_run(side, **{**values, **fields})


@pytest.fixture
def step(tmp_path: Path) -> Step:
    return Step(tmp_path)


def test_report__regressed_check__outputs_summary_and_annotations_at_once(step: Step) -> None:
    step.check(ops=64)
    done = step.start("--outputs", "--summary", "--annotations", "--exit-code", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert step.read_outputs() == {
        "verdict": "FAIL",
        "exit-code": "1",
        "decision": str(step.out / "decision.json"),
        "comment": "",
        "report": str(step.out / "report.html"),
    }
    assert step.summary.read_text().startswith("## ❌ perfgate: FAIL")
    (line,) = done.stdout.splitlines()
    command, properties, message = command_of(line)
    assert (command, properties["file"], properties["line"]) == ("error", "models/model.py", "8")
    assert "24 more (exact)" in properties["title"]
    assert "at model.py:8; in " in message


def test_report__unchanged_check__passes_and_annotates_nothing(step: Step) -> None:
    step.check()
    done = step.report("--outputs", "--annotations", "--exit-code", "0")
    assert (done.returncode, done.stdout) == (0, "")
    assert step.read_outputs()["verdict"] == "PASS"


def test_report__nothing_was_written__empty_verdict_and_the_reason_everywhere(step: Step) -> None:
    junit = step.folder / "junit.xml"
    metrics = step.folder / "metrics.txt"
    done = step.report(
        "--outputs",
        "--summary",
        "--annotations",
        "--exit-code",
        "2",
        "--junit",
        str(junit),
        "--openmetrics",
        str(metrics),
    )
    assert done.returncode == 0
    assert step.read_outputs() == {"verdict": "", "exit-code": "2", "decision": "", "comment": "", "report": ""}
    why = "perfgate has no verdict: there is no decision.json, and no run.json"
    end = "The measuring command exited with code 2 (wrong usage or configuration); see its log."
    assert command_of(done.stdout.rstrip("\n")) == ("error", {"title": "perfgate"}, f"{why}. {end}")
    assert end in step.summary.read_text()
    assert ET.fromstring(junit.read_text()).find(".//error") is not None
    assert metrics.read_text() == "# EOF\n"


def test_report__decision_of_an_earlier_job__is_not_this_ones(step: Step) -> None:
    step.check(ops=64)
    step.report("--outputs", "--exit-code", "0")
    assert step.read_outputs()["verdict"] == ""


def test_report__nothing_relevant_changed__skipped_without_a_run(step: Step) -> None:
    step.out.mkdir()
    write_document(
        step.out / "decision.json", make_decision("SKIPPED", reasons=[quote("paths: docs/a.md")], comparisons=[])
    )
    junit = step.folder / "junit.xml"
    done = step.report("--outputs", "--summary", "--annotations", "--exit-code", "0", "--junit", str(junit))
    assert (done.returncode, done.stdout) == (0, "")
    assert step.read_outputs()["verdict"] == "SKIPPED"
    assert step.summary.read_text().startswith("## ⏭️ perfgate: SKIPPED")
    assert ET.fromstring(junit.read_text()).find(".//skipped") is not None


def test_report__decision_over_other_documents__empty_verdict(step: Step) -> None:
    step.check()
    write_document(step.out / "head" / "run.json", _run("head", 64, "encoder"))
    step.report("--outputs")
    assert step.read_outputs()["verdict"] == ""


@pytest.mark.parametrize("damage", ["", "[" * 5000, '{"verdict": "PASS"}', '{"verdict": "x\\n::error::y"}'])
def test_report__damaged_decision__empty_verdict(step: Step, damage: str) -> None:
    step.check()
    (step.out / "decision.json").write_text(damage)
    done = step.report("--outputs", "--annotations")
    assert step.read_outputs()["verdict"] == ""
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(("pipeline", "verdict"), [("50", "PASS"), ("51", "")])
def test_report__in_ci__only_the_documents_of_this_pipeline(step: Step, pipeline: str, verdict: str) -> None:
    ci = CiContext(forge="gitlab", repository="team/model", run_id="50", run_attempt=1, head_sha=HEAD)
    step.check(session=msgspec.structs.replace(make_run().session, ci=ci))
    step.environ |= {
        "GITLAB_CI": "true",
        "CI_SERVER_URL": "https://gitlab.example.com",
        "CI_API_V4_URL": "https://gitlab.example.com/api/v4",
        "CI_PROJECT_ID": "5",
        "CI_PROJECT_PATH": "team/model",
        "CI_PIPELINE_ID": pipeline,
        "CI_COMMIT_SHA": HEAD,
    }
    step.report("--outputs")
    assert step.read_outputs()["verdict"] == verdict


def test_report__cause_in_a_file_the_checkout_lacks__annotates_the_configuration(step: Step) -> None:
    step.check(ops=64)
    (step.project / "model.py").write_text("short\n")
    done = step.report("--annotations")
    command, properties, _ = command_of(done.stdout.rstrip("\n"))
    assert (command, properties["file"], properties["line"]) == ("error", "models/perfgate.toml", "1")


def test_report__pipe_where_the_file_was__is_not_waited_for(step: Step) -> None:
    step.check(ops=64)
    (step.project / "model.py").unlink()
    os.mkfifo(step.project / "model.py")
    assert "perfgate.toml" in step.report("--annotations").stdout


def test_report__many_lines__ten_annotations(step: Step) -> None:
    many = [f"aten::op{number}" for number in range(15)]

    def counters(count: int) -> list[CounterSet]:
        sites = [
            CounterSite(metric="counters.framework_ops", name=op, count=count, line=f"model.py:{number}", code=op)
            for number, op in enumerate(many, start=1)
        ]
        ops = [OpCount(op=op, count=count) for op in many]
        total = {"counters.framework_ops": 15 * count}
        return [CounterSet(workload="encoder", shape="short", repeats=3, values=total, ops=ops, sites=sites)]

    base, head = _run("base", 1, "encoder", counters=counters(1)), _run("head", 1, "encoder", counters=counters(3))
    step.check()
    write_document(step.out / "base" / "run.json", base)
    write_document(step.out / "head" / "run.json", head)
    write_document(step.out / "decision.json", decide(base, head, policy=Policy(), history=History()))
    assert len(step.report("--annotations").stdout.splitlines()) == 10


def test_report__hostile_names__stay_data(step: Step) -> None:
    hostile = "x\n::error file=model.py,line=1::planted\nverdict=PASS"
    step.check(ops=64, name=hostile)
    done = step.report("--outputs", "--summary", "--annotations")
    assert step.read_outputs()["verdict"] == "FAIL"
    (line,) = done.stdout.splitlines()
    assert command_of(line)[1]["line"] == "8"
    assert "\n::error" not in step.summary.read_text()


def test_report__summary_nearly_full__keeps_within_what_the_runner_takes(step: Step) -> None:
    step.check(ops=64)
    step.summary.write_text("x" * (1024 * 1024 - 5_000))
    assert step.report("--summary").returncode == 0
    assert step.summary.stat().st_size <= 1024 * 1024
    assert " perfgate: FAIL" in step.summary.read_text()
    step.summary.write_text("x" * (1024 * 1024 - 100))
    done = step.report("--summary")
    assert (done.returncode, "no room left" in done.stderr) == (2, True)


def test_report__no_option__prints_the_comment(step: Step) -> None:
    step.check(ops=64)
    assert step.report().stdout.startswith("## ❌ perfgate: FAIL")


def test_report__no_option_and_nothing_there__wrong_use(step: Step) -> None:
    done = step.start()
    assert (done.returncode, "no decision.json" in done.stderr) == (2, True)


@pytest.mark.parametrize("option", ["--outputs", "--summary"])
def test_report__not_a_step_of_github__says_what_is_missing(step: Step, option: str) -> None:
    step.check()
    step.environ = {}
    done = step.report(option)
    assert (done.returncode, "is not set here" in done.stderr) == (2, True)


def test_report__broken_configuration__is_still_reported(step: Step) -> None:
    (step.project / "perfgate.toml").write_text("workload = ")
    assert step.report("--outputs", "--exit-code", "2").returncode == 0


def test_report__run_folder__its_steps_and_values(step: Step) -> None:
    p50 = Value(metric="latency.p50", value=0.0371, labels={"shape": "long"})
    steps = [StepResult(number=1, slug="latency", workload="encoder", status="ok", values=[p50])]
    step.out.mkdir()
    write_document(step.out / "run.json", make_run(None, steps=steps, replicates=[]))
    junit, metrics = step.folder / "junit.xml", step.folder / "metrics.txt"
    done = step.report(
        "--outputs", "--summary", "--exit-code", "0", "--junit", str(junit), "--openmetrics", str(metrics)
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert step.read_outputs()["verdict"] == ""
    assert "| 1 | `latency` | ok |" in step.summary.read_text()
    (case,) = ET.fromstring(junit.read_text()).iter("testcase")
    assert case.attrib == {"classname": "encoder", "name": "1 latency"}
    names = {family.name for family in text_string_to_metric_families(metrics.read_text())}
    assert names == {"perfgate_latency_p50_seconds", "perfgate_counters_framework_ops", "perfgate_counters_copies"}


def test_report__csv__both_sides_and_the_difference_to_a_file_or_printed(step: Step) -> None:
    step.check(ops=64)
    done = step.report("--csv", "-")
    assert done.returncode == 0
    head, *rows = done.stdout.splitlines()
    assert head == "step,metric,workload,shape,labels,side,value,unit,better,low,high,confidence,n"
    counted = [row for row in rows if ",counters.framework_ops," in row]
    assert counted == [
        "12,counters.framework_ops,encoder,short,,base,40,1,lower,,,,3",
        "12,counters.framework_ops,encoder,short,,head,64,1,lower,,,,3",
        "20,counters.framework_ops,encoder,short,evidence=count,base,40.0,1,lower,,,,",
        "20,counters.framework_ops,encoder,short,evidence=count,head,64.0,1,lower,,,,",
        "20,counters.framework_ops,encoder,short,evidence=count,difference,0.6,1,lower,,,,",
    ]
    path = step.folder / "numbers.csv"
    assert step.report("--csv", str(path)).stdout == ""
    assert path.read_text() == done.stdout


def test_report__csv_of_nothing_or_of_another_base__refused(step: Step) -> None:
    missing = step.report("--csv", "-")
    assert (missing.returncode, missing.stdout) == (2, "")
    assert "there is no decision.json" in missing.stderr
    step.check()
    write_document(step.out / "base" / "run.json", _run("base", 41, "encoder"))
    other = step.report("--csv", "-")
    assert other.returncode == 2
    assert "decision.json is not about base/run.json" in other.stderr


def test_report__csv_to_a_folder__wrong_use(step: Step) -> None:
    step.check()
    done = step.start("--csv", str(step.folder))
    assert done.returncode == 2
    assert "is a directory" in done.stderr

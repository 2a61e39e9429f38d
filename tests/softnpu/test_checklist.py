"""The whole checklist on the real torch_npu: every step measures, with the signals that an NPU has for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.fakes.wording import worded
from tests.softnpu.checkout import Project

LINEAR = "x = torch.relu(self.first(x))"
IMPORT = "import torch\nfrom torch import nn"
# A cast to a private format, and its way back.
PLANTED = (
    (IMPORT, "import torch\nimport torch_npu\nfrom torch import nn\n\ntorch.npu.config.allow_internal_format = True"),
    (LINEAR, "x = self.first(x)\n        x = torch_npu.npu_format_cast(x, 29)\n"
             "        x = torch_npu.npu_format_cast(x, 2)\n        x = torch.relu(x)"),
)  # fmt: skip


class Measured(NamedTuple):
    """A run of the checklist: the document, the model that was measured, and how to run perfgate there again."""

    run: dict[str, Any]
    model: list[str]
    project: Project

    def step(self, slug: str) -> dict[str, Any]:
        (found,) = (step for step in self.run["checklist"]["steps"] if step["slug"] == slug)
        return dict(found)

    def values(self, slug: str, metric: str, label: str = "shape") -> dict[str, Any]:
        return {
            value["labels"][label]: value["value"]
            for value in self.step(slug)["values"]
            if value["metric"] == metric and label in value["labels"]
        }

    def code(self, line: str) -> str:
        file, _, number = line.partition(":")
        assert file == "model.py"
        return self.model[int(number) - 1].strip()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory, npu_environment: dict[str, str]) -> Measured:
    """The checklist, quickly, on two NPUs, of which a driver tells that they work."""
    project = Project(tmp_path_factory.mktemp("checklist"), npu_environment)
    settings = project.root / "perfgate.toml"
    settings.write_text(settings.read_text().replace("workload.py:model", "workload.py:served"))
    project.commit("a format cast", *PLANTED)
    done, run = project.run(SOFTNPU_DEVICES="2", SOFTNPU_SMI_UTILIZATION="95")
    assert done.returncode == 0, done.stdout + done.stderr
    return Measured(run, (project.root / "model.py").read_text().splitlines(), project)


def test_run__workload_that_says_everything__nineteen_steps_measure(measured: Measured) -> None:
    statuses = {step["number"]: step["status"] for step in measured.run["checklist"]["steps"]}
    assert list(statuses) == list(range(1, 20))
    assert {number: status for number, status in statuses.items() if status not in ("ok", "attention")} == {}
    assert measured.run["testbed"]["device_kind"] == "npu"
    assert measured.run["testbed"]["comparable"]["device.name"] == "Ascend910B3"


def test_run__steps_that_need_a_recording__share_one(measured: Measured) -> None:
    """A recording takes seconds, and its analysis more."""
    assert [artifact["path"] for artifact in measured.run["artifacts"] if artifact["kind"] == "trace"] == [
        "trace-served-default.zip"
    ]


def test_run__values_that_are_missing__each_says_why(measured: Measured) -> None:
    missing = [
        (value["metric"], worded(value["reason"]))
        for step in measured.run["checklist"]["steps"]
        for value in step["values"]
        if value["value"] is None
    ]
    assert all(len(reason) > 20 for _, reason in missing)
    assert "pip install protobuf attrs packaging" in dict(missing)["graph.speedup"]


def test_run__utilization__busy_share_and_gap(measured: Measured) -> None:
    assert 0 < measured.values("utilization", "utilization.busy")["default"] <= 1


def test_run__operators__kernels_by_type_with_the_line_that_launched_them(measured: Measured) -> None:
    kernels = {row["op"]: row["count"] for row in measured.run["checklist"]["operators"] if row["kind"] == "compute"}
    assert (kernels["MatMulV2"], kernels["Relu"], kernels["Sigmoid"], kernels["TransData"]) == (3, 1, 1, 2)
    (account,) = measured.run["checklist"]["accounts"]
    lines = {(row["op"], measured.code(row["line"])) for row in account["rows"]}
    assert ("Relu", "x = torch.relu(x)") in lines
    assert ("Sigmoid", "x = torch.sigmoid(self.second(x))") in lines
    assert ("TransData", "x = torch_npu.npu_format_cast(x, 29)") in lines


def test_run__exact_counters__kernels_and_conversions_by_line(measured: Measured) -> None:
    (counters,) = measured.run["checklist"]["counters"]
    assert (counters["values"]["counters.kernels"], counters["values"]["counters.format_conversions"]) == (7, 2)
    assert "counters.kernels" not in counters["unstable"]
    conversions = [site for site in counters["sites"] if site["metric"] == "counters.format_conversions"]
    assert {(site["name"], site["count"], measured.code(site["line"])) for site in conversions} == {
        ("TransData", 1, "x = torch_npu.npu_format_cast(x, 29)"),
        ("TransData", 1, "x = torch_npu.npu_format_cast(x, 2)"),
    }


def test_run__fusion__time_of_each_pattern_from_the_kernels_it_launched(measured: Measured) -> None:
    assert 0 < measured.values("fusion", "fusion.share")["default"] < 1


def test_run__format__conversions_by_pair(measured: Measured) -> None:
    assert measured.values("format", "format.conversions", "pair") == {"ND -> FRACTAL_NZ": 1.0, "FRACTAL_NZ -> ND": 1.0}


def test_run__small_operators__launches_and_how_long_the_host_launches(measured: Measured) -> None:
    assert measured.values("small_ops", "small_ops.launches")["default"] == 7
    assert measured.values("small_ops", "small_ops.launch_bound")["default"] > 0


def test_run__tiling__blocks_over_cores_and_pipes(measured: Measured) -> None:
    assert "MatMulV2" in measured.values("tiling", "tiling.occupancy", "op")
    assert 0 < measured.values("tiling", "tiling.attained", "op")["MatMulV2"] <= 1


def test_run__communication__collectives_of_two_ranks(measured: Measured) -> None:
    assert set(measured.values("communication", "communication.time", "op")) == {
        "all_reduce", "all_gather", "reduce_scatter",
    }  # fmt: skip


def test_run__memory__of_the_caching_allocator(measured: Measured) -> None:
    values = {value["metric"]: value["value"] for value in measured.step("memory")["values"]}
    assert 0 < values["memory.allocated"] <= values["memory.reserved"]


def test_run__profile__all_time_leads_to_the_operator_over_the_task_queue(measured: Measured) -> None:
    assert measured.values("profile", "profile.attributed")["default"] == pytest.approx(1.0)
    assert measured.values("profile", "profile.lost_events")["default"] == 0


def test_run__sensors__through_npu_smi(measured: Measured) -> None:
    values = {value["metric"]: value["value"] for value in measured.step("thermal")["values"]}
    assert values["thermal.power"] == pytest.approx(94.8)
    assert values["thermal.temperature"] > 0


def test_trace_top__kept_trace__the_kernels(measured: Measured) -> None:
    top = measured.project.perfgate("trace", "top", "--json", str(Path("out") / "trace-served-default.zip"))
    rows = json.loads(top.stdout)["timelines"][0]["rows"]
    assert (rows[0]["name"], rows[0]["kind"]) == ("MatMulV2", "compute")


def test_run__plain_workload__what_does_not_apply_says_what_to_add(project: Project) -> None:
    done, run = project.run("--steps", "10,11,16,19")
    assert done.returncode == 0, done.stdout + done.stderr
    reasons = {step["slug"]: (step["status"], worded(step["reason"] or "")) for step in run["checklist"]["steps"]}
    assert reasons["batching"][0] == reasons["preprocess"][0] == reasons["communication"][0] == "not_applicable"
    assert "traffic=Traffic(" in reasons["batching"][1]
    assert "set preprocess=" in reasons["preprocess"][1]
    assert "ranks=2" in reasons["communication"][1]

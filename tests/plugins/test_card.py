"""Whole gates on a card of software: real commands and processes, kernels of known length, models that load for seconds."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perfgate.document.samples import PackedArray, unpack
from perfgate.judging.gate.evidence.effect import LEAST_LUCK, MOST_LUCK, RESIDENT_LUCK
from tests.plugins.environment import ROOT, install, perfgate

DAY = ROOT / "benchmarks" / "accelerator" / "day.py"
CARD = Path(__file__).parent / "card"
SETTINGS = """
project = "card"
device = "card"
workload = "perf/model.py:model"

[measure]
pass_env = ["LOAD_SECONDS", "MODEL_BYTES", "CARD_MEMORY", "DRIVER_IN_BUILD", "CAPTURES", "CARD_POWER_LIMIT"]
"""
WORKLOAD = """
import os
import time

import torch
from layers import LAYER_SECONDS
from perfgate_card.device import to_card
from perfgate_card.driver import card

from perfgate import Workload


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(8))
        self.bytes_on_card = int(os.environ.get("MODEL_BYTES", 1 << 27))
        time.sleep(float(os.environ["LOAD_SECONDS"]))

        self.graph = None

    def forward(self, x):
        if "CAPTURES" not in os.environ:
            return self.launch(x)
        if self.graph is None:
            time.sleep(0.5)  # as a compiler does
            with card().capture() as self.graph:
                self.launch(x)
        self.graph.replay()
        return x + self.weight

    def launch(self, x):
        for number, seconds in enumerate(LAYER_SECONDS):
            card().launch(f"layer_{number}", seconds)
            x = x + self.weight
        return x


def build(device):
    model = Model().eval()
    return to_card(model) if device.index is not None or "DRIVER_IN_BUILD" in os.environ else model


model = Workload(build=build, inputs=lambda batch, seed: torch.zeros(batch, 8), batch=8)
"""
EMPTY: Mapping[str, str] = {}
BASE = "LAYER_SECONDS = [100e-6] * 20\n"


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with the card's package."""
    return install(CARD, tmp_path_factory.mktemp("environment"))


def commit(folder: Path, layers: str) -> None:
    (folder / "layers.py").write_text(layers)
    for arguments in (
        ["add", "--all"],
        ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "--quiet", "-m", "one"],
    ):
        subprocess.run(["git", *arguments], cwd=folder, check=True)


def project(folder: Path, settings: str = "") -> None:
    """A repository with the model and one commit."""
    (folder / "perf").mkdir()
    (folder / "perfgate.toml").write_text(SETTINGS + settings)
    (folder / "perf" / "model.py").write_text(WORKLOAD)
    (folder / ".gitignore").write_text("out/\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    commit(folder, BASE)


def check(
    python: Path, folder: Path, head: str, *, variables: Mapping[str, str], settings: str = "", code: int = 0
) -> Any:
    """Gate a change of the layers; return the run document of the head and the decision."""
    project(folder, settings)
    commit(folder, head)
    arguments = ("check", "--base", "HEAD~1", "--always", "--out", "out")
    perfgate(python, *arguments, folder=folder, code=code, variables=variables)
    files = folder / "out" / "head" / "run.json", folder / "out" / "decision.json"
    return [json.loads(file.read_text()) for file in files]


def check_large_model(python: Path, folder: Path, head: str, *, code: int, variables: Mapping[str, str] = EMPTY) -> Any:
    """Gate a change of a model that takes four fifths of a card's memory."""
    memory, repository = folder / "memory", folder / "project"
    memory.mkdir()
    repository.mkdir()
    size = {"CARD_MEMORY": str(memory), "MODEL_BYTES": str((1 << 30) * 4 // 5)}
    settings = "[gate]\naa_pairs = 5\nlooks = [8, 16]\n"
    return check(
        python, repository, head, variables={"LOAD_SECONDS": "1", **size, **variables}, settings=settings, code=code
    )


def pairs_of(run: Any) -> list[Any]:
    return [replicate for replicate in run["pairs"]["replicates"] if replicate["arm"] == "ab"]


@pytest.mark.slow
def test_check__equal_code_that_loads_for_three_seconds__is_built_once_a_side_and_passes(
    python: Path, tmp_path: Path
) -> None:
    run, decision = check(python, tmp_path, BASE + "# Equal.\n", variables={"LOAD_SECONDS": "3"})

    assert decision["verdict"] == "PASS"
    pairs = pairs_of(run)
    starts = Counter(replicate["start"] for replicate in pairs)
    assert sum(starts.values()) >= 8
    assert len(starts) >= 3
    # Each process copied the model that was built on the host.
    assert max(replicate["worker"]["start_up"] for replicate in pairs) < 3


@pytest.mark.slow
def test_check__build_that_opens_the_driver__every_process_builds_while_others_measure(
    python: Path, tmp_path: Path
) -> None:
    variables = {"LOAD_SECONDS": "3", "DRIVER_IN_BUILD": "1"}
    run, decision = check(python, tmp_path, BASE + "# Equal.\n", variables=variables)

    assert decision["verdict"] == "PASS"
    pairs = pairs_of(run)
    assert len({replicate["start"] for replicate in pairs}) >= 3
    assert min(replicate["worker"]["start_up"] for replicate in pairs) >= 3


@pytest.mark.slow
def test_device_day__card__every_stage_ends_in_the_time_of_the_day(python: Path, tmp_path: Path) -> None:
    out = tmp_path / "day.json"
    command = [str(python), str(DAY), "--device", "card", "--quick", "--out", str(out)]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    stages = json.loads(out.read_text())["stages"]
    assert len(stages) == 9, done.stdout + done.stderr
    assert sum(stage["seconds"] for stage in stages.values()) <= 720
    # A host under load may leave a stage without a result, and then with the reason.
    unfinished = [stage["unfinished"] for stage in stages.values() if "unfinished" in stage]
    assert done.returncode == bool(unfinished), done.stdout + done.stderr
    assert all(unfinished)
    verdicts = {name: stage["verdict"] for name, stage in stages.items() if "verdict" in stage}
    assert verdicts["gate: equal code"] in ("PASS", "INCONCLUSIVE", "none")
    assert verdicts["gate: a planted kernel"] in ("FAIL", "INCONCLUSIVE", "none")
    assert verdicts["gate: the demo's mistake"] in ("FAIL", "INCONCLUSIVE", "none")


@pytest.mark.slow
def test_check__captured_graph__is_measured_as_replayed(python: Path, tmp_path: Path) -> None:
    head = "LAYER_SECONDS = [100e-6] * 19 + [200e-6]\n"
    run, decision = check(python, tmp_path, head, variables={"LOAD_SECONDS": "0.5", "CAPTURES": "1"}, code=1)

    (low,) = [row for row in decision["comparisons"] if row["metric"] == "latency.low"]
    assert 0.03 < low["delta"] < 0.07
    # A process captures before its blocks, which takes at least half a second.
    longest = [
        max(unpack(msgspec.convert(replicate["shapes"]["default"]["times"]["wall"], PackedArray)))
        for replicate in pairs_of(run)
    ]
    assert max(longest) < 0.5e9


def named(decision: Any, metric: str) -> str | None:
    """The cause of a metric that regressed."""
    (row,) = [row for row in decision["comparisons"] if row["metric"] == metric]
    cause = row.get("cause")
    return None if cause is None else decision["explained"]["causes"][cause]["op"]


@pytest.mark.slow
def test_check__one_kernel_takes_longer__fails(python: Path, tmp_path: Path) -> None:
    head = "LAYER_SECONDS = [100e-6] * 19 + [200e-6]\n"
    _, decision = check(python, tmp_path, head, variables={"LOAD_SECONDS": "0.5"}, code=1)

    assert decision["verdict"] == "FAIL"
    assert named(decision, "device.busy") == "layer_19"
    (low,) = [row for row in decision["comparisons"] if row["metric"] == "latency.low"]
    assert low["outcome"] == "regressed"
    assert 0.03 < low["delta"] < 0.07


@pytest.mark.slow
def test_check__one_kernel_makes_all_of_them_a_percent_longer__fails_and_names_it(python: Path, tmp_path: Path) -> None:
    _, decision = check(
        python, tmp_path, "LAYER_SECONDS = [100e-6] * 19 + [120e-6]\n", variables={"LOAD_SECONDS": "0.5"}, code=1
    )

    assert decision["verdict"] == "FAIL"
    assert named(decision, "device.busy") == "layer_19"


@pytest.mark.slow
def test_check__equal_code_at_the_power_limit__passes(python: Path, tmp_path: Path) -> None:
    run, decision = check(
        python, tmp_path, BASE + "# Equal.\n", variables={"LOAD_SECONDS": "0.5", "CARD_POWER_LIMIT": "1"}
    )

    assert decision["verdict"] == "PASS"
    capped: list[bool] = []
    for replicate in run["pairs"]["replicates"]:
        capped += replicate["shapes"]["default"]["device"]["power_capped"]
    assert sum(capped) > 0.9 * len(capped)
    assert min(decision["measured"]["power_cap"].values()) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "verdict", "code"),
    [(BASE + "# Equal.\n", "PASS", 0), ("LAYER_SECONDS = [100e-6] * 19 + [200e-6]\n", "FAIL", 1)],
)
def test_check__model_of_four_fifths_of_the_memory__sides_take_the_card_in_visits(
    python: Path, tmp_path: Path, head: str, verdict: str, code: int
) -> None:
    run, decision = check_large_model(python, tmp_path, head, code=code)

    assert decision["verdict"] == verdict
    assert len(pairs_of(run)) >= 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "verdict", "code"),
    [(BASE + "# Equal.\n", "PASS", 0), ("LAYER_SECONDS = [100e-6] * 19 + [300e-6]\n", "FAIL", 1)],
)
def test_check__large_model_whose_weights_cannot_be_moved__whole_processes_alternate(
    python: Path, tmp_path: Path, head: str, verdict: str, code: int
) -> None:
    run, decision = check_large_model(python, tmp_path, head, code=code, variables={"CAPTURES": "1"})

    assert decision["verdict"] == verdict
    pairs = pairs_of(run)
    assert len(pairs) >= 8
    # A process serves one pair.
    assert len({replicate["start"] for replicate in pairs}) == len(pairs)


def start_spread_of(run: Any) -> Any:
    """The spread of new processes that a run of main measured, with its label and count."""
    (spread,) = [
        value
        for step in run["checklist"]["steps"]
        for value in step["values"]
        if value["metric"] == "latency.start_spread"
    ]
    return spread


def judged_with_spread(python: Path, folder: Path, spread: float) -> float:
    """Judge a check again as if main's runs had stored this spread; return the width of the interval of kernel time."""
    file = folder / "out" / "check" / "history.json"
    history = json.loads(file.read_text())
    for series in history["series"]:
        if series["metric"] == "latency.start_spread":
            series["values"] = [spread] * len(series["values"])
    file.write_text(json.dumps(history))
    out = f"out/{spread}"
    arguments = [str(python), "-m", "perfgate", "gate", "out/check", "--out", out]
    subprocess.run(arguments, cwd=folder, capture_output=True, check=False)
    decision = json.loads((folder / out / "decision.json").read_text())
    (busy,) = [row for row in decision["comparisons"] if row["metric"] == "device.busy"]
    least, most = busy["interval"]
    return float(most - least)


@pytest.mark.slow
def test_baseline_record__card__stores_the_spread_of_new_processes_and_a_check_takes_the_median_of_three(
    python: Path, tmp_path: Path
) -> None:
    project(tmp_path)
    variables = {"LOAD_SECONDS": "0.5", "PERFGATE_STORE": str(tmp_path / "out" / "store.sqlite")}
    spreads: list[float] = []
    for _ in range(3):
        perfgate(python, "baseline", "record", "--out", "out", folder=tmp_path, variables=variables)
        spread = start_spread_of(json.loads((tmp_path / "out" / "run.json").read_text()))
        assert spread["count"] == 3
        # A process of the card has luck of 0.2 %.
        assert 0 < spread["value"] < 0.012
        spreads.append(spread["value"])
    commit(tmp_path, BASE + "# Equal.\n")

    check = [str(python), "-m", "perfgate", "check", "--base", "HEAD~1", "--always", "--out", "out/check"]
    subprocess.run(check, cwd=tmp_path, env={**os.environ, **variables}, capture_output=True, check=False)

    folder = tmp_path / "out" / "check"
    decision = json.loads((folder / "decision.json").read_text())
    # Three spreads may suggest more luck than a process of the card has, and then nothing is shown.
    assert decision["verdict"] in ("PASS", "INCONCLUSIVE")
    assert decision["verdict"] == "PASS" or sorted(spreads)[1] > RESIDENT_LUCK
    history = json.loads((folder / "history.json").read_text())
    (stored,) = [series for series in history["series"] if series["metric"] == "latency.start_spread"]
    assert sorted(stored["values"]) == pytest.approx(sorted(spreads))
    narrow, wide = (judged_with_spread(python, tmp_path, spread) for spread in (LEAST_LUCK, MOST_LUCK))
    pairs = pairs_of(json.loads((folder / "head" / "run.json").read_text()))
    assert narrow <= wide
    # On a busy host most starts serve one pair, and need no assumption.
    if len({replicate["start"] for replicate in pairs}) <= len(pairs) / 2:
        assert narrow < wide

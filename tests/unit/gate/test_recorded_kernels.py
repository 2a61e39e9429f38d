"""Gates with recorded noise: the kernels of a V100 and of a 910B, drawn anew.

The recording of the V100 is of torch-tb-profiler (SOURCES.md there): six steps of ResNet-50 with 1,462 kernels each, which are
drawn by their place in the step. That of the 910B is of MindStudio Insight: one step of Qwen3, whose kernels without the
collectives are drawn from those of the same type and shapes.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from perfgate import trace
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from tests.fakes.card_times import CALLS, Call, CardGate, CardNoise
from tests.samples import recorded

V100 = "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz"
NPU_910B = "msinsight-910B-qwen3-cann8.3RC1-2511/level2/rank_0_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv.gz"
STEPS = 6
# Steps of the 910B that are drawn beforehand.
DRAWN_STEPS = 64
# The wall of the same steps varied by 2.7 %, and a start of a process has luck.
NOISE = CardNoise(luck=0.002, quad=0.027, host=0.065, kernel_luck=0.0005, kernel_quad=0.0)

Floats = npt.NDArray[np.float64]


# The seconds of each kernel: a row for each place in the step, a column for each step.
Kernels = Mapping[str, Floats]


@cache
def kernels_of_v100() -> Kernels:
    (timeline,) = trace.read(recorded(*V100.split("/"))).timelines
    kernels = timeline.events.of_kind("compute")
    order = np.argsort(kernels.start, kind="stable")
    names = [kernels.names[kernels.name[index]] for index in order]
    by_step = kernels.duration[order].reshape(STEPS, -1) / 1e9
    places = len(names) // STEPS
    assert names == names[:places] * STEPS, "steps of different kernels"
    rows: dict[str, list[Floats]] = defaultdict(list)
    for place, name in enumerate(names[:places]):
        rows[name].append(by_step[:, place])
    return {name: np.array(of_name) for name, of_name in rows.items()}


@cache
def kernels_of_910b() -> Kernels:
    durations: dict[tuple[str, str], list[float]] = defaultdict(list)
    with gzip.open(recorded(*NPU_910B.split("/")), "rt") as table:
        for row in csv.DictReader(table):
            # Collectives wait for the other ranks.
            if not row["Type"].startswith("hcom_"):
                durations[row["Type"], row["Input Shapes"]].append(float(row["Duration(us)"]) / 1e6)
    lot = np.random.default_rng(0)
    rows: dict[str, list[Floats]] = defaultdict(list)
    for (name, _), of_kind in durations.items():
        rows[name].append(lot.choice(of_kind, size=(len(of_kind), DRAWN_STEPS)))
    return {name: np.concatenate(of_name) for name, of_name in rows.items()}


class RecordedGate(CardGate):
    """A gate whose kernels take as long as recorded ones; of ``slower`` by this factor in head."""

    recorded: Kernels

    def _kernel_seconds(self, call: Call) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for name, durations in self.recorded.items():
            drawn = self._lot.choice(durations, size=CALLS, axis=1)
            mean = float(durations.mean(axis=1).sum())
            seconds[name] = float(drawn.mean(axis=1).sum()) * call.kernels[name] / mean
        return seconds


def recorded_call(kernels: Kernels) -> Call:
    seconds = {name: float(durations.mean(axis=1).sum()) for name, durations in kernels.items()}
    # The device waited for the host for three quarters of a step.
    return Call(kernels=seconds, host=0.1, exposed=0.07)


def decide(kernels: Kernels, base: Call, head: Call, seed: int) -> DecisionDocument:
    gate = RecordedGate(base, head, NOISE, seed=seed)
    gate.recorded = kernels
    return gate.decide()


each_card = pytest.mark.parametrize("kernels_of", [kernels_of_v100, kernels_of_910b])


@pytest.mark.recordings
@each_card
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decide__equal_code__passes_by_kernels_and_the_same_work(kernels_of: Callable[[], Kernels], seed: int) -> None:
    kernels = kernels_of()
    call = recorded_call(kernels)

    decision = decide(kernels, call, call, seed)

    assert decision.verdict == "PASS"
    busy = next(row for row in decision.comparisons if row.metric == "device.busy")
    assert isinstance(busy, Paired)
    assert busy.interval is not None
    assert max(abs(end) for end in busy.interval) < 0.006


@pytest.mark.recordings
@each_card
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decide__one_kernel_makes_all_of_them_a_percent_longer__fails_and_names_it(
    kernels_of: Callable[[], Kernels], seed: int
) -> None:
    kernels = kernels_of()
    call = recorded_call(kernels)
    longest = max(call.kernels, key=lambda name: call.kernels[name])

    decision = decide(kernels, call, call.slower_kernel(longest, share_of_call=0.01), seed)

    assert decision.verdict == "FAIL"
    busy = next(row for row in decision.comparisons if row.metric == "device.busy")
    assert busy.outcome == "regressed"
    assert busy.cause is not None
    assert decision.explained.causes[busy.cause].op == longest

"""Gates with recorded noise: kernels of the six recorded steps of a V100, drawn anew by their place in the step.

The recording is of torch-tb-profiler (SOURCES.md there): ResNet-50, 1,462 kernels a step, its times in microseconds.
"""

from __future__ import annotations

from collections import defaultdict
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest

from perfgate import trace
from perfgate.document.comparison import Paired
from perfgate.document.decision import DecisionDocument
from tests.fakes.card_times import CALLS, Call, CardGate, CardNoise
from tests.samples import recorded

RECORDING = "cuda-kineto/v100_resnet50_num_workers_0.pt.trace.json.gz"
STEPS = 6
# The wall of the same steps varied by 2.7 %, and a start of a process has luck.
NOISE = CardNoise(luck=0.002, quad=0.027, host=0.065, kernel_luck=0.0005, kernel_quad=0.0)

Floats = npt.NDArray[np.float64]


@cache
def recorded_kernels() -> dict[str, Floats]:
    """The seconds of each kernel: a row for each place in the step, a column for each step."""
    (timeline,) = trace.read(recorded(*RECORDING.split("/"))).timelines
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


class RecordedGate(CardGate):
    """A gate whose kernels take as long as recorded ones; of ``slower`` by this factor in head."""

    def _kernel_seconds(self, call: Call) -> dict[str, float]:
        seconds: dict[str, float] = {}
        for name, durations in recorded_kernels().items():
            drawn = self._lot.choice(durations, size=CALLS, axis=1)
            mean = float(durations.mean(axis=1).sum())
            seconds[name] = float(drawn.mean(axis=1).sum()) * call.kernels[name] / mean
        return seconds


def recorded_call() -> Call:
    seconds = {name: float(durations.mean(axis=1).sum()) for name, durations in recorded_kernels().items()}
    # The device waited for the host for three quarters of a step.
    return Call(kernels=seconds, host=0.1, exposed=0.07)


def decide(base: Call, head: Call, seed: int) -> DecisionDocument:
    return RecordedGate(base, head, NOISE, seed=seed).decide()


@pytest.mark.recordings
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decide__equal_code__passes_by_kernels_and_the_same_work(seed: int) -> None:
    call = recorded_call()

    decision = decide(call, call, seed)

    assert decision.verdict == "PASS"
    busy = next(row for row in decision.comparisons if row.metric == "device.busy")
    assert isinstance(busy, Paired)
    assert busy.interval is not None
    assert max(abs(end) for end in busy.interval) < 0.006


@pytest.mark.recordings
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_decide__one_kernel_makes_all_of_them_a_percent_longer__fails_and_names_it(seed: int) -> None:
    call = recorded_call()
    longest = max(call.kernels, key=lambda name: call.kernels[name])

    decision = decide(call, call.slower_kernel(longest, share_of_call=0.01), seed)

    assert decision.verdict == "FAIL"
    busy = next(row for row in decision.comparisons if row.metric == "device.busy")
    assert busy.outcome == "regressed"
    assert busy.cause is not None
    assert decision.explained.causes[busy.cause].op == longest

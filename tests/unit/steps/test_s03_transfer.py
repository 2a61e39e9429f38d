"""Step 3 on the fake device: transfer share, overlap and bandwidths against closed forms.

With kernel K, upload U and download D of one call, plain copying takes U + K + D. Prefetching hides U behind K.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from perfgate.measuring.checklist.step import StepOutcome
from perfgate.measuring.checklist.steps.s03_transfer import STEP, judge_inputs
from tests.fakes.device import FakeDevice
from tests.fakes.wording import reason_of
from tests.fakes.workloads import context_on, curve
from tests.wording import finding_text

MS = 1_000_000
MB = 1_000_000


def _values(outcome: StepOutcome, metric: str) -> dict[str, object]:
    return {v.labels["mode"]: v.value for v in outcome.values if v.metric == metric}


def _device(**fields: float) -> FakeDevice:
    """Copy 1 MB in 1 ms from pageable and in 0.25 ms from pinned memory."""
    return FakeDevice(pageable_bandwidth=1e9, pinned_bandwidth=4e9, **fields)


def test_transfer__input_copy_only__share_and_overlap_exact() -> None:
    outcome = STEP.measure(context_on(_device(), curve(4 * MS, 0, item_bytes=MB)))
    shares = _values(outcome, "transfer.share")
    assert shares["pageable"] == pytest.approx(0.2, rel=0.01)  # 1 / (1 + 4)
    assert shares["pinned"] == pytest.approx(0.0588, rel=0.01)  # 0.25 / (0.25 + 4)
    assert shares["prefetch"] == pytest.approx(0.0, abs=1e-9)
    exposed = _values(outcome, "transfer.exposed_share")
    assert exposed["pageable"] == pytest.approx(0.2, rel=0.01)
    assert exposed["pinned"] == pytest.approx(0.0588, rel=0.01)
    assert exposed["prefetch"] == pytest.approx(0.0, abs=1e-9)


def test_transfer__copy_longer_than_kernel__prefetch_hides_only_part() -> None:
    outcome = STEP.measure(context_on(_device(), curve(1 * MS, 0, item_bytes=8 * MB)))
    assert _values(outcome, "transfer.share")["prefetch"] == pytest.approx(0.5, rel=0.01)  # 2 ms of copy, 1 of kernel
    assert _values(outcome, "transfer.exposed_share")["prefetch"] == pytest.approx(0.5, rel=0.01)


def test_transfer__output_copied_back__counts_and_is_not_hidden() -> None:
    workload = curve(4 * MS, 0, item_bytes=MB, model={"output_bytes": MB})
    outcome = STEP.measure(context_on(_device(), workload))
    assert _values(outcome, "transfer.share")["pageable"] == pytest.approx(2 / 6, rel=0.01)
    assert _values(outcome, "transfer.share")["prefetch"] == pytest.approx(1 / 5, rel=0.01)
    assert _values(outcome, "transfer.d2h_bandwidth")["pinned"] == pytest.approx(1e9, rel=0.01)


def test_transfer__two_kinds_of_memory__bandwidths_exact() -> None:
    outcome = STEP.measure(context_on(_device(), curve(4 * MS, 0, item_bytes=MB, batch=4)))
    bandwidths = _values(outcome, "transfer.h2d_bandwidth")
    assert bandwidths["pageable"] == pytest.approx(1e9, rel=0.01)
    assert bandwidths["pinned"] == pytest.approx(4e9, rel=0.01)
    assert bandwidths["prefetch"] == pytest.approx(4e9, rel=0.01)


def test_transfer__noisy_kernels__share_still_within_one_percent_and_interval_around_it() -> None:
    outcome = STEP.measure(context_on(_device(noise=0.01, seed=3), curve(4 * MS, 0, item_bytes=MB), quick=False))
    (share,) = [v for v in outcome.values if v.metric == "transfer.share" and v.labels["mode"] == "pageable"]
    assert share.value == pytest.approx(0.2, rel=0.01)
    low, high = share.interval or (None, None)
    assert low is not None
    assert high is not None
    assert low <= 0.2 <= high


@pytest.mark.parametrize(
    ("kernel", "severities"),
    [(40 * MS, []), (10 * MS, ["warning"]), (3 * MS, ["severe"])],  # shares 2.4 %, 9.1 % and 25 %
)
def test_transfer__limits_of_5_and_20_percent__judged(kernel: int, severities: list[str]) -> None:
    outcome = STEP.measure(context_on(_device(), curve(kernel, 0, item_bytes=MB)))
    assert [finding.severity for finding in outcome.findings] == severities
    assert outcome.status == ("attention" if severities else "ok")


def test_transfer__another_way_of_copying__its_speed_up_and_the_better_of_them() -> None:
    outcome = STEP.measure(context_on(_device(), curve(4 * MS, 0, item_bytes=MB)))
    speedups = {v.labels["of"]: v.value for v in outcome.values if v.metric == "transfer.speedup"}

    assert speedups == {"pinned": pytest.approx(5 / 4.25, rel=0.01), "prefetch": pytest.approx(5 / 4, rel=0.01)}
    assert outcome.findings[0].evidence["of"] == "prefetch"


def test_transfer__limit_of_the_project__comes_before_the_default() -> None:
    limits = {"transfer.share.warning": 0.3, "transfer.share.severe": 0.5}
    outcome = STEP.measure(context_on(_device(), curve(4 * MS, 0, item_bytes=MB), limits=limits))
    assert outcome.findings == []


def test_transfer__no_memory_of_its_own__not_applicable_with_the_reason() -> None:
    outcome = STEP.measure(context_on(FakeDevice(capabilities=frozenset({"queue"})), curve(MS, 0)))
    assert outcome.status == "not_applicable"
    assert reason_of(outcome) == "the device works in host memory: there is nothing to copy"
    assert outcome.values == []


def test_transfer__nothing_to_copy_back__bandwidth_absent_not_zero() -> None:
    outcome = STEP.measure(context_on(_device(), curve(4 * MS, 0, item_bytes=MB)))
    (value,) = [v for v in outcome.values if v.metric == "transfer.d2h_bandwidth" and v.labels["mode"] == "pageable"]
    assert value.value is None
    assert reason_of(value) == "nothing was copied"


def test_transfer__full_precision_inputs__half_the_bytes_saved() -> None:
    images = {"image": torch.zeros(1000), "labels": torch.zeros(50, dtype=torch.int64)}
    outcome = StepOutcome()
    judge_inputs(outcome, images, output_bytes=600, share=0.25)
    (found,) = outcome.findings

    # 2,000 of the 5,000 bytes go, and with them two fifths of a quarter of the call.
    assert (found.rule, found.severity) == ("transfer.full_precision", "info")
    assert found.evidence == {"size": 4000, "dtype": "float32", "saved": pytest.approx(0.1)}
    assert finding_text(found).startswith("every call transfers 4,000 bytes as float32")


@pytest.mark.parametrize(
    ("inputs", "output_bytes"),
    [
        (torch.zeros(1000, dtype=torch.float16), 0),
        (torch.zeros(1000, dtype=torch.int64), 0),
        (torch.zeros(1000), 9000),
        ((), 0),
    ],
    ids=["half", "whole numbers", "output is larger", "none"],
)
def test_transfer__inputs_of_which_little_is_in_full_precision__nothing_said(inputs: Any, output_bytes: int) -> None:
    outcome = StepOutcome()
    judge_inputs(outcome, inputs, output_bytes, share=0.5)
    assert outcome.findings == []

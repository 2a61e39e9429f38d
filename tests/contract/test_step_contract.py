"""What every step of the checklist must hold to, whichever are found."""

from __future__ import annotations

import math
from pathlib import Path
from typing import get_args

import msgspec
import pytest

from perfgate.catalogue.lookup import CARDS, metric
from perfgate.document.run import StepResult, StepStatus
from perfgate.measuring.checklist.runner import find_steps, run_step
from perfgate.measuring.checklist.step import Step, StepContext
from tests.fakes.device import ALL_CAPABILITIES, FakeDevice
from tests.fakes.workloads import context_on, curve

MS = 1_000_000
STEPS = find_steps()

devices = pytest.mark.parametrize(
    "device_kind", ["asynchronous", "synchronous"], ids=["own memory and queue", "host memory, no queue"]
)
every_step = pytest.mark.parametrize("step", STEPS.values(), ids=lambda step: f"{step.card.number:02}-{step.card.slug}")


def _context(device_kind: str, folder: Path) -> StepContext:
    capabilities = ALL_CAPABILITIES if device_kind == "asynchronous" else frozenset()
    device = FakeDevice(launch_ns=10_000, capabilities=capabilities)
    workload = curve(MS, MS // 10, item_bytes=100_000, batch=4, model={"output_bytes": 10, "activation_bytes": 1000})
    return context_on(device, workload, artifacts=folder, root=folder)


def test_find_steps__the_first_five__are_there_in_order() -> None:
    assert list(STEPS)[:5] == [1, 2, 3, 4, 5]


def test_cards__checklist__twenty_numbers_and_different_slugs() -> None:
    assert list(CARDS) == list(range(1, 21))
    assert len({card.slug for card in CARDS.values()}) == 20


@every_step
def test_step__card__is_that_of_the_checklist(step: Step) -> None:
    assert step.card is CARDS[step.card.number]


@every_step
def test_step__module__carries_number_and_slug(step: Step) -> None:
    assert type(step).__module__.rpartition(".")[2] == f"s{step.card.number:02}_{step.card.slug}"


@devices
@every_step
def test_step__fake_device__legal_outcome(step: Step, device_kind: str, tmp_path: Path) -> None:
    result, outcome = run_step(step, _context(device_kind, tmp_path))
    assert result.error is None, result.error
    assert outcome is not None
    assert result.status in set(get_args(StepStatus)) - {"error"}
    assert result.status in ("ok", "attention") or result.reason
    assert (result.number, result.slug, result.workload) == (step.card.number, step.card.slug, "fake")


@devices
@every_step
def test_step__values__are_of_the_catalogue_and_finite_or_explained(
    step: Step, device_kind: str, tmp_path: Path
) -> None:
    result, _ = run_step(step, _context(device_kind, tmp_path))
    for value in result.values:
        assert metric(value.metric).name == value.metric
        assert (value.value is None) == (value.reason is not None)
        assert value.value is None or math.isfinite(value.value)
        low, high = value.interval or (None, None)
        assert low is None or high is None or low <= high


@devices
@every_step
def test_step__not_measured__has_no_values(step: Step, device_kind: str, tmp_path: Path) -> None:
    result, _ = run_step(step, _context(device_kind, tmp_path))
    if result.status in ("not_applicable", "unavailable"):
        assert result.values == []


@devices
@every_step
def test_step__result__survives_the_document(step: Step, device_kind: str, tmp_path: Path) -> None:
    result, _ = run_step(step, _context(device_kind, tmp_path))
    assert msgspec.json.decode(msgspec.json.encode(result), type=StepResult) == result


@every_step
def test_step__same_seed_and_device__same_result(step: Step, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (run_step(step, _context("asynchronous", folder))[0] for folder in folders)
    assert first == second


@every_step
def test_step__quick_on_a_call_of_a_millisecond__at_most_fifteen_seconds(step: Step, tmp_path: Path) -> None:
    result, _ = run_step(step, _context("asynchronous", tmp_path))
    assert result.duration < 15.0

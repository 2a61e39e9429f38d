"""What every step of the checklist must hold to, whichever are found."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
import torch

from perfgate.catalogue.lookup import CARDS, metric
from perfgate.document.run import StepResult, StepStatus
from perfgate.judging.gate.evidence.checklist import is_of_turns
from perfgate.measuring.checklist import step as step_module
from perfgate.measuring.checklist.runner import find_steps, run_step
from perfgate.measuring.checklist.step import Experiments, Step, StepContext
from perfgate.measuring.devices.registry import open_device
from perfgate.measuring.workload.workload import Traffic, Workload
from perfgate.protocol import StepExtent, StepSettings
from tests.each import each
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


@each("step", STEPS.values())
def test_step__card__is_that_of_the_checklist(step: Step) -> None:
    assert step.card is CARDS[step.card.number]


@each("step", STEPS.values())
def test_step__module__carries_number_and_slug(step: Step) -> None:
    assert type(step).__module__.rpartition(".")[2] == f"s{step.card.number:02}_{step.card.slug}"


@devices
@every_step
def test_step__fake_device__legal_outcome_with_a_reason_for_every_missing_value(
    step: Step, device_kind: str, tmp_path: Path
) -> None:
    result, outcome = run_step(step, _context(device_kind, tmp_path))
    assert result.error is None, result.error
    assert outcome is not None
    assert result.status in set(get_args(StepStatus)) - {"error"}
    assert result.status in ("ok", "attention") or result.reason
    assert result.status not in ("not_applicable", "unavailable") or result.values == []
    assert (result.number, result.slug, result.workload) == (step.card.number, step.card.slug, "fake")
    for value in result.values:
        assert metric(value.metric).name == value.metric
        assert (value.value is None) == (value.reason is not None)
        assert value.value is None or math.isfinite(value.value)
        low, high = value.interval or (None, None)
        assert low is None or high is None or low <= high
    assert msgspec.json.decode(msgspec.json.encode(result), type=StepResult) == result


@devices
@every_step
def test_step__brief_turn__has_every_number_that_turns_compare(step: Step, device_kind: str, tmp_path: Path) -> None:
    context = _context(device_kind, tmp_path)
    (tmp_path / "brief").mkdir()
    brief = replace(context, extent=StepExtent(brief=True), artifacts=tmp_path / "brief")
    numbers = [
        {
            value.metric
            for value in run_step(step, one)[0].values
            if value.value is not None and is_of_turns(value.metric)
        }
        for one in (context, brief)
    ]
    assert numbers[0] == numbers[1]


@every_step
def test_step__same_seed_and_device__same_result_in_at_most_fifteen_seconds(step: Step, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        folder.mkdir()
    first, second = (run_step(step, _context("asynchronous", folder))[0] for folder in folders)
    assert first == second
    assert first.duration < 15.0


# --- experiments: what the workload does not do itself


class OddError(BaseException):
    """No Exception, and without words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


def _raised() -> list[BaseException]:
    import torch._dynamo  # takes seconds

    return [
        RuntimeError("mat1 and mat2 shapes cannot be multiplied"),
        AssertionError("expected size 64==64, stride 96==1 at dim=0"),
        KeyError("missing"),
        MemoryError(),
        torch._dynamo.exc.TorchRuntimeError("failed to run a node"),
        torch._dynamo.exc.InternalTorchDynamoError("a bug of the compiler"),
        SystemExit(1),
        OddError(),
    ]


# The steps that try what the workload does not do, on a model with products, convolutions, traffic and two ranks.
EXPERIMENTING = (5, 8, 9, 10, 13, 14, 15, 16)
CHECKLIST = Path(step_module.__file__).parent
# What only an experiment does: another way to do the same, a copy of the model, a compiler, processes of its own.
_TRIES = {"compare", "deepcopy", "compile", "autocast", "Popen", "run_job", "time_threads", "time_processes"}
# These are the tools that experiments use; a reference and preprocessing on the device are the user's own two ways.
_TOOLS = {"copies/copies.py", "collectives/job.py", "operator_cases.py"}


def _raising(error: BaseException, reached: list[bool]) -> Callable[[], None]:
    def plant() -> None:
        reached.append(True)
        raise error

    return plant


@every_step
def test_step__any_experiment_of_it_raises__no_error_and_every_missing_value_has_a_reason(
    step: Step, tmp_path: Path
) -> None:
    for error in _raised():
        reached: list[bool] = []
        planted = _raising(error, reached)
        context = replace(
            _context("asynchronous", tmp_path),
            experiments=Experiments(planted),
            settings=StepSettings(copies=[1, 2], shape_space=True),
        )

        result, _ = run_step(step, context)

        assert result.error is None
        assert result.status != "error"
        if not reached:  # without an experiment here, every error gives this result
            break


@pytest.mark.parametrize("number", EXPERIMENTING)
def test_step__on_a_real_model_its_experiment_raises__reached_and_no_error(number: int, tmp_path: Path) -> None:
    reached: list[bool] = []
    error = AssertionError("planted in an experiment")

    result, _ = run_step(STEPS[number], replace(_real(tmp_path), experiments=Experiments(_raising(error, reached))))

    assert reached
    assert result.error is None
    said = str([result.reason, *(value.reason for value in result.values), *(f.evidence for f in result.findings)])
    assert "planted in an experiment" in said


@pytest.mark.parametrize("number", EXPERIMENTING)
def test_step__workloads_own_call_raises__an_error(number: int, tmp_path: Path) -> None:
    class Broken(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise KeyError("the workload's own")

    result, _ = run_step(STEPS[number], _real(tmp_path, Broken(), ranks=1))

    if number == 16:  # measures the machine and makes no call
        assert result.status == "not_applicable"
    else:
        assert result.status == "error"


def test_steps__modules_that_try_something__do_so_in_an_experiment() -> None:
    outside = []
    for path in sorted(CHECKLIST.rglob("*.py")):
        name = path.relative_to(CHECKLIST).as_posix()
        calls = {_called(node) for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)}
        if calls & _TRIES and not calls & {"experiment", "outcome_of"} and name not in _TOOLS:
            outside.append((name, sorted(calls & _TRIES)))

    assert outside == []


def _called(call: ast.Call) -> str:
    """The last name of what is called, nothing of ``re.compile``."""
    if isinstance(call.func, ast.Attribute):
        owner = call.func.value
        return "" if isinstance(owner, ast.Name) and owner.id == "re" else call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


class _Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.head = torch.nn.Conv2d(3, 30, 3), torch.nn.Linear(30, 50)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output: torch.Tensor = self.head(self.conv(x).mean((2, 3)))
        return output


def _real(folder: Path, model: Any = None, **fields: Any) -> StepContext:
    workload = Workload(
        build=lambda device: (model or _Net()).eval(),
        inputs=lambda batch, seed: torch.randn(batch, 3, 9, 9, generator=torch.Generator().manual_seed(seed)),
        batch=2,
        traffic=Traffic(rate=200.0),
        **{"ranks": 2, **fields},
    )
    return context_on(open_device("cpu"), workload, artifacts=folder, root=Path(__file__).parents[2])

"""Whether the recorder of a job asks torch's profiler for the kernels of an NPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from perfgate.measuring import operator_recorder
from perfgate.measuring.operator_recorder import started_profiler


class Asked(Exception):  # noqa: N818 - no error
    """Raised in place of a recording, with the settings of the profiler."""


def torch_with(*, initialized: bool = True, activity: str = "NPU") -> Any:
    activities = [SimpleNamespace(name="CPU"), SimpleNamespace(name=activity)]
    return SimpleNamespace(
        cuda=SimpleNamespace(is_initialized=lambda: False),
        npu=SimpleNamespace(is_initialized=lambda: initialized),
        autograd=SimpleNamespace(_supported_activities=lambda: activities),
    )


def settings_for(torch: Any, monkeypatch: pytest.MonkeyPatch, *, has_mspti: bool = True) -> dict[str, Any]:
    def profile(**settings: Any) -> None:
        raise Asked(settings)

    def load(name: str) -> None:
        assert name == "libmspti.so"
        if not has_mspti:
            raise OSError(name)

    monkeypatch.setitem(operator_recorder.sys.modules, "torch", torch)
    monkeypatch.setattr(operator_recorder.importlib, "import_module", lambda name: SimpleNamespace(profile=profile))
    monkeypatch.setattr(operator_recorder.ctypes, "CDLL", load)
    with pytest.raises(Asked) as asked:
        started_profiler(record_shapes=True)
    settings: dict[str, Any] = asked.value.args[0]
    return settings


@pytest.mark.parametrize("activity", ["NPU", "PrivateUse1"])
def test_started_profiler__npu_and_libmspti__its_kernels_too(activity: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(torch_with(activity=activity), monkeypatch)
    assert (settings["use_device"], settings["use_kineto"], settings["use_cpu"]) == ("npu", True, True)


@pytest.mark.parametrize(
    ("torch", "has_mspti"),
    [
        (torch_with(), False),  # torch_npu 2.13.0 would raise when the recording ends
        (torch_with(initialized=False), True),
        (torch_with(activity="XPU"), True),
    ],
)
def test_started_profiler__no_back_end_of_the_npu__the_host_alone(
    torch: Any, has_mspti: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(torch, monkeypatch, has_mspti=has_mspti)
    assert "use_device" not in settings
    assert settings["use_cpu"]

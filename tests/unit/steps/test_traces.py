"""The one trace of steady calls that the steps of a run share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perfgate.errors import MeasuringError
from perfgate.measuring.checklist.runner import find_steps, run_step
from perfgate.measuring.checklist.traces import steady_calls, steady_summary
from tests.fakes.device import ALL_CAPABILITIES, FakeDevice
from tests.fakes.workloads import FakeKernel, context_on, fake_workload

US = 1000
NAME = "trace-fake-default.json.gz"
KERNELS = (FakeKernel("aten::mm", 90 * US), FakeKernel("aten::nchwToNhwc", 10 * US))


class Recorded(FakeDevice):
    """A device that notes what it was asked to record."""

    def __init__(self) -> None:
        super().__init__(launch_ns=5 * US, capabilities=ALL_CAPABILITIES)
        self.names: list[str] = []

    def record_trace(self, call: Callable[[], Any], *, calls: int, folder: Path, name: str) -> Path:
        self.names.append(name)
        return super().record_trace(call, calls=calls, folder=folder, name=name)


def test_steps__all_that_look_at_a_trace__record_it_once(tmp_path: Path) -> None:
    names: list[str] = []
    kept = []
    for number in (2, 4, 7, 8, 12, 13, 14, 18):
        # A process of its own for each step, so that they share nothing but the folder.
        device = Recorded()
        context = context_on(device, fake_workload(*KERNELS), artifacts=tmp_path)
        result, _ = run_step(find_steps()[number], context)
        assert result.error is None, result.error
        names += device.names
        kept += context.kept

    assert names.count("trace-fake-default") == 1
    # Profiled in turns with plain calls, by step 18.
    assert {name for name in names if not name.startswith("round-")} == {"trace-fake-default"}
    assert {(artifact.path, artifact.sha256) for artifact in kept} == {(NAME, kept[0].sha256)}
    assert [path.name for path in tmp_path.iterdir()] == [NAME]


def test_steady_summary__recorded_by_an_earlier_step__the_same_calls(tmp_path: Path) -> None:
    first = steady_calls(context_on(Recorded(), fake_workload(*KERNELS), artifacts=tmp_path), "default")
    summary = steady_summary(context_on(Recorded(), fake_workload(*KERNELS), artifacts=tmp_path), "default")

    assert first.path == tmp_path / NAME
    assert (summary.spans, [total.name for total in summary.totals]) == (
        first.calls,
        ["mm_kernel", "nchwToNhwc_kernel"],
    )


def test_steady_calls__profiler_lost_a_call__no_file_that_a_later_step_would_take_for_whole(tmp_path: Path) -> None:
    class Losing(FakeDevice):
        def record_trace(self, call: Callable[[], Any], *, calls: int, folder: Path, name: str) -> Path:
            return super().record_trace(call, calls=calls - 1, folder=folder, name=name)

    context = context_on(Losing(), fake_workload(*KERNELS), artifacts=tmp_path)
    with pytest.raises(MeasuringError, match="dropped events"):
        steady_calls(context, "default")

    assert (list(tmp_path.iterdir()), context.kept) == ([], [])

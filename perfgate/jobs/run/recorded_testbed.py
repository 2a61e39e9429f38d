"""The testbed of a recording: what it says of device, software and profiler, which must be equal for two to be compared."""

from __future__ import annotations

import re
from collections.abc import Sequence

from perfgate.document.fingerprint import fingerprint
from perfgate.document.run import Testbed
from perfgate.trace.recording import Recording
from perfgate.trace.summary import DeviceSummary

# A device's number says where a job was placed; its name is what must be equal.
_NUMBERED_DEVICE = re.compile(r"device\.[0-9]+")
# How a launch on the host is called: by CUDA's and ROCm's runtimes; anything else is an NPU's.
_CUDA_CALLS = ("cuda", "cu", "hip")


def recorded_testbed(recording: Recording, summaries: Sequence[DeviceSummary]) -> Testbed:
    """Return the testbed. What the recording does not say is not in it; ``unknown`` names what that is."""
    kind = device_kind(recording, summaries)
    comparable = {
        "source": "recording",
        "device.kind": kind,
        "profile.format": recording.format,
        "profile.shapes": "; ".join(summary.shape for summary in summaries),
        "profile.unit": ", ".join(sorted({summary.unit for summary in summaries})),
        **_device_names(recording),
        **{f"software.{name}": version for name, version in sorted(recording.software.items())},
        **{f"profiler.{name}": value for name, value in sorted(recording.settings.items()) if not _may_differ(name)},
        **{f"env.{name}": value for name, value in sorted(recording.environment.items())},
    }
    observed = {name: value for name, value in sorted(recording.settings.items()) if _may_differ(name)}
    observed.update(
        {f"{summary.shape} device": str(summary.timeline.device) for summary in summaries if _placed(summary)}
    )
    return Testbed(fingerprint=fingerprint(comparable), device_kind=kind, comparable=comparable, observed=observed)


def device_kind(recording: Recording, summaries: Sequence[DeviceSummary]) -> str:
    """Return ``npu``, ``cuda`` or ``cpu``, by who writes such a recording and what launched the kernels in it."""
    if recording.format not in ("kineto", "chrome"):
        return "npu"
    if all(summary.on_host for summary in summaries):
        return "cpu"
    for timeline in recording.timelines:
        launches = timeline.events.of_kind("runtime")
        if any(launches.names[name].startswith(_CUDA_CALLS) for name in set(launches.name.tolist())):
            return "cuda"
    return "npu"


def unknown(testbed: Testbed) -> list[str]:
    """Return what would tell two testbeds apart and is not in the recording."""
    wanted = {"the device's name": "device.name", "versions of the software": "software."}
    if testbed.device_kind == "npu":
        wanted["the profiler's level"] = "profiler.level"
        wanted["its AI Core metrics"] = "profiler.aic_metrics"
    return [words for words, field in wanted.items() if not any(name.startswith(field) for name in testbed.comparable)]


def _device_names(recording: Recording) -> dict[str, str]:
    names = sorted({value for name, value in recording.settings.items() if _is_device(name)})
    return {"device.name": ", ".join(names)} if names else {}


def _is_device(name: str) -> bool:
    return _NUMBERED_DEVICE.fullmatch(name) is not None


def _may_differ(name: str) -> bool:
    """Return whether a setting says nothing of what was recorded: how it was exported, and each device's name by its number."""
    return name == "export_type" or _is_device(name)


def _placed(summary: DeviceSummary) -> bool:
    return summary.timeline.device is not None

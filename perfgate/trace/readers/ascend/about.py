"""Metadata of a profile: its profiler, versions, settings and cores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.files import decode_file, member, plain_text
from perfgate.trace.readers.rank_names import rank_in_name

_MAX_FILES = 64
_MOST_DIGITS = 10  # a rank has fewer
# The settings that decide whether two profiles are comparable, by their names here.
_EXPERIMENTAL = {
    "level": "_profiler_level",
    "aic_metrics": "_aic_metrics",
    "l2_cache": "_l2_cache",
    "export_type": "_export_type",
}
_COMMON = (
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
)
_CORES = {
    "aic_cores": "ai_core_num",
    "aiv_cores": "aiv_num",
    "aic_frequency_mhz": "aic_frequency",
}
_INFO = re.compile(r"profiler_info(?:_(\d{1,9}))?\.json$")


class About(NamedTuple):
    """The recording of a folder without its timelines, its rank, and the groups of
    ranks.
    """

    recording: Recording
    rank: int | None
    groups: dict[str, tuple[int, ...]]


def read_about(folder: Path) -> About:
    """From profiler_info*.json, profiler_metadata.json and the devices' info.json; each
    may be missing.
    """
    suffix: str | None = None
    info = {}
    for path in sorted(folder.glob("profiler_info*.json"))[:_MAX_FILES]:
        match = _INFO.match(path.name)
        if match and path.is_file():
            suffix, info = match[1], decode_file(path, dict[str, Any])
            break
    path = folder / "profiler_metadata.json"
    metadata = {}
    if path.is_file():
        metadata = decode_file(path, dict[str, Any])
    world_size = member(metadata, "distributed_args").get("world_size")
    software = texts(
        {"torch_npu": info.get("torch_npu_version"), "cann": info.get("cann_version")}
    )
    if software.get("cann") == "not known":
        del software["cann"]  # torch_npu found no CANN
    recording = Recording(
        path=folder,
        format="ascend-pytorch",
        timelines=(),
        software=software,
        settings={
            **_settings(info),
            **read_cores(folder),
            **texts({"world_size": world_size}),
        },
        environment=texts(member(metadata, "ENV_VARIABLES")),
    )
    # The rank is a number in 2025-01, a text in CANN 8.3; -1 means none.
    rank = _rank(info.get("rank_id"))
    if rank is None:
        rank = _rank(suffix)
    if rank is None:
        rank = rank_in_name(folder)
    return About(recording, rank, _groups(metadata))


def _rank(value: object) -> int | None:
    text = str(value)
    if not text.isdecimal() or len(text) >= _MOST_DIGITS:
        return None
    return int(text)


def _settings(info: Mapping[str, Any]) -> dict[str, str]:
    config = member(info, "config")
    experimental = member(config, "experimental_config")
    common = member(config, "common_config")
    settings = {name: experimental.get(key) for name, key in _EXPERIMENTAL.items()}
    settings.update((name, common.get(name)) for name in _COMMON)
    settings["aic_metrics"] = (plain_text(settings["aic_metrics"]) or "").replace(
        "ACL_AICORE_", ""
    )
    return texts(settings)


def _groups(metadata: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The ranks of each communicator by its name."""
    groups = {}
    for communicator in member(metadata, "parallel_group_info").values():
        if isinstance(communicator, dict) and isinstance(
            communicator.get("global_ranks"), list
        ):
            ranks = [
                rank for rank in communicator["global_ranks"] if isinstance(rank, int)
            ]
            groups[str(communicator.get("group_name"))] = tuple(ranks)
    return groups


def texts(values: Mapping[str, object]) -> dict[str, str]:
    """The values that are set, as text; the profiler writes unset variables as empty."""
    written = {}
    for name, value in values.items():
        text = plain_text(value)
        if text is not None:
            written[name] = text
    return written


def read_cores(folder: Path) -> dict[str, str]:
    """The number of cube and vector cores and their rated frequency, from a PROF
    folder's device_N/info.json.N.
    """
    paths = [
        *folder.glob("device_*/info.json.*"),
        *folder.glob("PROF_*/device_*/info.json.*"),
    ]
    for path in sorted(paths)[:_MAX_FILES]:
        devices = decode_file(path, dict[str, Any]).get("DeviceInfo")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            return texts({name: devices[0].get(key) for name, key in _CORES.items()})
    return {}

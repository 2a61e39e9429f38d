"""Metadata of a profile: its profiler, versions, settings and cores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfgate.trace.model.recording import Recording
from perfgate.trace.readers.ascend.files import decode_file, member, plain_text

_MAX_FILES = 64
# The settings that decide whether two profiles are comparable, by their names here.
_EXPERIMENTAL = {
    "level": "_profiler_level",
    "aic_metrics": "_aic_metrics",
    "l2_cache": "_l2_cache",
    "export_type": "_export_type",
}
_COMMON = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_CORES = {"aic_cores": "ai_core_num", "aiv_cores": "aiv_num", "aic_frequency_mhz": "aic_frequency"}
_INFO = re.compile(r"profiler_info(?:_(\d{1,9}))?\.json$")


def read_about(folder: Path) -> tuple[Recording, int | None, dict[str, tuple[int, ...]]]:
    """The recording of a folder without its timelines, its rank, and the groups of ranks.

    From profiler_info*.json, profiler_metadata.json and the devices' info.json. Each may be missing; empty values are left out.
    """
    rank: str | None = None
    info: dict[str, Any] = {}
    for path in sorted(folder.glob("profiler_info*.json"))[:_MAX_FILES]:
        match = _INFO.match(path.name)
        if match and path.is_file():
            rank, info = match[1], decode_file(path, dict[str, Any])
            break
    config = member(info, "config")
    settings = {name: member(config, "experimental_config").get(key) for name, key in _EXPERIMENTAL.items()}
    settings.update((name, member(config, "common_config").get(name)) for name in _COMMON)
    settings["aic_metrics"] = (plain_text(settings["aic_metrics"]) or "").replace("ACL_AICORE_", "")
    path = folder / "profiler_metadata.json"
    metadata = decode_file(path, dict[str, Any]) if path.is_file() else {}
    world_size = member(metadata, "distributed_args").get("world_size")
    versions = {"torch_npu": info.get("torch_npu_version"), "cann": info.get("cann_version")}
    # The rank is a number in 2025-01, a text in CANN 8.3; -1 means none.
    ranks = (str(candidate) for candidate in (info.get("rank_id"), rank))
    communicators = [entry for entry in member(metadata, "parallel_group_info").values() if isinstance(entry, dict)]
    groups = {
        str(entry.get("group_name")): tuple(rank for rank in entry["global_ranks"] if isinstance(rank, int))
        for entry in communicators
        if isinstance(entry.get("global_ranks"), list)
    }
    recording = Recording(
        path=folder,
        format="ascend-pytorch",
        timelines=(),
        # torch_npu writes "not known" if it finds no CANN.
        software={name: version for name, version in texts(versions).items() if version != "not known"},
        settings={**texts(settings), **read_cores(folder), **texts({"world_size": world_size})},
        environment=texts(member(metadata, "ENV_VARIABLES")),
    )
    return recording, next((int(text) for text in ranks if text.isdecimal() and len(text) < 10), None), groups


def texts(values: Mapping[str, object]) -> dict[str, str]:
    """The values that are set, as text; the profiler writes unset variables as empty."""
    return {name: text for name, value in values.items() if (text := plain_text(value)) is not None}


def read_cores(folder: Path) -> dict[str, str]:
    """The number of cube and vector cores and their rated frequency, from a PROF folder's device_N/info.json.N."""
    paths = [*folder.glob("device_*/info.json.*"), *folder.glob("PROF_*/device_*/info.json.*")]
    for path in sorted(paths)[:_MAX_FILES]:
        devices = decode_file(path, dict[str, Any]).get("DeviceInfo")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            return texts({name: devices[0].get(key) for name, key in _CORES.items()})
    return {}

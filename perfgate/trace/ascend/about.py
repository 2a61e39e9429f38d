"""What a profile says of itself: who recorded it, with which versions and settings, on which cores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

from perfgate.trace.ascend.files import inner, mapping_file, word

_MOST = 64
# What decides whether two profiles may be compared, by its name here.
_EXPERIMENTAL = {
    "level": "_profiler_level",
    "aic_metrics": "_aic_metrics",
    "l2_cache": "_l2_cache",
    "export_type": "_export_type",
}
_COMMON = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_CORES = {"aic_cores": "ai_core_num", "aiv_cores": "aiv_num", "aic_frequency_mhz": "aic_frequency"}
_INFO = re.compile(r"profiler_info(?:_(\d{1,9}))?\.json$")


class About(NamedTuple):
    """Rank, versions, settings and environment of one folder; empty values are left out."""

    rank: int | None
    software: dict[str, str]
    settings: dict[str, str]
    environment: dict[str, str]


def read_about(folder: Path) -> About:
    rank, info = _info(folder)
    config = inner(info, "config")
    settings = {name: word(inner(config, "experimental_config").get(key)) for name, key in _EXPERIMENTAL.items()}
    settings.update((name, word(inner(config, "common_config").get(name))) for name in _COMMON)
    settings["aic_metrics"] = (settings["aic_metrics"] or "").replace("ACL_AICORE_", "") or None
    settings.update(read_cores(folder))
    metadata_path = folder / "profiler_metadata.json"
    metadata = mapping_file(metadata_path) if metadata_path.is_file() else {}
    world_size = inner(metadata, "distributed_args").get("world_size")
    settings["world_size"] = word(world_size)
    versions = {"torch_npu": word(info.get("torch_npu_version")), "cann": word(info.get("cann_version"))}
    # What torch_npu writes where it finds no CANN.
    software = {name: version for name, version in versions.items() if version != "not known"}
    return About(
        rank=_rank(info.get("rank_id"), rank),
        software=_present(software),
        settings=_present(settings),
        environment=environment_of(inner(metadata, "ENV_VARIABLES")),
    )


def environment_of(variables: dict[str, Any]) -> dict[str, str]:
    """The variables that were set; the profiler writes the others as empty."""
    return _present({name: word(value) for name, value in variables.items()})


def read_cores(folder: Path) -> dict[str, str | None]:
    paths = [*folder.glob("device_*/info.json.*"), *folder.glob("PROF_*/device_*/info.json.*")]
    for path in sorted(paths)[:_MOST]:
        devices = mapping_file(path).get("DeviceInfo")
        if isinstance(devices, list) and devices and isinstance(devices[0], dict):
            return {name: word(devices[0].get(key)) for name, key in _CORES.items()}
    return {}


def _info(folder: Path) -> tuple[str | None, dict[str, Any]]:
    for path in sorted(folder.glob("profiler_info*.json"))[:_MOST]:
        match = _INFO.match(path.name)
        if match and path.is_file():
            return match[1], mapping_file(path)
    return None, {}


def _rank(*candidates: object) -> int | None:
    """The first that is a rank: a number in 2025-01, a text in CANN 8.3; -1 is none."""
    for candidate in candidates:
        text = str(candidate)
        if text.isdecimal() and len(text) < 10:
            return int(text)
    return None


def _present(values: dict[str, str | None]) -> dict[str, str]:
    return {name: value for name, value in values.items() if value is not None}

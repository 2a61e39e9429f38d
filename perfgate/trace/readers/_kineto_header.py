"""What a Kineto trace says beside its events: rank, versions, devices, and what the profiler was told."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

# The file's name has it where the header has not (sampled_rank-0.json.gz, rank3_trace.json).
_RANK_IN_NAME = re.compile(r"(?:^|[^a-z])rank[-_]?(\d{1,9})(?!\d)", re.IGNORECASE)
_SETTINGS = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
_VERSION = "_version"
_MAX_RANK = 1 << 31


class _Distributed(msgspec.Struct):
    rank: int | None = None
    world_size: int | None = None
    backend: str | None = None
    nccl_version: str | None = None


class _Properties(msgspec.Struct):
    id: int | None = None
    name: str | None = None


class KinetoHeader:
    """The members of a trace's object other than its events; one that is not as expected counts as not there."""

    def __init__(self, text: bytes, path: Path) -> None:
        self._path = path
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            members = {}  # a bare list, or a damaged end: the events themselves were read
        self._members = members
        self._distributed = self._member("distributedInfo", _Distributed) or _Distributed()

    @property
    def rank(self) -> int | None:
        """Return the rank of the process, by the header, else by the file's name, None where neither says."""
        if self._distributed.rank is not None and 0 <= self._distributed.rank < _MAX_RANK:
            return self._distributed.rank
        found = _RANK_IN_NAME.search(self._path.name)
        return int(found[1]) if found else None

    @property
    def software(self) -> dict[str, str]:
        """Return versions by name: ``kineto.schema``, ``nccl``, ``cuda_runtime`` and what else ends in ``_version``."""
        found = {"kineto.schema": self._scalar("schemaVersion"), "nccl": self._distributed.nccl_version}
        for name in self._members:
            if name.endswith(_VERSION):
                found[name[: -len(_VERSION)]] = _version(name, self._scalar(name))
        return {name: version for name, version in found.items() if version}

    def settings(self, devices: Collection[int]) -> dict[str, str]:
        """Return what the profiler was told and on what: shapes, stacks, world size, the names of these devices."""
        found = {name: self._scalar(name) for name in _SETTINGS}
        found["backend"] = self._distributed.backend
        if self._distributed.world_size is not None:
            found["world_size"] = str(self._distributed.world_size)
        for properties in self._member("deviceProperties", list[_Properties]) or []:
            if properties.id in devices:
                found[f"device.{properties.id}"] = properties.name
        return {name: value for name, value in found.items() if value}

    def _member(self, name: str, kind: Any) -> Any:
        try:
            return msgspec.json.decode(self._members[name], type=kind)
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _scalar(self, name: str) -> str | None:
        value = self._member(name, int | str)
        return None if value is None else str(value)


def _version(name: str, text: str | None) -> str | None:
    """Return ``12.4`` for CUDA's 12040 (cuda.h: 1000 x major + 10 x minor)."""
    if text is None or not name.startswith("cuda_") or not re.fullmatch(r"\d{4,6}", text):
        return text
    return f"{int(text) // 1000}.{int(text) % 1000 // 10}"

"""The members of a Kineto trace other than its events."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from perfgate.trace.model.patterns import lazy_pattern
from perfgate.trace.readers.rank_names import rank_in_name

_SETTINGS = (
    "record_shapes",
    "profile_memory",
    "with_stack",
    "with_flops",
    "with_modules",
)
_VERSION = "_version"
_DISTRIBUTED = "distributedInfo"
_MAX_RANK = 1 << 31


class _ProcessGroup(msgspec.Struct):
    pg_name: str = ""
    pg_desc: str = ""
    ranks: list[int] = []


# mesh_pp of a DeviceMesh, PIPELINE_MODEL_PARALLEL_GROUP of Megatron.
_PIPELINE = lazy_pattern(r"(?:^|_)pp(?:_|$)|pipeline", re.IGNORECASE)


class _Properties(msgspec.Struct):
    id: int | None = None
    name: str | None = None


class KinetoHeader:
    """The members of a trace's object other than its events; a malformed member counts
    as absent.
    """

    def __init__(self, text: bytes, path: Path) -> None:
        self._path = path
        try:
            members = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            # a bare list, or a damaged end: the events themselves were read
            members = {}
        self._members = members

    @property
    def rank(self) -> int | None:
        """The rank of the process, by the header, else by the file's name, else None."""
        rank: int | None = self._member(_DISTRIBUTED, int, field="rank")
        if rank is not None and 0 <= rank < _MAX_RANK:
            return rank
        return rank_in_name(self._path)

    @property
    def groups(self) -> dict[str, tuple[int, ...]]:
        """The ranks of each process group by name; the pipeline's group is also under
        ``pp``.
        """
        recorded: list[_ProcessGroup] = (
            self._member(_DISTRIBUTED, list[_ProcessGroup], field="pg_config") or []
        )
        groups = {
            group.pg_name: tuple(group.ranks) for group in recorded if group.ranks
        }
        for group in recorded:
            if self.rank in group.ranks and _PIPELINE.search(group.pg_desc):
                groups["pp"] = tuple(group.ranks)
                break
        return groups

    @property
    def software(self) -> dict[str, str]:
        """Versions by name: ``kineto.schema``, ``nccl``, ``cuda_runtime`` and any other
        key that ends in ``_version``.
        """
        nccl: str | None = self._member(_DISTRIBUTED, str, field="nccl_version")
        versions = {"kineto.schema": self._scalar("schemaVersion"), "nccl": nccl}
        for name in self._members:
            if name.endswith(_VERSION):
                version = self._scalar(name)
                if version and name.startswith("cuda_"):
                    version = _cuda_version(version)
                versions[name.removesuffix(_VERSION)] = version
        return {name: version for name, version in versions.items() if version}

    def settings(self, devices: Collection[int]) -> dict[str, str]:
        """The profiler's settings and hardware: shapes, stacks, world size, the names
        of these devices.
        """
        settings = {name: self._scalar(name) for name in _SETTINGS}
        settings["backend"] = self._member(_DISTRIBUTED, str, field="backend")
        world_size = self._member(_DISTRIBUTED, int, field="world_size")
        if world_size is not None:
            settings["world_size"] = str(world_size)
        for properties in self._member("deviceProperties", list[_Properties]) or []:
            if properties.id in devices:
                settings[f"device.{properties.id}"] = properties.name
        return {name: value for name, value in settings.items() if value}

    def _member(self, name: str, kind: Any, *, field: str | None = None) -> Any:
        try:
            text = self._members[name]
            if field is not None:
                text = msgspec.json.decode(text, type=dict[str, msgspec.Raw])[field]
            return msgspec.json.decode(text, type=kind)
        except (KeyError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None

    def _scalar(self, name: str) -> str | None:
        value = self._member(name, int | str)
        return None if value is None else str(value)


def _cuda_version(version: str) -> str:
    """12.4 for CUDA's 12040 (cuda.h: 1000 x major + 10 x minor); another text as it is."""
    if not re.fullmatch(r"\d{4,6}", version):
        return version
    major, minor = divmod(int(version), 1000)
    return f"{major}.{minor // 10}"

"""Ports of HCCL for groups of ranks that run on the same cards at once: each group
listens on different ports.

For a communicator created from a root node, HCCL_IF_BASE_PORT sets the host's ports and
HCCL_NPU_SOCKET_PORT_RANGE the card's, else all listen on 16666 (hiascend.com, CANN 9.0,
"HCCL_NPU_SOCKET_PORT_RANGE": needed if several processes share one NPU, not for
operators that fuse communication with computing on Atlas A2). One created from a rank
table has its ports there ("Rank Table Configuration").
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from pathlib import Path

import msgspec

from perfgate.conductor.sides.program import SideError
from perfgate.document.message import Message
from perfgate.document.run import ErrorDetail

BASE_PORT = "HCCL_IF_BASE_PORT"
HOST_PORTS = "HCCL_HOST_SOCKET_PORT_RANGE"
CARD_PORTS = "HCCL_NPU_SOCKET_PORT_RANGE"
RANK_TABLE = "RANK_TABLE_FILE"
# HCCL takes 16 ports of the host from the first on, unless it is given more; a card's
# port is 16666.
_FIRST_PORT, _CARD_PORT = 60_000, 16_666
_PORTS = 64
_GROUPS = 16
_LAST_PORT = 65_535
_groups = itertools.cycle(range(1, _GROUPS))


def next_group() -> int:
    """A number that no other group has that runs now."""
    return next(_groups)


def port_settings(environment: Mapping[str, str], group: int) -> dict[str, str]:
    """The environment's ports for this group.

    Ranges that the user set are left: they are meant for several processes.
    """
    first = _FIRST_PORT
    configured = environment.get(BASE_PORT, "")
    if configured.isdigit():
        first = int(configured)
    first += group * _PORTS
    settings = {BASE_PORT: str(first)}
    for name in (HOST_PORTS, CARD_PORTS):
        if name not in environment:
            settings[name] = f"{first}-{first + _PORTS - 1}"
    return settings


def rank_table_of_group(
    environment: Mapping[str, str], group: int, folder: Path
) -> dict[str, str]:
    """The rank table of the environment with ports of this group, a file in ``folder``;
    empty without one.

    Raises SideError for a table that cannot be read or has no room for the ports.
    """
    path = environment.get(RANK_TABLE)
    if not path:
        return {}
    try:
        table = msgspec.json.decode(Path(path).read_bytes())
        for server in table["server_list"]:
            for device in server["device"]:
                device.setdefault("device_port", str(_CARD_PORT))
                for name in ("device_port", "backup_device_port", "host_port"):
                    if name in device:
                        device[name] = str(_port_of_group(int(device[name]), group))
    except (
        OSError,
        msgspec.DecodeError,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        message = Message(
            "job.rank-table", {"path": path, "why": str(error) or type(error).__name__}
        )
        raise SideError(ErrorDetail(kind="protocol", message=message)) from error
    copy = folder / "rank-table.json"
    copy.write_bytes(msgspec.json.encode(table))
    return {RANK_TABLE: str(copy)}


def _port_of_group(port: int, group: int) -> int:
    moved = port + group * _PORTS
    if not 0 < moved <= _LAST_PORT:
        raise ValueError(f"port {port} leaves no room for {_GROUPS * _PORTS} more")
    return moved

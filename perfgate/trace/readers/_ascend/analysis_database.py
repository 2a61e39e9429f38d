"""analysis.db: steps and collectives as torch_npu's own analysis has them, in place of the text files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from perfgate.trace.events import MAX_NS
from perfgate.trace.readers._ascend.database import Database, opened
from perfgate.trace.recording import Collective, LinkUse, TabledStep

_MEGABYTE, _GIGABYTE = 1e6, 1e9
_MICROSECOND, _MILLISECOND = 1e3, 1e6
_STEP = re.compile(r"(?:step)?(\d{1,18})$")


def read_database_steps(path: Path) -> Mapping[int | None, tuple[TabledStep, ...]]:
    """Return the steps of StepTraceTime by device.

    Huawei's description says milliseconds; recorded are microseconds: 8903.431 where the kernels of the same run take
    8903431 ns (sample msinsight-910B-alexnet-2501).
    """
    found: dict[int | None, list[TabledStep]] = {}
    columns = ("deviceId", "step", "computing", "communication", "communication_not_overlapped", "free", "preparing")
    with opened(path) as database:
        for device, step, *times in database.rows("StepTraceTime", columns):
            computing, communication, exposed, free, preparing = (
                _nanoseconds(database, time, _MICROSECOND) for time in times
            )
            found.setdefault(database.whole(device), []).append(
                TabledStep(
                    number=_step(step),
                    computing_ns=computing,
                    communication_ns=communication,
                    exposed_communication_ns=exposed,
                    free_ns=free,
                    preparing_ns=preparing,
                )
            )
    return {device: tuple(steps) for device, steps in found.items()}


def read_database_collectives(path: Path) -> tuple[Collective, ...] | None:
    """Return the operations of CommAnalyzerTime with the links of CommAnalyzerBandwidth; None where neither is there."""
    with opened(path) as database:
        if not database.has("CommAnalyzerTime"):
            return None
        links = _links(database)
        columns = (
            "hccl_op_name", "group_name", "step", "type", "start_timestamp", "elapse_time", "transit_time", "wait_time",
            "synchronization_time", "idle_time",
        )  # fmt: skip
        found = []
        for name, group, step, kind, start, *times in database.rows("CommAnalyzerTime", columns):
            if str(name) == "Total Op Info":
                continue
            elapsed, transit, wait, synchronization, idle = (
                _nanoseconds(database, time, _MILLISECOND) for time in times
            )
            found.append(
                Collective(
                    name=str(name),
                    kind=_kind(kind),
                    group=None if group is None else str(group),
                    step=_step(step),
                    # A float of the database itself: some 250 ns off.
                    start_ns=_nanoseconds(database, start, _MICROSECOND),
                    elapsed_ns=elapsed,
                    transit_ns=transit,
                    wait_ns=wait,
                    synchronization_ns=synchronization,
                    idle_ns=idle,
                    links=tuple(links.get((str(name), str(group), str(step)), {}).values()),
                )
            )
        return tuple(found)


def _links(database: Database) -> dict[tuple[str, str, str], dict[str, LinkUse]]:
    """Return the links of each operation; a row for every size of package repeats the sums of its link."""
    found: dict[tuple[str, str, str], dict[str, LinkUse]] = {}
    columns = ("hccl_op_name", "group_name", "step", "transport_type", "transit_size", "transit_time", "bandwidth")
    for name, group, step, link, size, time, bandwidth in database.rows("CommAnalyzerBandwidth", columns):
        megabytes, transit = database.number(size) or 0.0, _nanoseconds(database, time, _MILLISECOND) or 0
        speed = database.number(bandwidth)
        if megabytes or transit:
            found.setdefault((str(name), str(group), str(step)), {})[str(link)] = LinkUse(
                link=str(link),
                size_bytes=round(megabytes * _MEGABYTE, 3),
                transit_ns=transit,
                bandwidth=speed * _GIGABYTE if speed else None,
            )
    return found


def _nanoseconds(database: Database, value: object, unit: float) -> int | None:
    number = database.number(value)
    if number is None:
        return None
    if not abs(number) * unit < MAX_NS:
        raise database.wrong(f"{number!r} is no time; analyse the profile again")
    return round(number * unit)


def _step(value: object) -> int | None:
    match = _STEP.match(str(value))
    return int(match[1]) if match else None


def _kind(value: object) -> Literal["collective", "p2p"]:
    return "p2p" if value == "p2p" else "collective"

"""Tables of totals: types of kernels, calls of the host's libraries, framework operators, nodes of the device's CPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from perfgate.errors import DocumentError
from perfgate.trace.readers._ascend.cells import MAX_ROWS, Row, rows_of
from perfgate.trace.recording import CallTotal, OperatorTime, TypeTotal

_PERCENT = 100.0


def read_types(path: Path) -> Mapping[int | None, tuple[TypeTotal, ...]]:
    """Return op_statistic.csv by device; collectives are not in it."""
    found: dict[int | None, list[TypeTotal]] = {}
    for row in rows_of(path, most=MAX_ROWS):
        kind, total, count = row.text("type"), row.lasting("total time(us)"), row.whole("count")
        if kind is None or total is None or count is None:
            continue
        share = row.number("ratio(%)")
        found.setdefault(row.whole("device_id"), []).append(
            TypeTotal(
                type=kind,
                core=row.text("core type"),
                count=count,
                total_ns=total,
                shortest_ns=row.lasting("min time(us)"),
                longest_ns=row.lasting("max time(us)"),
                share=None if share is None else share / _PERCENT,
            )
        )
    return {device: tuple(totals) for device, totals in found.items()}


def read_calls(path: Path) -> tuple[CallTotal, ...]:
    """Return api_statistic.csv; its Device_id is the word host."""
    return tuple(total for row in rows_of(path, most=MAX_ROWS) if (total := _call(row)) is not None)


def _call(row: Row) -> CallTotal | None:
    name, total, count = row.text("api name"), row.lasting("time(us)"), row.whole("count")
    if name is None or total is None or count is None:
        return None
    return CallTotal(
        level=row.text("level") or "",
        name=name,
        count=count,
        total_ns=total,
        shortest_ns=row.lasting("min(us)"),
        longest_ns=row.lasting("max(us)"),
    )


def read_cpu_nodes(path: Path) -> Mapping[int | None, tuple[CallTotal, ...]]:
    """Return data_preprocess.csv, added up by node and by device: what the device's own CPU ran."""
    found: dict[int | None, dict[str, CallTotal]] = {}
    for row in rows_of(path):
        name, time = row.text("node"), row.lasting("total_time(us)")
        if name is None or time is None:
            continue
        totals = found.setdefault(row.whole("device_id"), {})
        known = totals.get(name)
        totals[name] = CallTotal(
            level="aicpu",
            name=name,
            count=known.count + 1 if known else 1,
            total_ns=known.total_ns + time if known else time,
            shortest_ns=min(known.shortest_ns or 0, time) if known else time,
            longest_ns=max(known.longest_ns or 0, time) if known else time,
        )
        _bound(totals, path)
    return {device: tuple(totals.values()) for device, totals in found.items()}


def read_operators(path: Path) -> tuple[OperatorTime, ...]:
    """Return operator_details.csv, added up by operator; it has a row a call, and call stacks over many lines."""
    totals: dict[str, list[int]] = {}
    for row in rows_of(path):
        name = row.text("name")
        if name is None:
            continue
        sums = totals.setdefault(name, [0, 0, 0, 0, 0])
        sums[0] += 1
        for position, column in enumerate(_OPERATOR_TIMES, start=1):
            # Times of nested operators are differences, so that older builds write a self time a little below zero.
            sums[position] += row.time(column) or 0
        _bound(totals, path)
    return tuple(OperatorTime(name, *sums) for name, sums in totals.items())


_OPERATOR_TIMES = (
    "host self duration(us)", "host total duration(us)", "device self duration(us)", "device total duration(us)",
)  # fmt: skip


def _bound(totals: Mapping[str, object], path: Path) -> None:
    if len(totals) > MAX_ROWS:
        raise DocumentError(f"{path}: more than {MAX_ROWS} names; profile fewer steps")

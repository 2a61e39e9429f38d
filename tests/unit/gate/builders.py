"""Replicates with known levels: every call of a process takes exactly the seconds asked for, or jitters around them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from perfgate.document.run import CorrectnessResult, CounterSet, CounterSite, OpCount, RunDocument
from perfgate.document.samples import (
    Arm,
    BlockColumns,
    ConductorColumns,
    PackedArray,
    PackedTimes,
    Replicate,
    WorkerColumns,
    WorkerState,
    pack,
)
from tests.fakes.documents import make_run
from tests.fakes.records import changed

SHAPE = "long"
WORKLOAD = "encoder"


def columns(
    call: float, *, gap: float = 0.0, cpu: float | None = None, blocks: int = 4, calls: int = 20
) -> BlockColumns:
    """Return blocks of equal calls of ``call`` seconds with ``gap`` seconds after each."""
    wall_ns, cpu_ns = round(call * 1e9), round((call if cpu is None else cpu) * 1e9)
    span = calls * (wall_ns + round(gap * 1e9))
    starts = [block * 2 * span for block in range(blocks)]
    return BlockColumns(
        quad=[block // 2 for block in range(blocks)],
        sequence=list(range(blocks)),
        calls=[calls] * blocks,
        worker=WorkerColumns(
            start_ns=starts,
            end_ns=[start + span for start in starts],
            involuntary_switches=[0] * blocks,
            minor_faults=[0] * blocks,
        ),
        times=PackedTimes(wall=_equal(blocks * calls, wall_ns), cpu=_equal(blocks * calls, cpu_ns)),
        conductor=seen_of(blocks, round(span * (calls + 1) / calls)),
    )


@cache
def _equal(count: int, value: int) -> PackedArray:
    return pack(np.full(count, value))


def seen_of(blocks: int, seen_ns: int) -> ConductorColumns:
    """Return what the conductor sees of blocks of a worker that works in its own turn alone."""
    nothing = [0] * blocks
    return ConductorColumns(seen_ns=[seen_ns] * blocks, used_ns=nothing, out_of_turn_ns=nothing, waited_ns=nothing)


def replicate(
    pair: int, arm: Arm, member: Literal["first", "second"], call: float, *, shape: str = SHAPE, **fields: Any
) -> Replicate:
    """Return one process whose calls take ``call`` seconds."""
    return Replicate(
        pair=pair,
        arm=arm,
        member=member,
        workload=WORKLOAD,
        worker=WorkerState(layout_seed=pair + 1, cpus=[0], start_up=0.1, steady=True, settings={"stopped": "0"}),
        shapes={shape: columns(call, **fields)},
    )


def pairs_of(
    ratios: Sequence[float],
    *,
    aa_ratios: Sequence[float] = (1.0,) * 7,
    call: float = 0.01,
    gaps: tuple[float, float] = (0.0, 0.0),
    shape: str = SHAPE,
    **head_fields: Any,
) -> tuple[list[Replicate], list[Replicate]]:
    """Return the processes of both documents; those of base against base come last."""
    firsts = [replicate(pair, "ab", "first", call, shape=shape, gap=gaps[0]) for pair in range(len(ratios))]
    twins = [
        replicate(len(ratios) + pair, "aa", member, call * (ratio if member == "second" else 1.0), shape=shape)
        for pair, ratio in enumerate(aa_ratios)
        for member in ("first", "second")
    ]
    heads = [
        replicate(pair, "ab", "second", call * ratio, shape=shape, gap=gaps[1], **head_fields)
        for pair, ratio in enumerate(ratios)
    ]
    return [*firsts, *twins], heads


def stretches_of(
    *,
    call: float = 0.001,
    ratio: float = 1.0,
    stalls: tuple[tuple[int, float], tuple[int, float]] = ((0, 0.0), (0, 0.0)),
    starts: int = 2,
    calls: int = 100,
    shape: str = SHAPE,
) -> tuple[list[Replicate], list[Replicate]]:
    """Return the members of long stretches of 8 quads a start; ``stalls`` of base and head: in every so many calls, seconds."""
    members: tuple[list[Replicate], list[Replicate]] = ([], [])
    for start in range(starts):
        for side, (every, longer) in enumerate(stalls):
            wall = np.full(16 * calls, call * (ratio if side else 1.0))
            if every:
                wall[every - 1 :: every] += longer
            member: Literal["first", "second"] = "second" if side else "first"
            one = replicate(start, "stretch", member, call, blocks=16, calls=calls)
            members[side].append(
                msgspec.structs.replace(one, shapes={shape: _turns(wall, calls, first_quad=8 * start)})
            )
    return members


def _turns(wall: npt.NDArray[np.float64], calls: int, *, first_quad: int) -> BlockColumns:
    """Return turns of so many calls, two in each quad; the call that is not recorded takes as long as the mean."""
    wall_ns = np.rint(wall * 1e9).astype(np.int64)
    spans = wall_ns.reshape(-1, calls).sum(axis=1)
    made = columns(1.0, blocks=spans.size, calls=calls)
    starts = np.concatenate([[0], np.cumsum(2 * spans)[:-1]])
    return msgspec.structs.replace(
        made,
        quad=[first_quad + block // 2 for block in range(spans.size)],
        worker=msgspec.structs.replace(
            made.worker,
            start_ns=[int(start) for start in starts],
            end_ns=[int(start + span) for start, span in zip(starts, spans)],
        ),
        times=msgspec.structs.replace(made.times, wall=pack(wall_ns), cpu=pack(wall_ns)),
        conductor=msgspec.structs.replace(made.conductor, seen_ns=[int(span * (calls + 1) / calls) for span in spans]),
    )


def sides(
    ratios: Sequence[float],
    *,
    aa_ratios: Sequence[float] = (1.0,) * 7,
    call: float = 0.01,
    gaps: tuple[float, float] = (0.0, 0.0),
    **head_fields: Any,
) -> tuple[RunDocument, RunDocument]:
    """Return base and head of one session: pair k's head takes ``ratios[k]`` times as long as its base."""
    firsts, heads = pairs_of(ratios, aa_ratios=aa_ratios, call=call, gaps=gaps, **head_fields)
    base, head = make_run("base"), make_run("head")
    workloads = [msgspec.structs.replace(head.workloads[0], shapes=[SHAPE])]
    checklist = {
        "workloads": workloads,
        "counters": [counters({"aten::mm": 1})],
        "correctness": [
            CorrectnessResult(workload=WORKLOAD, shape=SHAPE, status="not_checked", signature="float32[4]")
        ],
        "operators": [],
    }
    base = changed(base, replicates=firsts, **checklist)
    head = changed(head, replicates=heads, **checklist)
    return base, head


# What each run of aten::clone adds to the counters of copies.
COPIED = {"counters.copies": 1, "counters.copy_bytes": 1000}


def counters(
    ops: dict[str, int],
    *,
    ranges: dict[str, tuple[int, int]] | None = None,
    lines: dict[str, str] | None = None,
) -> CounterSet:
    """Return a counter set of these ops; ``aten::clone`` copies 1,000 bytes each time. What has a range is unstable."""
    clones = ops.get("aten::clone", 0)
    return CounterSet(
        workload=WORKLOAD,
        shape=SHAPE,
        repeats=3,
        values={
            "counters.framework_ops": sum(ops.values()),
            "counters.copies": clones,
            "counters.copy_bytes": clones * 1000,
        },
        ops=[OpCount(op=op, count=count, line=(lines or {}).get(op)) for op, count in ops.items()],
        sites=[
            CounterSite(
                metric=metric,
                name=op,
                count=count * each,
                line=(lines or {}).get(op),
                between=(ranges or {}).get(metric) if len(ops) == 1 else None,
            )
            for op, count in ops.items()
            for metric, each in {"counters.framework_ops": 1, **(COPIED if op == "aten::clone" else {})}.items()
        ],
        unstable=list(ranges or ()),
        ranges=ranges or {},
    )

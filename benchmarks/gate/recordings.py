"""Recorded call times of base and head for the yardstick: what they are is told by the
README.md beside the recordings.

A pair is two processes that took turns; a run is one of them, a list of blocks in time
order. Nothing of a recording is stored in this repository.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Run = list[Floats]
Columns = dict[str, npt.NDArray[Any]]

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "gate-noise"
SETS = ("aa-quiet", "aa-disturbed", "live")
# The recordings' README: passes 0 to 3 ran on a busy machine, passes 4 and 5 on one
# that was nearly idle.
FIRST_CALM_PASS = 4
MODES = {0: "none", 1: "spin", 2: "tail", 3: "gap", 4: "work"}
TAIL_FROM = 0.98
UNCONTENDED = (
    0.05  # the quantile of call times that is taken for a call without neighbours
)

_NAME = re.compile(
    r"(?P<set>aa-quiet|aa-disturbed|inj-quiet|spawn-quiet|layout-(?:same|random)-(?:pinned|unpinned)|live(?:-load\d+)?)"
    r"-(?P<workload>\w+)-pass(?P<number>\d+)\.npz"
)


class Block(NamedTuple):
    """Calls of one side in a row: wall and CPU seconds of each, and the seconds of the
    whole block.
    """

    quad: int
    wall: Floats
    cpu: Floats
    span: float


class Pair(NamedTuple):
    """Two processes that took turns: the blocks of each, and the number of the pass, or
    of the server, they were recorded in.

    Of a live recording ``wall_seconds`` is what the pair took with its start, and
    ``variant`` which head it is of.
    """

    number: int
    sides: tuple[tuple[Block, ...], tuple[Block, ...]]
    wall_seconds: float | None = None
    variant: int = 0

    @property
    def seconds(self) -> float:
        """Return what measuring both sides took."""
        if self.wall_seconds is not None:
            return self.wall_seconds
        return sum(block.span for side in self.sides for block in side)


class Cell(NamedTuple):
    """All pairs of one workload under one condition."""

    workload: str
    condition: str
    pairs: tuple[Pair, ...]

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.condition}"

    @property
    def live(self) -> bool:
        """Return whether the pairs were measured as the gate does, by server, another
        layout before every quad.
        """
        return self.condition.startswith("live")


class Injection(NamedTuple):
    """Pairs whose head carries a known slowdown; ``share`` is its mean true share of an
    uncontended call.
    """

    workload: str
    kind: str
    level: float
    share: float
    pairs: tuple[Pair, ...]

    @property
    def name(self) -> str:
        return f"{self.workload}/{self.kind} {self.level:g}"


def files(folder: Path, sets: Sequence[str]) -> list[tuple[re.Match[str], Path]]:
    """Return the recordings of the sets with their parsed names; raise SystemExit where
    there are none.
    """
    found = [
        (match, path)
        for path in sorted(folder.glob("*.npz"))
        if (match := _NAME.fullmatch(path.name))
    ]
    chosen = [(match, path) for match, path in found if match["set"] in sets]
    if not chosen:
        known = sorted({match["set"] for match, _ in found})
        raise SystemExit(
            f"no recordings of {', '.join(sets)} in {folder}"
            + (f" (it has {', '.join(known)})" if known else "")
            + "; name the folder of the recorded .npz files with --recordings"
        )
    return chosen


def read_cells(folder: Path, sets: Sequence[str] = SETS) -> list[Cell]:
    """Return the cells of the A/A sets, the passes of one condition pooled, sorted by
    name.
    """
    pooled: dict[tuple[str, str], list[Pair]] = {}
    for match, path in files(folder, sets):
        number = int(match["number"])
        condition = match["set"].removeprefix("aa-")
        if condition == "quiet":
            condition = "calm" if number >= FIRST_CALM_PASS else "busy"
        pooled.setdefault((match["workload"], condition), []).extend(
            read_pairs(path, number)
        )
    return [
        Cell(workload, condition, tuple(pairs))
        for (workload, condition), pairs in sorted(pooled.items())
    ]


def read_pairs(path: Path, number: int) -> list[Pair]:
    """Return the pairs of one file, all modes of injection together."""
    columns = _columns(path)
    rows_by_pair = _rows_by(columns["b_pair"])
    if "variant" not in columns:
        return [Pair(number, _sides(columns, rows)) for rows in rows_by_pair]
    return [
        Pair(number, _sides(columns, rows), float(seconds), int(variant))
        for rows, seconds, variant in zip(
            rows_by_pair, columns["pair_seconds"], columns["variant"]
        )
    ]


def read_injections(folder: Path) -> list[Injection]:
    """Return every injected kind and level of every workload, each with the base blocks
    of the same quads.
    """
    pooled: dict[tuple[str, str, float], list[tuple[float, Pair]]] = {}
    for match, path in files(folder, ["inj-quiet"]):
        columns = _columns(path)
        for rows in _rows_by(columns["b_pair"]):
            for mode, level, share, pair in _injected(
                columns, rows, int(match["number"])
            ):
                pooled.setdefault((match["workload"], MODES[mode], level), []).append(
                    (share, pair)
                )
    return [
        Injection(
            workload,
            kind,
            level,
            float(np.mean([share for share, _ in found])),
            tuple(p for _, p in found),
        )
        for (workload, kind, level), found in sorted(pooled.items())
    ]


def runs_of(pair: Pair, clock: str) -> tuple[Run, Run]:
    """Return the runs of both sides by one clock: ``wall``, ``cpu`` or ``gap``.

    ``gap`` is the time between calls, seen on top of an uncontended call, which is the
    same for both sides: one value a block. A change of it is then a share of a call, as
    the gate counts it.
    """
    if clock == "gap":
        calls = np.concatenate([block.wall for side in pair.sides for block in side])
        level = float(np.quantile(calls, UNCONTENDED))
        first, second = (
            [
                np.array([level + (block.span - block.wall.sum()) / block.wall.size])
                for block in side
            ]
            for side in pair.sides
        )
    else:
        first, second = (
            [block.wall if clock == "wall" else block.cpu for block in side]
            for side in pair.sides
        )
    return first, second


def scaled(run: Run, share: float) -> Run:
    """Return the run as if every call took 1 + share of its time."""
    return [block * (1 + share) for block in run]


def slow_tail(run: Run, share: float) -> Run:
    """Return the run with only its slowest 2 % of calls slowed: P99 rises by the share,
    P50 stays.
    """
    limit = np.quantile(np.concatenate(run), TAIL_FROM)
    return [np.where(block >= limit, block * (1 + share), block) for block in run]


def _columns(path: Path) -> Columns:
    """Return all columns of a file: asked for one by one, each would be unpacked every
    time.
    """
    with np.load(path) as file:
        return {name: file[name] for name in file.files}


def _rows_by(keys: npt.NDArray[np.int32]) -> list[npt.NDArray[np.int64]]:
    return [np.nonzero(keys == key)[0] for key in np.unique(keys)]


def _sides(
    columns: Columns, rows: npt.NDArray[np.int64]
) -> tuple[tuple[Block, ...], tuple[Block, ...]]:
    ends = np.cumsum(columns["b_n"])
    wall, cpu = columns["wall"] / 1e9, columns["cpu"] / 1e9
    spans = (columns["b_t1"] - columns["b_t0"]) / 1e9
    sides: tuple[list[Block], list[Block]] = ([], [])
    for row in rows:
        calls = slice(ends[row] - columns["b_n"][row], ends[row])
        sides[columns["b_side"][row]].append(
            Block(
                int(columns["b_quad"][row]), wall[calls], cpu[calls], float(spans[row])
            )
        )
    return tuple(sides[0]), tuple(sides[1])


def _injected(
    columns: Columns, rows: npt.NDArray[np.int64], number: int
) -> Iterable[tuple[int, float, float, Pair]]:
    """Yield mode, level, true share and the pair of each kind of injection in one pair
    of processes.
    """
    base_sides = _sides(columns, rows)[0]
    uncontended = float(
        np.quantile(np.concatenate([block.wall for block in base_sides]), UNCONTENDED)
    )
    head = rows[columns["b_side"][rows] == 1]
    kinds = np.stack(
        [columns["b_mode"][head], np.round(columns["b_level"][head] * 1e4)], axis=1
    )
    for mode, level in np.unique(kinds, axis=0):
        mine = head[(kinds == [mode, level]).all(axis=1)]
        quads = np.unique(columns["b_quad"][mine])
        share = float(columns["b_inj_ns"][mine].mean()) / 1e9 / uncontended
        # A tail call waits one median more with probability ``level``; its share is the
        # mean over all calls.
        share *= level / 1e4 if MODES[int(mode)] == "tail" else 1.0
        yield (
            int(mode),
            float(level / 1e4),
            share,
            Pair(
                number, _sides(columns, rows[np.isin(columns["b_quad"][rows], quads)])
            ),
        )

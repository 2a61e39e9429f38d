"""Long stretches in which both sides took turns, quad by quad: the mean of a call, and
its rare slow calls.

The mean covers all calls, in seconds that their blocks were awake, as the conductor saw
them. A stall is a call longer than three times the median of its side and quad, timed
without its waits for a CPU. Times of a device contain the host's waits.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from perfgate.document.comparison import Clock
from perfgate.document.samples import BlockColumns, unpack
from perfgate.document.shape import ShapePlace
from perfgate.judging.gate.evidence.blocks import (
    WAITED,
    awake_by_block,
    clean_pair,
    sum_by_block,
    waited_share,
)
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.pairs import Pair
from perfgate.judging.gate.evidence.quads import is_stall
from perfgate.judging.gate.evidence.values import rounded
from perfgate.stats.arrays import Flags, Floats
from perfgate.stats.summary import median

# In families.toml.
FAMILY = "stretch"
# The numbers of quads after which the gate may decide.
LOOKS = (16, 32, 64)
# The difference of the means of two processes of equal code, as the sd of a logarithm,
# that all quads of a start share.
START_LUCK = 0.015
# The share of samples from which a line is named as the line of the slow calls.
LEAST_OF_SAMPLES = 0.3


class Stalls(NamedTuple):
    """The stalls of a side: the seconds by which each exceeds the median call, out of
    ``calls``.

    ``computing`` is the share of this excess that their threads spent computing; None
    without a CPU clock, or without a stall.
    """

    excesses: Floats
    calls: int
    computing: float | None

    @property
    def stalled(self) -> int:
        return int(self.excesses.size)

    @property
    def share(self) -> float:
        return self.stalled / self.calls

    @property
    def typical(self) -> float:
        """The excess above which half of the time in stalls lies: many short stalls do
        not hide a few long stalls.
        """
        if not self.excesses.size:
            return 0.0
        ordered = np.sort(self.excesses)
        sums = np.cumsum(ordered)
        return float(ordered[np.searchsorted(sums, sums[-1] / 2)])

    def share_above(self, seconds: float) -> float:
        return int(np.count_nonzero(self.excesses >= seconds)) / self.calls


class SideQuad(NamedTuple):
    """The calls of a side in a quad: their mean seconds, and each without its waits, by
    the wall and by the thread.
    """

    mean: float
    wall: Floats
    cpu: Floats | None = None

    @property
    def stalled(self) -> Flags:
        return is_stall(self.wall)


class StretchSide(NamedTuple):
    """A side of the stretches of a shape, quad by quad: the mean seconds of a call, the
    share and seconds of stalls.
    """

    means: Floats
    stall_shares: Floats
    stall_seconds: Floats
    stalls: Stalls

    @classmethod
    def of(cls, quads: Sequence[SideQuad]) -> StretchSide:
        means = []
        shares = []
        seconds = []
        excesses = []
        computed = []
        for quad in quads:
            stalled = quad.stalled
            excess = quad.wall[stalled] - median(quad.wall)
            means.append(quad.mean)
            shares.append(float(stalled.mean()))
            seconds.append(float(excess.sum() / quad.wall.size))
            excesses.append(excess)
            if quad.cpu is not None:
                computed.append(quad.cpu[stalled] - median(quad.cpu))
        calls = sum(quad.wall.size for quad in quads)
        stalls = Stalls(
            np.concatenate(excesses), calls, _computing_share(excesses, computed)
        )
        return cls(np.array(means), np.array(shares), np.array(seconds), stalls)


def _computing_share(
    excesses: Sequence[Floats], computed: Sequence[Floats]
) -> float | None:
    total = np.concatenate(excesses)
    if not computed or not total.size:
        return None
    share = float(np.concatenate(computed).sum() / total.sum())
    return rounded(min(1.0, max(0.0, share)))


class StretchSample(NamedTuple):
    """The stretches of a shape, of ``starts`` with luck of an sd of ``start_luck``,
    timed by ``clock``.

    ``line`` is the line of most slow calls of the head, None if it is not known. If the
    host ``waited`` for CPUs, times of the device contain these waits.
    """

    base: StretchSide
    head: StretchSide
    starts: int
    line: str | None = None
    start_luck: float = START_LUCK
    clock: Clock = "awake"
    waited: bool = False

    @property
    def quads(self) -> int:
        return int(self.base.means.size)

    @property
    def effect(self) -> float:
        """Head's mean of all calls over base's, minus 1."""
        return float(self.head.means.sum() / self.base.means.sum()) - 1


# --- documents to quads


def stretches_of(evidence: Evidence, place: ShapePlace) -> StretchSample | None:
    """The undisturbed quads of a shape, of sides that took turns; None without any."""
    of_base: list[SideQuad] = []
    of_head = []
    starts = set()
    is_resident = False
    used = []
    pairs = evidence.stretches.get(place.workload, [])
    for first, second in pairs:
        if place.shape not in first.shapes or place.shape not in second.shapes:
            continue
        blocks = first.shapes[place.shape], second.shapes[place.shape]
        if not are_in_turns(*blocks):
            continue
        measured = len(of_base)
        for base, head in _quads_of(*blocks):
            of_base.append(base)
            of_head.append(head)
        if len(of_base) == measured:
            continue
        used.append(blocks)
        starts.add(first.pair if first.start is None else first.start)
        is_resident = first.start is not None
    if not of_base:
        return None
    on_device = place in evidence.on_device
    # Whether the host's processes waited for CPUs, on both sides: one that waits alone
    # keeps its CPUs busy itself.
    waited = min(waited_share(side) or 0.0 for side in zip(*used)) >= WAITED
    return StretchSample(
        StretchSide.of(of_base),
        StretchSide.of(of_head),
        len(starts),
        line=_line_of_stalls(pairs, place.shape),
        start_luck=evidence.start_luck(place.workload) if is_resident else START_LUCK,
        clock="device" if on_device else "awake",
        waited=on_device and waited,
    )


def are_in_turns(base: BlockColumns, head: BlockColumns) -> bool:
    """Whether the blocks of both sides alternated: those of whole processes follow each
    other.

    The test of stretches by signs needs disturbances that may as well have hit the
    other side.
    """
    return max(base.sequence) > min(head.sequence) and max(head.sequence) > min(
        base.sequence
    )


def _line_of_stalls(pairs: Iterable[Pair], shape: str) -> str | None:
    """The line at which most samples of head's slow calls lie; None if no line has
    enough of them.
    """
    samples: Counter[str] = Counter()
    for _, head in pairs:
        samples.update(head.stalled_at.get(shape, {}))
    if not samples:
        return None
    line, most = samples.most_common(1)[0]
    if most < LEAST_OF_SAMPLES * samples.total():
        return None
    return line


def _quads_of(
    base: BlockColumns, head: BlockColumns
) -> Iterator[tuple[SideQuad, SideQuad]]:
    """Yield the quads with known means on both sides."""
    undisturbed, _ = clean_pair(base, head)
    numbers = sorted(undisturbed or ())
    for of_base, of_head in zip(_side_quads(base, numbers), _side_quads(head, numbers)):
        if math.isfinite(of_base.mean) and math.isfinite(of_head.mean):
            yield of_base, of_head


def _side_quads(columns: BlockColumns, numbers: Iterable[int]) -> Iterator[SideQuad]:
    """Yield these quads of a side in one stretch.

    On an accelerator all times are the device's.
    """
    calls = np.asarray(columns.calls)
    quads = np.asarray(columns.quad)
    quad_of_call = np.repeat(quads, calls)
    wall = cpu = unpack(columns.times.cpu) / 1e9
    on_device = columns.times.cpu_source == "device"
    # Of a call, block by block. The wall of an accelerator's call varies with
    # everything that its host does.
    seconds = np.full(calls.size, math.nan)
    if on_device:
        seconds = sum_by_block(wall, calls) / calls
    else:
        wall = unpack(columns.times.wall) / 1e9
        if columns.conductor.seen_ns:
            seconds = awake_by_block(columns) / (calls + 1)
    for number in numbers:
        own = quad_of_call == number
        mean = float(seconds[quads == number].mean())
        yield SideQuad(mean, wall[own], None if on_device else cpu[own])

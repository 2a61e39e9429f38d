"""The mean of a call and its rare slow calls, from long stretches in which both sides took turns.

The mean is that of all calls, in seconds that their blocks were awake, as the conductor saw them. A stall is a call longer than
three times the median of its side and quad (``tails``), timed without its waits for a CPU. Both are compared quad by quad: a
quad holds as many calls of either side, in an order drawn by lot, so that for equal code each difference is as likely to be
its negative, however heavy the tail of the noise (``stats/sign_flips``).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from perfgate.catalogue.lookup import FAMILIES, metric
from perfgate.catalogue.names import LATENCY_STALLS, MEAN
from perfgate.document.comparison import Comparison, Paired
from perfgate.document.decision import Policy
from perfgate.document.message import Message, MessageValue
from perfgate.document.samples import BlockColumns, unpack
from perfgate.judging.gate.compare.alpha import AlphaShares
from perfgate.judging.gate.compare.rule import RERUN_SHARE, SHAPE
from perfgate.judging.gate.evidence.index import Evidence
from perfgate.judging.gate.evidence.pairs import awake_by_block
from perfgate.judging.gate.evidence.place import ShapePlace
from perfgate.judging.gate.evidence.stalls import HALF, is_stall
from perfgate.judging.gate.evidence.tolerance import margins_for_unchanged, tolerance
from perfgate.judging.gate.evidence.undisturbed import clean_pair
from perfgate.judging.gate.evidence.values import relative_change, rounded
from perfgate.stats.error_control import holm, nominal_level, sequential_p
from perfgate.stats.sign_flips import largest_not_excluded, p_positive
from perfgate.stats.summary import median

FAMILY = FAMILIES["stretch"]
# The numbers of quads after which the gate may decide.
LOOKS = (16, 32, 64)
# The difference of the means of two processes of equal code, as the sd of a logarithm, that all quads of a start share.
START_LUCK = 0.015
# A mean is worse if it is shown to be so by more than this many standard errors of that luck: it exceeds them in 0.016 %.
BEYOND_LUCK = 3.6
# A class of calls may just exceed the limit of a stall, or just miss it: stalls that move the mean by less are no regression.
STALLS_MATTER = 0.01
# More stretches are measured if the mean, or the stalls, look worse with so much evidence.
LEANING_SHARE, LEANING_P, LEANING_STALLS_P = 0.5, 0.25, 0.1
# Of what stalls last longer: from this share on they compute, below it they wait.
COMPUTES_SHARE = 0.5
# The share of samples from which a line is named as that of the slow calls.
LEAST_OF_SAMPLES = 0.3
# A slowdown that an interval does not bound is shown as at most this.
_MOST = 10.0

Floats = npt.NDArray[np.float64]


class Stalls(NamedTuple):
    """The stalls of a side: the seconds by which each exceeds the median call, of so many ``calls``.

    ``computing`` is the share of this excess that their threads spent computing; None without a CPU clock, or without a stall.
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
        """The excess above which half of the time in stalls lies: many short ones do not hide a few long ones."""
        ordered = np.sort(self.excesses)
        sums = np.cumsum(ordered)
        return float(ordered[np.searchsorted(sums, sums[-1] / 2)]) if ordered.size else 0.0

    def share_above(self, seconds: float) -> float:
        return int(np.count_nonzero(self.excesses >= seconds)) / self.calls


class SideCalls(NamedTuple):
    """The calls of a side in a quad, in seconds without waits, by the wall and by the thread; and which of them stalled."""

    wall: Floats
    cpu: Floats | None
    stalled: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, wall: Floats, cpu: Floats | None = None) -> SideCalls:
        return cls(wall, cpu, is_stall(wall))

    @property
    def stall_share(self) -> float:
        return float(self.stalled.mean())

    @property
    def stall_seconds(self) -> float:
        """The seconds by which stalls exceed the median call, for each call."""
        return float((self.wall[self.stalled] - median(self.wall)).sum() / self.wall.size)


class StretchQuad(NamedTuple):
    """A quad: of base and head the mean seconds of a call, and the calls."""

    means: tuple[float, float]
    sides: tuple[SideCalls, SideCalls]


class StretchSample(NamedTuple):
    """The stretches of a shape, quad by quad: of base and head the mean seconds of a call, the share and seconds of stalls.

    ``line`` is where head's slow calls were mostly found, None if that is not known.
    """

    means: tuple[Floats, Floats]
    stall_shares: tuple[Floats, Floats]
    stall_seconds: tuple[Floats, Floats]
    stalls: tuple[Stalls, Stalls]
    starts: int
    line: str | None = None

    @classmethod
    def of(cls, quads: Sequence[StretchQuad], *, starts: int, line: str | None = None) -> StretchSample:
        base = [quad.sides[0] for quad in quads]
        head = [quad.sides[1] for quad in quads]
        return cls(
            means=(np.array([quad.means[0] for quad in quads]), np.array([quad.means[1] for quad in quads])),
            stall_shares=(_shares_of_stalls(base), _shares_of_stalls(head)),
            stall_seconds=(_seconds_of_stalls(base), _seconds_of_stalls(head)),
            stalls=(_stalls(base), _stalls(head)),
            starts=starts,
            line=line,
        )

    @property
    def quads(self) -> int:
        return int(self.means[0].size)

    @property
    def effect(self) -> float:
        """Head's mean of all calls over base's, minus 1."""
        base, head = self.means
        return float(head.sum() / base.sum()) - 1


def _shares_of_stalls(quads: Iterable[SideCalls]) -> Floats:
    return np.array([calls.stall_share for calls in quads])


def _seconds_of_stalls(quads: Iterable[SideCalls]) -> Floats:
    return np.array([calls.stall_seconds for calls in quads])


def _stalls(sides: Sequence[SideCalls]) -> Stalls:
    calls = sum(side.wall.size for side in sides)
    excesses = np.concatenate([side.wall[side.stalled] - median(side.wall) for side in sides])
    computed = [side.cpu[side.stalled] - median(side.cpu) for side in sides if side.cpu is not None]
    computing = None
    if computed and excesses.size:
        share = float(np.concatenate(computed).sum() / excesses.sum())
        computing = rounded(min(1.0, max(0.0, share)))
    return Stalls(excesses, calls, computing)


# --- documents to quads


def stretches_of(evidence: Evidence, place: ShapePlace) -> StretchSample | None:
    """The undisturbed quads of a shape; None without any."""
    quads: list[StretchQuad] = []
    starts = 0
    for first, second in evidence.stretches.get(place.workload, ()):
        if place.shape not in first.shapes or place.shape not in second.shapes:
            continue
        lanes = first.shapes[place.shape], second.shapes[place.shape]
        clean, _ = clean_pair(*lanes)
        of_start = [] if clean is None else _quads_of(lanes, sorted(clean))
        quads += of_start
        starts += bool(of_start)
    line = _line_of_stalls(evidence, place)
    return StretchSample.of(quads, starts=starts, line=line) if quads else None


def _line_of_stalls(evidence: Evidence, place: ShapePlace) -> str | None:
    """The line at which most samples of head's slow calls lie; None if no line has enough of them."""
    samples: Counter[str] = Counter()
    for _, head in evidence.stretches.get(place.workload, ()):
        samples.update(head.stalled_at.get(place.shape, {}))
    if not samples:
        return None
    line, most = samples.most_common(1)[0]
    return line if most >= LEAST_OF_SAMPLES * samples.total() else None


def _quads_of(lanes: tuple[BlockColumns, BlockColumns], quads: Sequence[int]) -> list[StretchQuad]:
    base, head = (_Lane.of(lane) for lane in lanes)
    found = []
    for quad in quads:
        means = base.mean(quad), head.mean(quad)
        if math.isfinite(means[0]) and math.isfinite(means[1]):
            found.append(StretchQuad(means, (base.calls(quad), head.calls(quad))))
    return found


class _Lane(NamedTuple):
    """The blocks of a side in one stretch; ``quads`` has the quad of every block, ``quad_of_call`` that of every call."""

    seconds: Floats
    quads: npt.NDArray[np.int64]
    quad_of_call: npt.NDArray[np.int64]
    wall: Floats
    cpu: Floats | None

    @classmethod
    def of(cls, columns: BlockColumns) -> _Lane:
        calls = np.asarray(columns.calls)
        quads = np.asarray(columns.quad)
        seconds = np.full(calls.size, math.nan)
        if columns.seen_ns:
            seconds = awake_by_block(columns) / (calls + 1)
        cpu = unpack(columns.cpu) / 1e9 if columns.cpu_source == "thread_cpu" else None
        return cls(seconds, quads, np.repeat(quads, calls), unpack(columns.wall) / 1e9, cpu)

    def mean(self, quad: int) -> float:
        return float(self.seconds[self.quads == quad].mean())

    def calls(self, quad: int) -> SideCalls:
        own = self.quad_of_call == quad
        return SideCalls.of(self.wall[own], None if self.cpu is None else self.cpu[own])


# --- the rule


class Tail(NamedTuple):
    """A number of the stretches under test: ``effect`` is head/base - 1, with its interval if one is computed.

    ``p_worse`` and ``p_better`` are p-values of "not worse" and "not better" that hold over all looks.
    """

    place: ShapePlace
    name: str
    base: float
    head: float
    effect: float
    p_worse: float
    p_better: float
    low: float | None
    high: float | None
    quads: int
    starts: int


def compare_stretches(evidence: Evidence, policy: Policy, shares: AlphaShares) -> list[Paired]:
    """Compare mean and stalls of every shape with stretches on both sides."""
    comparisons: list[Paired] = []
    for workload in dict.fromkeys(place.workload for place in evidence.places):
        places = [place for place in evidence.places if place.workload == workload]
        samples = {place: sample for place in places if (sample := stretches_of(evidence, place))}
        comparisons += compare_samples(samples, policy, alpha=shares.of_family(FAMILY))
    return comparisons


def compare_samples(samples: Mapping[ShapePlace, StretchSample], policy: Policy, *, alpha: float) -> list[Paired]:
    """Compare mean and stalls of every place; all share ``alpha``."""
    tails = [tail for place, sample in samples.items() for tail in _tails(place, sample, policy)]
    adjusted = holm([tail.p_worse for tail in tails])
    return [_judge(tail, p, policy, samples[tail.place], alpha) for tail, p in zip(tails, adjusted)]


def _tails(place: ShapePlace, sample: StretchSample, policy: Policy) -> list[Tail]:
    tails = [_mean(place, sample, policy)]
    before, after = sample.stalls
    if before.stalled or after.stalled:
        tails.append(_stall_share(place, sample))
    return tails


def _mean(place: ShapePlace, sample: StretchSample, policy: Policy) -> Tail:
    base, head = sample.means
    quads, starts, effect = sample.quads, sample.starts, sample.effect
    luck = START_LUCK / math.sqrt(starts)
    # What luck explains is no evidence, however many quads share it.
    lucky = math.expm1(BEYOND_LUCK * luck)
    p_of_luck = float(ndtr(-BEYOND_LUCK))

    def p_above(change: float) -> float:
        return p_positive(head / (1 + change) - base)

    def p_below(change: float) -> float:
        return p_positive(base - head / (1 + change))

    level = nominal_level(policy.alpha_ok * (1 - RERUN_SHARE), LOOKS, quads, shape=SHAPE)
    reach = -float(ndtri(level)) * luck
    low = largest_not_excluded(p_above, level, start=effect, most=-0.999)
    high = largest_not_excluded(p_below, level, start=effect, most=_MOST)
    return Tail(
        place,
        MEAN,
        base=float(base.mean()),
        head=float(head.mean()),
        effect=effect,
        p_worse=_over_looks(min(1.0, p_above(lucky) + p_of_luck), quads),
        p_better=_over_looks(min(1.0, p_below(-lucky) + p_of_luck), quads),
        low=effect - math.hypot(effect - low, reach),
        high=effect + math.hypot(high - effect, reach),
        quads=quads,
        starts=starts,
    )


def _stall_share(place: ShapePlace, sample: StretchSample) -> Tail:
    before, after = sample.stalls
    quads = sample.quads
    return Tail(
        place,
        LATENCY_STALLS,
        base=before.share,
        head=after.share,
        effect=_stall_effect(sample),
        p_worse=_over_looks(p_more_stalls(sample), quads),
        p_better=_over_looks(p_fewer_stalls(sample), quads),
        low=None,
        high=None,
        quads=quads,
        starts=sample.starts,
    )


def _stall_effect(sample: StretchSample) -> float:
    """By which share head stalls more often, or for longer in all if that is more; half a stall is added to both sides."""
    before, after = sample.stalls
    often = (after.stalled + HALF) / (before.stalled + HALF) - 1
    base, head = (float(seconds.sum()) for seconds in sample.stall_seconds)
    return max(often, head / base - 1) if base > 0 else often


def p_more_stalls(sample: StretchSample) -> float:
    """The p-value of "head does not stall more often or for longer", at a single look: the smaller of two tests, twice."""
    tests = sample.stall_shares, sample.stall_seconds
    return min(1.0, 2 * min(p_positive(head - base) for base, head in tests))


def p_fewer_stalls(sample: StretchSample) -> float:
    tests = sample.stall_shares, sample.stall_seconds
    return min(1.0, 2 * min(p_positive(base - head) for base, head in tests))


def _over_looks(p: float, quads: int) -> float:
    return sequential_p(p, LOOKS, quads, shape=SHAPE)


def _judge(tail: Tail, p_adjusted: float, policy: Policy, sample: StretchSample, alpha: float) -> Paired:
    allowed = tolerance(policy, tail.name, *tail.place)
    is_worse = tail.effect > allowed and p_adjusted <= alpha
    is_better = tail.effect < -allowed and tail.p_better <= alpha
    matters = tail.name == MEAN or sample.effect > STALLS_MATTER
    compared = Paired(
        workload=tail.place.workload,
        shape=tail.place.shape,
        metric=tail.name,
        unit=metric(tail.name).unit,
        better=metric(tail.name).better,
        outcome="inconclusive",
        gating=True,
        base=rounded(tail.base),
        head=rounded(tail.head),
        delta=relative_change(rounded(tail.base), rounded(tail.head)),
        tolerance=allowed,
        p_adjusted=rounded(p_adjusted),
        pairs=tail.quads,
        starts=tail.starts,
        clock="awake",
    )
    if tail.name == MEAN:
        return _judge_mean(compared, tail, policy, is_worse=is_worse, is_better=is_better)
    if is_worse and matters:
        return msgspec.structs.replace(compared, outcome="regressed", reason=rare_slow_calls(sample))
    # Fewer stalls, or too few to tell, leave no verdict open: the mean bounds what they can cost.
    outcome = "improved" if is_better and sample.effect < -STALLS_MATTER else "inconclusive"
    return msgspec.structs.replace(compared, outcome=outcome, gating=False)


def _judge_mean(compared: Paired, tail: Tail, policy: Policy, *, is_worse: bool, is_better: bool) -> Paired:
    level = nominal_level(policy.alpha_ok * (1 - RERUN_SHARE), LOOKS, tail.quads, shape=SHAPE)
    low, high = tail.low, tail.high
    if low is not None and high is not None:
        compared = msgspec.structs.replace(
            compared, interval=(rounded(low), rounded(high)), confidence=rounded(1 - 2 * level)
        )
    if is_worse:
        return msgspec.structs.replace(compared, outcome="regressed")
    if is_better:
        return msgspec.structs.replace(compared, outcome="improved")
    _, margin = margins_for_unchanged(policy, tail.name, *tail.place)
    if high is not None and high <= margin:
        return msgspec.structs.replace(compared, outcome="unchanged", excluded=margin)
    shown = Message("gate.too-few-pairs", {"pairs": tail.quads})
    if high is not None:
        shown = Message("gate.upper-bound", {"bound": rounded(high), "confidence": rounded(1 - level)})
    reason = Message("gate.slowdown-possible", {"size": rounded(margin), "shown": shown})
    return msgspec.structs.replace(compared, reason=reason)


def rare_slow_calls(sample: StretchSample) -> Message:
    """How often head's calls stall beyond base's, for how long, at which line, and whether they compute or wait."""
    base, head = sample.stalls
    long = head.typical / 2
    often = head.share_above(long) - base.share_above(long)
    if often < head.share_above(long) / 2:  # as often, and for longer
        often = head.share_above(long)
    how = Message("gate.stall-unknown")
    if head.computing is not None:
        is_computing = head.computing >= COMPUTES_SHARE
        how = Message("gate.stall-computing") if is_computing else Message("gate.stall-waiting")
    values: dict[str, MessageValue] = {"every": round(1 / often), "seconds": rounded(head.typical), "how": how}
    if sample.line is None:
        return Message("gate.rare-slow-calls", values)
    return Message("gate.rare-slow-calls-at", {**values, "line": sample.line})


# --- between two looks


def more_calls_would_help(evidence: Evidence, comparisons: Sequence[Comparison]) -> bool:
    """Whether mean or stalls look worse and are not yet shown to be, so that further stretches may show it."""
    for place in evidence.places:
        sample = stretches_of(evidence, place)
        of_place = [c for c in comparisons if c.place == place and c.metric in FAMILY.metrics]
        if sample is not None and leans_slower(sample, of_place):
            return True
    return False


def leans_slower(sample: StretchSample, comparisons: Sequence[Comparison]) -> bool:
    """Whether a sample that can grow looks worse; ``comparisons`` are those of its mean and stalls."""
    if sample.quads >= LOOKS[-1] or any(c.outcome == "regressed" for c in comparisons):
        return False
    base, head = sample.means
    means = [c for c in comparisons if isinstance(c, Paired) and c.metric == MEAN]
    allowed = max((mean.tolerance or 0.0 for mean in means), default=0.0)
    if sample.effect > LEANING_SHARE * allowed and p_positive(head - base) <= LEANING_P:
        return True
    return sample.effect > STALLS_MATTER and p_more_stalls(sample) <= LEANING_STALLS_P

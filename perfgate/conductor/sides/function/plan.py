"""The plan of the pairs: the random draws before they run, and the number of quads of
the next pair.

The order of everything that could favour a side is drawn from a recorded seed: which
side starts first, whether a quad runs first-second-second-first or the other way round,
when a base-against-base pair comes.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from perfgate.conductor.engine import Start, balanced_coins
from perfgate.config import Config, GateSettings
from perfgate.document.run import PAIRS_PER_ROUND
from perfgate.document.samples import (
    AA_PAIRS_OF_A_START,
    Arm,
    BlockColumns,
    Replicate,
    unpack,
)
from perfgate.protocol import SLOW_CALL_SECONDS

# The seeds of layouts.
_SEEDS = (1, 65536)
# Quads of a pair: with s the overhead of a pair and q the time of a quad, 3 sqrt(s / q)
# are most informative in a given time if effects of quads spread three times as much as
# effects of processes, as they do since every quad has its own layout own
# (benchmarks/gate/FINDINGS.md, section 3). If the luck of layouts spreads them by more
# than UNLIKE, only many quads help: a pair then fills UNLIKE_SECONDS with them, of
# blocks that are SHORTER by this factor.
FEWEST_QUADS, MOST_QUADS = 4, 16
UNLIKE, UNLIKE_SECONDS, SHORTER = 0.03, 1.0, 4
# For slow calls: quads of a pair, calls that warm a side up, and a side's calls in a
# quad: two blocks, each of one call after an unrecorded one.
SLOW_QUADS = 1
_WARM_UP_CALLS = 2
_QUAD_CALLS = 2 * 2
# Some pairs also profile a call, by turns A B B A.
_PROFILED_CALLS = 2
# On an accelerator blocks take at least this long, because events and launches jitter.
# Both sides stay loaded for several pairs: with l the time of a start and p the time of
# a pair, sqrt(l / p) pairs are most informative in a given time if starts spread as
# much as pairs.
RESIDENT_BLOCK_SECONDS = 0.05
MOST_RESIDENT_PAIRS = 16
# Starts differ even on equal code, so the first look rests on this many.
FEWEST_RESIDENT_STARTS = 3
# A card that idled while a model was loaded takes this long to reach its working
# temperature and clock. The side that warms up second finds it warm, and needs no more
# than its own tuners and allocators do.
WARM_UP_SECONDS, FURTHER_WARM_UP_SECONDS = 1.5, 0.5
# Sides that do not fit on the device together take it in visits: A B B A A B B A has
# visits of two blocks.
PARKED_BLOCK_SECONDS, PARKED_QUADS = 2.5, 1
# Elsewhere a process may be permanently slower by a few percent, and so are its forks:
# after this many pairs both sides load anew (benchmarks/gate/FINDINGS.md, section 7).
FORKED_PAIRS = 2
# A slower side has longer blocks, up to this factor, so that it does not use up the
# budget.
MOST_LONGER = 4
# Servers are renewed after half a first look, after it, and then after as many pairs
# again, so that none starts just before a look that may end the pairs. They serve at
# least this many pairs: starting one takes as long as a pair. None is started for the
# last pair alone.
FEWEST_SERVED = 2
# The first two looks are measured regardless of the budget, if they take no longer than
# this.
SURE_LOOKS, SURE_SECONDS = 2, 300.0


def aa_pairs_of(gate: GateSettings, *, resident: bool) -> int:
    """The pairs of base against base."""
    return min(gate.aa_pairs, AA_PAIRS_OF_A_START) if resident else gate.aa_pairs


def sure_pairs(gate: GateSettings, *, resident: bool) -> int:
    """The pairs measured regardless of the budget, of base against base too."""
    return gate.looks[min(SURE_LOOKS, len(gate.looks)) - 1] + aa_pairs_of(
        gate, resident=resident
    )


def seconds_of_sure_pairs(
    gate: GateSettings,
    *,
    call_seconds: float,
    start_seconds: float,
    resident: bool,
    parked: bool,
    lone: bool,
) -> float:
    """The approximate time of the sure pairs, if a call of every shape takes
    ``call_seconds`` and loading ``start_seconds``.

    Of sides that are ``lone``, each loads in every pair.
    """
    pairs = sure_pairs(gate, resident=resident)
    if call_seconds >= SLOW_CALL_SECONDS:
        calls = (
            _WARM_UP_CALLS + (gate.quads or SLOW_QUADS) * _QUAD_CALLS + _PROFILED_CALLS
        )
        return pairs * 2 * (start_seconds + calls * call_seconds)
    fewest = PARKED_QUADS if parked else FEWEST_QUADS
    pair_seconds = (
        (gate.quads or fewest)
        * _QUAD_CALLS
        * seconds_of_block(gate, resident=resident, parked=parked)
    )
    if not resident:
        starts = math.ceil(pairs / FORKED_PAIRS)
        return starts * 2 * start_seconds + pairs * pair_seconds
    if lone:
        return pairs * (2 * (start_seconds + WARM_UP_SECONDS) + pair_seconds)
    # Both sides load at the same time, and base against base is a separate start.
    start_seconds += WARM_UP_SECONDS + FURTHER_WARM_UP_SECONDS
    first_look = gate.looks[0]
    of_first_starts = pairs_of_start(
        start_seconds=start_seconds, pair_seconds=pair_seconds, first_look=first_look
    )
    of_later_starts = pairs_of_start(
        start_seconds=start_seconds, pair_seconds=pair_seconds
    )
    aa_pairs = aa_pairs_of(gate, resident=True)
    starts = math.ceil(first_look / of_first_starts) + (aa_pairs > 0)
    starts += math.ceil((pairs - aa_pairs - first_look) / of_later_starts)
    return starts * start_seconds + pairs * pair_seconds


def seconds_of_block(
    gate: GateSettings, *, resident: bool, parked: bool = False
) -> float:
    if parked:
        return max(gate.block_seconds, PARKED_BLOCK_SECONDS)
    if resident:
        return max(gate.block_seconds, RESIDENT_BLOCK_SECONDS)
    return gate.block_seconds


def pairs_of_start(
    *, start_seconds: float, pair_seconds: float, first_look: int | None = None
) -> int:
    """The pairs for which resident sides stay loaded, of starts before the first look
    or after it.

    Most gates end at the first look, whose number of pairs is fixed: it rests on as few
    starts as it may, unless starting takes no longer than a pair.
    """
    if start_seconds < pair_seconds:
        return 1
    if first_look is not None:
        return math.ceil(first_look / FEWEST_RESIDENT_STARTS)
    return min(MOST_RESIDENT_PAIRS, round(math.sqrt(start_seconds / pair_seconds)))


def draw_plans(
    seed: int,
    workload: str,
    *,
    pairs: int,
    aa_pairs: int,
    first_look: int,
    round_number: int,
    draw: int,
    resident: bool,
) -> list[Start]:
    """Draw the pairs of one round in the order they run; the same seed, workload, round
    and draw give the same plan.

    The base-against-base pairs are scattered among the pairs of the first look; for
    ``resident`` sides they come first, because they need a separate start. The side
    that starts is balanced over every four pairs of an arm, the side that leads over
    every two quads: on some workloads the process that starts second is faster, by 0.3
    % (benchmarks/gate/FINDINGS.md, section 5).
    """
    lot = random.Random(_lot_name(seed, workload, round_number, draw))
    arms: list[Arm] = ["ab"] * first_look
    arms += ["aa"] * aa_pairs
    lot.shuffle(arms)
    if resident:
        arms.sort()
    arms += ["ab"] * (pairs - first_look)
    second_starts = {
        "ab": _coins(lot, pairs, run=4),
        "aa": _coins(lot, aa_pairs, run=4),
    }
    starts = []
    for number, arm in enumerate(arms, round_number * PAIRS_PER_ROUND):
        start = Start(
            number,
            arm=arm,
            layout_seed=lot.randrange(*_SEEDS),
            twin_seed=lot.randrange(*_SEEDS),
            second_starts=second_starts[arm].pop(),
            second_leads=_coins(lot, MOST_QUADS, run=2),
        )
        starts.append(start)
    return starts


@dataclass(frozen=True)
class PairsPlan:
    """The pairs of one round, by numbers of pairs including base against base.

    Looks come after ``look_ends`` pairs. Before the pairs in ``renewals`` fork servers
    with another hash seed are started. Names of operators may be needed from
    ``name_checks`` on.
    """

    starts: list[Start]
    first_look: int
    look_ends: list[int]
    renewals: dict[int, int]
    name_checks: set[int]

    @classmethod
    def draw(
        cls,
        config: Config,
        workload: str,
        looks: Sequence[int],
        *,
        round_number: int,
        redraws: int,
        resident: bool,
    ) -> PairsPlan:
        """Draw a plan; ``redraws`` is how often layouts were drawn before.

        Addresses and hashes belong to a server, so that code which only differs can be
        up to 1 % slower in all pairs of one, and as much faster in another's
        (benchmarks/gate/FINDINGS.md, section 5). The new servers start while pairs run,
        on another CPU: without one, both sides of a pair wait equally.
        """
        aa_pairs = aa_pairs_of(config.gate, resident=resident)
        seed = config.measure.seed
        starts = draw_plans(
            seed,
            workload,
            pairs=looks[-1],
            aa_pairs=aa_pairs,
            first_look=looks[0],
            round_number=round_number,
            draw=redraws,
            resident=resident,
        )
        look_ends = [look + aa_pairs for look in looks]
        first_end = look_ends[0]
        served = max(FEWEST_SERVED, first_end // 2)
        served_later = max(FEWEST_SERVED, first_end - served)
        lot = random.Random(
            f"{_lot_name(seed, workload, round_number, redraws)}/servers"
        )
        renewals = {
            number: lot.randrange(2**32)
            for number in range(served, len(starts) - 1, served_later)
        }
        # The verdict of a look may need names by the next pair, the verdict of the only
        # look by its end.
        name_checks = {0, *look_ends[:-1]}
        if len(looks) == 1:
            name_checks.add(first_end // 3)
        return cls(starts, looks[0], look_ends, renewals, name_checks)


def _lot_name(seed: int, workload: str, round_number: int, draw: int) -> str:
    return f"{seed}/{workload}/{round_number}" + (f"/{draw}" if draw else "")


def _coins(lot: random.Random, count: int, *, run: int) -> list[bool]:
    return list(islice(balanced_coins(lot, run=run), count))


def of_the_slower(first: float, second: float) -> float:
    """The calls, or their seconds, of the slower of both sides, within reason."""
    return min(max(first, second), MOST_LONGER * min(first, second))


class QuadPlanner:
    """Decides the number of quads of the next pair and the length of their blocks, by
    the times and effects of earlier pairs.

    The quads of ``resident`` sides stay as they are, because loading is not part of a
    pair.
    """

    def __init__(self, gate: GateSettings, *, resident: bool, parked: bool) -> None:
        self.quads = gate.quads or (PARKED_QUADS if parked else FEWEST_QUADS)
        self.block_seconds = seconds_of_block(gate, resident=resident, parked=parked)
        self._gate = gate
        self._is_fixed = resident or gate.quads is not None
        self._shortest_rest = self._shortest_quad = math.inf
        self._spreads: list[float] = []

    def quads_of(self, call_seconds: float) -> int:
        """The quads of a pair, by the seconds that calls of all shapes take on the
        faster side.
        """
        if self._gate.quads is None and call_seconds >= SLOW_CALL_SECONDS:
            return SLOW_QUADS
        return self.quads

    def add_pair(
        self,
        first: Replicate,
        second: Replicate,
        *,
        fixed_seconds: float,
        quad_seconds: float,
    ) -> None:
        """Choose the quads of the next pairs by their overhead, unless the
        configuration sets them.

        ``fixed_seconds`` is the time of starting and ending a pair, with its share of
        loading for several.
        """
        if self._is_fixed:
            return
        # The quads' effects, largest over the lanes. Other processes on the machine
        # would spread times other than the fastest.
        spread = 0.0
        for (_, before), (_, after) in zip(first.lanes, second.lanes):
            effects = _fastest_of_quads(after) - _fastest_of_quads(before)
            spread = max(spread, float(np.std(effects)))
        self._spreads.append(spread)
        self._shortest_rest = min(self._shortest_rest, fixed_seconds)
        self._shortest_quad = min(self._shortest_quad, quad_seconds)
        worth = round(1.5 * math.sqrt(self._shortest_rest / self._shortest_quad)) * 2
        if len(self._spreads) > 1 and np.median(self._spreads) > UNLIKE:
            self.block_seconds = self._gate.block_seconds / SHORTER
            worth = int(UNLIKE_SECONDS / self._shortest_quad)
        self.quads = max(FEWEST_QUADS, min(MOST_QUADS, worth))


def _fastest_of_quads(blocks: BlockColumns) -> npt.NDArray[np.float64]:
    """The logarithm of the fastest call's CPU or device time in each quad."""
    calls, quads = np.asarray(blocks.calls), np.asarray(blocks.quad)
    fastest = np.minimum.reduceat(unpack(blocks.times.cpu), np.cumsum(calls) - calls)
    # A clock without resolution reads 0 ns, which has no logarithm.
    return np.log([max(1, fastest[quads == quad].min()) for quad in np.unique(quads)])

"""Gates replayed from recordings: pairs are drawn with replacement until the budget of
measuring is spent.

A rule's answers are counted in one row per scenario, change and cell. Every rule sees
the same draws, so rules are compared under the same luck, and a row depends on the seed
alone, not on which rules or cells ran with it.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from recordings import Cell, Floats, Injection, Pair, Run, runs_of, scaled, slow_tail
from rivals import Rule

from perfgate.config import GateSettings

SIZES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.10)
P99_SHARE = 0.10
GAP_SHARE = 0.01
STORED_SIZES = (0.0, 0.05, 0.10)
# Pairs of base against base lie among those of the first look.
AA_PAIRS = GateSettings().aa_pairs
# How many pairs of a gate come from each server (draw_renewals): from half of the first
# look on.
RUNS = (4, 4, 8, 16, 32)

Ints = npt.NDArray[np.int64]
Change = Callable[[Run, float], Run]
CHANGES: dict[str, Change] = {"scale": scaled, "tail": slow_tail}


class Plan(NamedTuple):
    """How much is tried: gates of unchanged code, gates per size of change; measuring
    seconds of one gate; the seed.
    """

    unchanged: int
    changed: int
    budget: float
    seed: int
    clock: str = "wall"
    at_once: bool = False


class Task(NamedTuple):
    """One scenario of one cell for all sizes of a change."""

    scenario: str
    cell: str
    pairs: tuple[Pair, ...]
    sizes: tuple[float, ...]
    clock: str
    change: str = "scale"
    swap: str = "pair"
    live: bool = False


class Row(NamedTuple):
    """What one rule answered in one scenario: counts of answers, and median seconds
    measured until the answer.
    """

    rule: str
    scenario: str
    cell: str
    size: float
    trials: int
    regressed: int
    ok: int
    undecided: int
    seconds: float
    seconds_to_ok: float | None
    effect: float


class _Draw(NamedTuple):
    """One gate: which pairs in which order, whether base and head change places, and
    the seconds spent after each.
    """

    picked: np.ndarray
    swapped: np.ndarray
    spent: Floats
    seed: int


def tasks_of(
    cells: Sequence[Cell], injections: Sequence[Injection], plan: Plan
) -> list[Task]:
    """Return all that is tried on these recordings.

    ``unchanged`` swaps the labels of each pair at random, so that base and head are
    alike by construction; ``unchanged, as one`` swaps all pairs of a gate together, so
    that what its few distinct pairs happen to differ by stays in: an upper bound.
    ``slower`` slows head exactly. ``p99`` slows the slowest 2 % of head's calls, on CPU
    time; ``gap`` the time between calls, by a share of a call. ``stored`` takes base
    from one pass and head from another. ``equal heads``, of live recordings, swaps
    nothing: head is a variant that differs in code and not in speed, in all pairs of a
    gate the same one.
    """
    tasks = []
    for cell in cells:
        unchanged = Task(
            "unchanged", cell.name, cell.pairs, (0.0,), plan.clock, live=cell.live
        )
        tasks.append(unchanged)
        tasks.append(unchanged._replace(scenario="unchanged, as one", swap="gate"))
        tasks.append(unchanged._replace(scenario="slower", sizes=SIZES))
        tasks.append(
            unchanged._replace(
                scenario="p99", sizes=(0.0, P99_SHARE), clock="cpu", change="tail"
            )
        )
        tasks.append(
            unchanged._replace(scenario="gap", sizes=(0.0, GAP_SHARE), clock="gap")
        )
        if cell.live:
            tasks.append(unchanged._replace(scenario="equal heads", swap="none"))
        elif len({pair.number for pair in cell.pairs}) > 1:
            tasks.append(
                Task(
                    "stored",
                    cell.name,
                    cell.pairs,
                    STORED_SIZES,
                    plan.clock,
                    swap="stored",
                )
            )
    for injection in injections:
        clock = "gap" if injection.kind == "gap" else plan.clock
        tasks.append(
            Task(
                "injected",
                injection.name,
                injection.pairs,
                (injection.share,),
                clock,
                swap="none",
            )
        )
    return tasks


def trials_of(task: Task, plan: Plan) -> int:
    """Return how many gates a task holds for each size."""
    return (
        plan.unchanged
        if task.scenario.startswith(("unchanged", "equal"))
        else plan.changed
    )


def rows_of(task: Task, rules: Sequence[Rule], plan: Plan) -> list[Row]:
    """Return the answers of all rules, one row per rule and size."""
    plain: list[tuple[Run, ...]] = [runs_of(pair, task.clock) for pair in task.pairs]
    draws = [_draw(task, plan, number) for number in range(trials_of(task, plan))]
    rows = []
    for size in task.sizes:
        # An injected change is in the recorded head already.
        change = CHANGES[task.change] if task.scenario != "injected" and size else None
        changed = (
            [tuple(change(run, size) for run in sides) for sides in plain]
            if change
            else plain
        )
        rows += [
            _row(
                task,
                rule,
                size,
                [_gate(task, rule, plain, changed, draw, plan) for draw in draws],
            )
            for rule in rules
        ]
    return rows


def _draw(task: Task, plan: Plan, number: int) -> _Draw:
    """Draw the pairs of one gate: always the same for the same seed, scenario, cell and
    number.
    """
    name = zlib.crc32(f"{task.scenario}|{task.cell}".encode())
    rng = np.random.default_rng([plan.seed, name, number])
    seconds = np.array([pair.seconds for pair in task.pairs])
    most = int(plan.budget / seconds.min()) + 2
    if task.live:
        picked = _by_server(rng, task, most).reshape(-1, 1).repeat(2, axis=1)
        spent = np.cumsum(seconds[picked[:, 0]]) + AA_PAIRS * float(np.median(seconds))
    elif task.swap == "stored":
        picked = _two_passes(rng, task.pairs, most)
        spent = np.cumsum(seconds[picked].mean(axis=1))
    else:
        picked = rng.integers(seconds.size, size=(most, 1)).repeat(2, axis=1)
        spent = np.cumsum(seconds[picked[:, 0]])
    swapped = {
        "pair": rng.integers(2, size=most),
        "stored": rng.integers(2, size=most),
        "gate": np.full(most, rng.integers(2)),
        "none": np.zeros(most, dtype=np.int64),
    }[task.swap]
    n = max(2, int(np.searchsorted(spent, plan.budget, side="right")))
    return _Draw(picked[:n], swapped[:n], spent[:n], int(rng.integers(2**31)))


def _by_server(rng: np.random.Generator, task: Task, most: int) -> Ints:
    """Return indices of pairs of which a run comes from one server, as the gate renews
    its servers.
    """
    variants = np.array([pair.variant for pair in task.pairs])
    servers = np.array([pair.number for pair in task.pairs])
    kept = (
        variants == rng.choice(variants)
        if task.scenario == "equal heads"
        else variants >= 0
    )
    picked: list[Ints] = []
    for run in itertools.chain(RUNS, itertools.repeat(RUNS[-1])):
        server = rng.choice(servers[kept])
        picked.append(rng.choice(np.nonzero(servers == server)[0], size=run))
        if sum(one.size for one in picked) >= most:
            return np.concatenate(picked)[:most]
    raise AssertionError("the runs never end")


def _two_passes(
    rng: np.random.Generator, pairs: Sequence[Pair], most: int
) -> np.ndarray:
    """Return indices of pairs for base and for head, each side from one pass, never the
    same one.
    """
    passes = np.array([pair.number for pair in pairs])
    sides = rng.permutation(np.unique(passes))[:2]
    return np.stack(
        [rng.choice(np.nonzero(passes == side)[0], size=most) for side in sides], axis=1
    )


def _gate(
    task: Task,
    rule: Rule,
    plain: list[tuple[Run, ...]],
    changed: list[tuple[Run, ...]],
    draw: _Draw,
    plan: Plan,
) -> tuple[str, float, float]:
    """Return a rule's answer in one gate: decision, seconds measured until then,
    effect.
    """
    base = [plain[i][swap] for i, swap in zip(draw.picked[:, 0], draw.swapped)]
    head = [changed[i][1 - swap] for i, swap in zip(draw.picked[:, 1], draw.swapped)]
    looks = () if plan.at_once else rule.looks
    most = min(len(base), looks[-1]) if looks else len(base)
    decide = rule.decide_on("gap" if task.clock == "gap" else task.scenario)
    for n in [*(look for look in looks if look < most), most]:
        answer = decide(
            base[:n],
            head[:n],
            {
                "paired": task.swap != "stored",
                "seed": draw.seed,
                "moved": task.live,
                "last": n == most,
            },
        )
        if answer["decision"] != "undecided":
            break
    return answer["decision"], float(draw.spent[n - 1]), float(answer["effect"])


def _row(
    task: Task, rule: Rule, size: float, gates: list[tuple[str, float, float]]
) -> Row:
    decisions = [decision for decision, _, _ in gates]
    to_ok = [seconds for decision, seconds, _ in gates if decision == "ok"]
    unknown = set(decisions) - {"regressed", "ok", "undecided"}
    if unknown:
        raise SystemExit(
            f"{rule.name} answered {sorted(unknown)}; a decision is regressed, ok or undecided"
        )
    return Row(
        rule=rule.name,
        scenario=task.scenario,
        cell=task.cell,
        size=size,
        trials=len(gates),
        regressed=decisions.count("regressed"),
        ok=decisions.count("ok"),
        undecided=decisions.count("undecided"),
        seconds=float(np.median([seconds for _, seconds, _ in gates])),
        seconds_to_ok=float(np.median(to_ok)) if to_ok else None,
        effect=float(np.median([effect for _, _, effect in gates])),
    )

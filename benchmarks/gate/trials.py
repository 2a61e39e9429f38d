"""Gates replayed from recordings: pairs are drawn with replacement until the budget of measuring is spent.

A rule's answers are counted in one row per scenario, change and cell. Every rule sees the same draws, so rules are compared
under the same luck, and a row depends on the seed alone, not on which rules or cells ran with it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from recordings import Cell, Floats, Injection, Pair, Run, runs_of, scaled, slow_tail
from rivals import Rule

SIZES = (0.005, 0.01, 0.02, 0.03, 0.05, 0.10)
P99_SHARE = 0.10
GAP_SHARE = 0.01
STORED_SIZES = (0.0, 0.05, 0.10)

Change = Callable[[Run, float], Run]
CHANGES: dict[str, Change] = {"scale": scaled, "tail": slow_tail}


class Plan(NamedTuple):
    """How much is tried: gates of unchanged code, gates per size of change; measuring seconds of one gate; the seed."""

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


class Row(NamedTuple):
    """What one rule answered in one scenario: counts of answers, and median seconds measured until the answer."""

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
    """One gate: which pairs in which order, whether base and head change places, and the seconds spent after each."""

    picked: np.ndarray
    swapped: np.ndarray
    spent: Floats
    seed: int


def tasks_of(cells: Sequence[Cell], injections: Sequence[Injection], plan: Plan) -> list[Task]:
    """Return all that is tried on these recordings.

    ``unchanged`` swaps the labels of each pair at random, so that base and head are alike by construction; ``unchanged, as
    one`` swaps all pairs of a gate together, so that what its few distinct pairs happen to differ by stays in: an upper
    bound. ``slower`` slows head exactly. ``p99`` slows the slowest 2 % of head's calls, on CPU time; ``gap`` the time
    between calls, by a share of a call. ``stored`` takes base from one pass and head from another.
    """
    tasks = []
    for cell in cells:
        tasks.append(Task("unchanged", cell.name, cell.pairs, (0.0,), plan.clock))
        tasks.append(Task("unchanged, as one", cell.name, cell.pairs, (0.0,), plan.clock, swap="gate"))
        tasks.append(Task("slower", cell.name, cell.pairs, SIZES, plan.clock))
        tasks.append(Task("p99", cell.name, cell.pairs, (0.0, P99_SHARE), "cpu", change="tail"))
        tasks.append(Task("gap", cell.name, cell.pairs, (0.0, GAP_SHARE), "gap"))
        if len({pair.number for pair in cell.pairs}) > 1:
            tasks.append(Task("stored", cell.name, cell.pairs, STORED_SIZES, plan.clock, swap="stored"))
    for injection in injections:
        clock = "gap" if injection.kind == "gap" else plan.clock
        tasks.append(Task("injected", injection.name, injection.pairs, (injection.share,), clock, swap="none"))
    return tasks


def trials_of(task: Task, plan: Plan) -> int:
    """Return how many gates a task holds for each size."""
    return plan.unchanged if task.scenario.startswith("unchanged") else plan.changed


def rows_of(task: Task, rules: Sequence[Rule], plan: Plan) -> list[Row]:
    """Return the answers of all rules, one row per rule and size."""
    plain: list[tuple[Run, ...]] = [runs_of(pair, task.clock) for pair in task.pairs]
    draws = [_draw(task, plan, number) for number in range(trials_of(task, plan))]
    rows = []
    for size in task.sizes:
        # An injected change is in the recorded head already.
        change = CHANGES[task.change] if task.scenario != "injected" and size else None
        changed = [tuple(change(run, size) for run in sides) for sides in plain] if change else plain
        rows += [
            _row(task, rule, size, [_gate(task, rule, plain, changed, draw, plan) for draw in draws]) for rule in rules
        ]
    return rows


def _draw(task: Task, plan: Plan, number: int) -> _Draw:
    """Draw the pairs of one gate: always the same for the same seed, scenario, cell and number."""
    name = zlib.crc32(f"{task.scenario}|{task.cell}".encode())
    rng = np.random.default_rng([plan.seed, name, number])
    seconds = np.array([pair.seconds for pair in task.pairs])
    most = int(plan.budget / seconds.min()) + 2
    if task.swap == "stored":
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


def _two_passes(rng: np.random.Generator, pairs: Sequence[Pair], most: int) -> np.ndarray:
    """Return indices of pairs for base and for head, each side from one pass, never the same one."""
    passes = np.array([pair.number for pair in pairs])
    sides = rng.permutation(np.unique(passes))[:2]
    return np.stack([rng.choice(np.nonzero(passes == side)[0], size=most) for side in sides], axis=1)


def _gate(
    task: Task, rule: Rule, plain: list[tuple[Run, ...]], changed: list[tuple[Run, ...]], draw: _Draw, plan: Plan
) -> tuple[str, float, float]:
    """Return a rule's answer in one gate: decision, seconds measured until then, effect."""
    base = [plain[i][swap] for i, swap in zip(draw.picked[:, 0], draw.swapped)]
    head = [changed[i][1 - swap] for i, swap in zip(draw.picked[:, 1], draw.swapped)]
    looks = () if plan.at_once else rule.looks
    most = min(len(base), looks[-1]) if looks else len(base)
    decide = rule.decide_on("gap" if task.clock == "gap" else task.scenario)
    for n in [*(look for look in looks if look < most), most]:
        answer = decide(base[:n], head[:n], {"paired": task.swap != "stored", "seed": draw.seed})
        if answer["decision"] != "undecided":
            break
    return answer["decision"], float(draw.spent[n - 1]), float(answer["effect"])


def _row(task: Task, rule: Rule, size: float, gates: list[tuple[str, float, float]]) -> Row:
    decisions = [decision for decision, _, _ in gates]
    to_ok = [seconds for decision, seconds, _ in gates if decision == "ok"]
    unknown = set(decisions) - {"regressed", "ok", "undecided"}
    if unknown:
        raise SystemExit(f"{rule.name} answered {sorted(unknown)}; a decision is regressed, ok or undecided")
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

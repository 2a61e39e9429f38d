"""Hold decision rules against recorded noise: false alarms, what size of slowdown they
find, and how long they take.

    python benchmarks/gate/yardstick.py --quick python benchmarks/gate/yardstick.py
    --recordings FOLDER --jobs 2 --out yardstick.json python
    benchmarks/gate/yardstick.py --rule my_rule.py:decide --only-rules mine

A rule is
``decide(base, head, ctx) -> {"decision": "regressed" | "ok" | "undecided", "effect": float, "ci": (lo, hi) or None}``.
base and head are lists of runs (one process each), a run is a list of blocks, a block
an array of seconds per call in time order; ``ctx["paired"]`` is true when base[i] and
head[i] took turns, ``ctx["seed"]`` an integer. Our own is the ``decide`` of rule.py
beside this file, with ``decide_p99`` and ``decide_gap`` where it has them; the rivals
are in rivals.py.

A rule that answers "undecided" is offered more pairs, up to its last look or the budget
of measuring; the others get all of the budget at once. A rule's looks are LOOKS in its
file, else those of the gate. The same --seed gives the same table.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import runpy
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import tables
from recordings import FOLDER, SETS, Cell, read_cells, read_injections
from rivals import RIVALS, Rule
from trials import Plan, Row, Task, rows_of, tasks_of, trials_of

from perfgate.document.decision import DEFAULT_LOOKS

OURS = Path(__file__).with_name("rule.py")
NAME = "perfgate"


def main() -> int:
    options = _options()
    rules = _rules(options)
    plan = Plan(
        unchanged=options.unchanged or (20 if options.quick else 200),
        changed=options.changed or (10 if options.quick else 100),
        budget=options.budget,
        seed=options.seed,
        clock=options.clock,
        at_once=options.at_once,
    )
    cells = read_cells(options.recordings, options.sets.split(","))
    injections = read_injections(options.recordings) if options.injected else []
    tasks = [
        task for task in tasks_of(cells, injections, plan) if options.only in task.cell
    ]
    if not tasks:
        raise SystemExit(
            f"no cell's name contains {options.only!r}; they are {', '.join(cell.name for cell in cells)}"
        )
    gates = sum(trials_of(task, plan) * len(task.sizes) for task in tasks) * len(rules)
    _estimate(tasks, rules, plan, gates, options.jobs)
    started = time.monotonic()
    rows = _run(tasks, rules, plan, options.jobs)
    print(f"{gates} gates in {time.monotonic() - started:.0f} s", file=sys.stderr)
    shown = [cell for cell in cells if options.only in cell.name]
    print(tables.document(rows, [rule.name for rule in rules], shown, plan))
    if options.out:
        options.out.write_text(
            json.dumps(_record(rows, shown, plan, options), indent=1) + "\n",
            encoding="utf-8",
        )
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--recordings", type=Path, default=FOLDER, help="folder of the .npz files"
    )
    parser.add_argument(
        "--sets",
        default=",".join(SETS),
        help="sets of recordings, e.g. aa-quiet,live-load3",
    )
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help="only cells whose name contains the text",
    )
    parser.add_argument(
        "--rule",
        default=str(OURS),
        metavar="FILE[:FUNCTION]",
        help="the rule beside the rivals",
    )
    parser.add_argument(
        "--only-rules",
        default="",
        metavar="TEXT",
        help="only rules whose name contains the text",
    )
    parser.add_argument(
        "--quick", action="store_true", help="few gates: under two minutes on one core"
    )
    parser.add_argument(
        "--unchanged",
        type=int,
        metavar="N",
        help="gates of unchanged code per cell and way to swap",
    )
    parser.add_argument(
        "--changed", type=int, metavar="N", help="gates per cell and size of change"
    )
    parser.add_argument(
        "--budget",
        type=float,
        default=60.0,
        help="seconds of measuring both sides in one gate",
    )
    parser.add_argument("--clock", choices=["wall", "cpu"], default="wall")
    parser.add_argument(
        "--at-once", action="store_true", help="give every rule all pairs at once"
    )
    parser.add_argument(
        "--injected",
        action="store_true",
        help="also the recordings with an injected slowdown",
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="processes that compute")
    parser.add_argument("--out", type=Path, help="write every row as JSON")
    return parser.parse_args()


def _rules(options: argparse.Namespace) -> list[Rule]:
    path, _, function = options.rule.partition(":")
    rules = list(RIVALS)
    if Path(path).exists():
        rules.insert(0, _load(Path(path), function or "decide"))
    elif path != str(OURS):
        raise SystemExit(
            f"{path}: no such file; --rule takes FILE.py or FILE.py:FUNCTION"
        )
    else:
        print(f"{path} is not there: the rivals alone", file=sys.stderr)
    chosen = [rule for rule in rules if options.only_rules.lower() in rule.name.lower()]
    if not chosen:
        raise SystemExit(
            f"no rule's name contains {options.only_rules!r}: {', '.join(rule.name for rule in rules)}"
        )
    return chosen


def _load(path: Path, function: str) -> Rule:
    names = runpy.run_path(str(path))
    if function not in names:
        raise SystemExit(
            f"{path} has no function {function}; name it with --rule {path}:FUNCTION"
        )
    others = {
        name: names[f"{function}_{name}"]
        for name in ("p99", "gap")
        if f"{function}_{name}" in names
    }
    return Rule(
        NAME,
        names[function],
        looks=tuple(names.get("LOOKS", DEFAULT_LOOKS)),
        others=others,
    )


def _estimate(
    tasks: Sequence[Task], rules: Sequence[Rule], plan: Plan, gates: int, jobs: int
) -> None:
    """Say on stderr how long it will take, from three gates of the first, middle and
    last task.
    """
    few = plan._replace(unchanged=3, changed=3)
    sample = {
        id(task): task._replace(sizes=task.sizes[:1])
        for task in (tasks[0], tasks[len(tasks) // 2], tasks[-1])
    }
    for task in sample.values():
        rows_of(
            task, rules, few._replace(unchanged=1, changed=1)
        )  # the first meeting of rule and run is slower
    started = time.monotonic()
    for task in sample.values():
        rows_of(task, rules, few)
    each = (time.monotonic() - started) / (3 * len(rules) * len(sample))
    print(f"{gates} gates, about {gates * each / jobs:.0f} s", file=sys.stderr)


def _run(
    tasks: Sequence[Task], rules: Sequence[Rule], plan: Plan, jobs: int
) -> list[Row]:
    work = [(task, rules, plan) for task in tasks]
    if jobs == 1:
        return [row for one in work for row in rows_of(*one)]
    # Rules are functions made at import, which only a forked child has.
    with multiprocessing.get_context("fork").Pool(
        jobs, initializer=_inherit, initargs=(work,)
    ) as pool:
        return [
            row
            for rows in pool.map(_rows_by_number, range(len(work)), chunksize=1)
            for row in rows
        ]


_WORK: list[tuple[Task, Sequence[Rule], Plan]] = []


def _inherit(work: list[tuple[Task, Sequence[Rule], Plan]]) -> None:
    _WORK[:] = work


def _rows_by_number(number: int) -> list[Row]:
    return rows_of(*_WORK[number])


def _record(
    rows: Sequence[Row], cells: Sequence[Cell], plan: Plan, options: argparse.Namespace
) -> dict[str, object]:
    return {
        "command": " ".join(sys.argv),
        "recordings": str(options.recordings),
        "sets": options.sets.split(","),
        "plan": plan._asdict(),
        "cells": {cell.name: {"pairs": len(cell.pairs)} for cell in cells},
        "rows": [row._asdict() for row in rows],
    }


if __name__ == "__main__":
    sys.exit(main())

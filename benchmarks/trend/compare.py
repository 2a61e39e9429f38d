"""Change points of recorded histories: our rule beside simple rules, each written from
what its tool documents.

    python benchmarks/trend/compare.py [--histories FOLDER] [--otava PYTHON]

With ``--otava`` Apache Otava itself is asked too, in a Python that has it, with its
default settings and with a least magnitude of 5 %: python -m venv build/tools/otava &&
build/tools/otava/bin/pip install apache-otava

Columns: labelled regressions found (within three versions) and other alarms in these
series; false alarms per 100 versions of the series without a regression, over the whole
history and when it is asked after every version; planted slowdowns of 2, 5 and 10 %
found within 40 versions, and after how many in the median. An alarm is a change to the
slower.

Our settings (cap, penalty, least length of a level) were chosen on these series, the
rules of the others on nothing here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from histories import BESIDE, PLANTED_IN, Floats, History, load_histories, planted
from otava_process import OtavaProcess
from rich.console import Console
from rich.table import Table
from scipy import stats

from perfgate.stats.changes import shifts

NEAR = 3
WITHIN = 40
SIZES = (0.02, 0.05, 0.10)

Rule = Callable[[Floats], list[int]]


def ours(values: Floats) -> list[int]:
    """perfgate.stats.changes on logarithms."""
    return [found.at for found in shifts(np.log(values)) if found.effect > 0]


def five_percent(values: Floats) -> list[int]:
    """More than 5 % above the previous value: the rule of step 20 of the checklist, as
    first written.
    """
    return [
        index
        for index in range(1, values.size)
        if values[index] > 1.05 * values[index - 1]
    ]


def twice(values: Floats) -> list[int]:
    """At 200 % of the previous value: benchmark-action/github-action-benchmark,
    action.yml, alert-threshold.
    """
    return [
        index
        for index in range(1, values.size)
        if values[index] > 2.0 * values[index - 1]
    ]


def bencher_t(values: Floats) -> list[int]:
    """Above mean + t(.99, n - 1) sd of the last 64 values: bencherdev/bencher,
    lib/bencher_boundary, "Thresholds".
    """
    found = []
    for index in range(2, values.size):
        stored = values[max(0, index - 64) : index]
        if values[index] > stored.mean() + stats.t.ppf(
            0.99, stored.size - 1
        ) * stored.std(ddof=1):
            found.append(index)
    return found


def perfherder(values: Floats) -> list[int]:
    """mozilla/treeherder, perfalert: weighted t above 7 between 12 values back and 12
    fore, at its local maximum, and 2 %.

    Weights fall linearly with the distance; a sum of variances of both sides, over
    their numbers, is the error.
    """
    scores = np.zeros(values.size)
    for index in range(12, values.size):
        back, fore = (
            values[max(0, index - 24) : index][-12:],
            values[index : index + 12],
        )
        if fore.size >= 2:
            scores[index] = _weighted_t(back[::-1], fore)
    found = []
    for index in np.flatnonzero(scores > 7).tolist():
        around = scores[max(0, index - 12) : index + 13]
        back, fore = values[max(0, index - 12) : index], values[index : index + 12]
        if scores[index] == around.max() and fore.mean() > 1.02 * back.mean():
            found.append(int(index))
    return found


def _weighted_t(back: Floats, fore: Floats) -> float:
    (before, spread_before), (after, spread_after) = _weighted(back), _weighted(fore)
    error = np.sqrt(spread_before / back.size + spread_after / fore.size)
    return float(abs(after - before) / error) if error > 0 else 0.0


def _weighted(values: Floats) -> tuple[float, float]:
    weights = (values.size - np.arange(values.size)) / values.size
    mean = float((values * weights).sum() / weights.sum())
    return mean, float(values.var(ddof=1))


def otava_rules(python: Path) -> dict[str, Rule]:
    """Apache Otava (Fleming et al., Hunter, ICPE 2023): windows of 50 values, p below
    .001 in the merging step.
    """
    process = OtavaProcess(python)
    return {
        "Otava p .001": lambda values: process.changes(values.tolist(), 0.0),
        "Otava p .001, 5 %": lambda values: process.changes(values.tolist(), 0.05),
    }


RULES: dict[str, Rule] = {
    "perfgate": ours,
    "> 5 % over previous": five_percent,
    "200 % of previous (github-action-benchmark)": twice,
    "Bencher t .99": bencher_t,
    "Perfherder t > 7, 2 %": perfherder,
}


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--histories",
        type=Path,
        default=BESIDE,
        help="folder with labels.csv and the series",
    )
    parser.add_argument(
        "--otava",
        type=Path,
        metavar="PYTHON",
        help="a Python with apache-otava, to ask it too",
    )
    given = parser.parse_args()
    folder = given.histories
    if not (folder / "labels.csv").exists():
        print(
            f"no histories in {folder}; give their folder with --histories",
            file=sys.stderr,
        )
        return 2
    histories = load_histories(folder)
    quiet = [history for history in histories if not history.change]
    versions = sum(history.values.size for history in quiet)
    table = Table(
        title=f"{len(histories)} series; {versions} versions without a regression"
    )
    for column in ("rule", "labelled found (+ other)", "false per 100", "… asked after every version",
                   "planted 2 / 5 / 10 % found", "median delay", "s"):  # fmt: skip
        table.add_column(column)
    for name, rule in (
        RULES | (otava_rules(given.otava) if given.otava else {})
    ).items():
        began = time.perf_counter()
        whole = 100 * sum(len(rule(history.values)) for history in quiet) / versions
        growing = 100 * sum(told(rule, history.values) for history in quiet) / versions
        delays = [planted_delays(rule, histories, size) for size in SIZES]
        table.add_row(
            name,
            labelled(rule, histories),
            f"{whole:.2f}",
            f"{growing:.2f}",
            " / ".join(str(len([d for d in some if d is not None])) for some in delays)
            + f" of {len(delays[0])}",
            " / ".join(_median(some) for some in delays),
            f"{time.perf_counter() - began:.1f}",
        )
    Console(width=150).print(table)
    return 0


def labelled(rule: Rule, histories: list[History]) -> str:
    """Return how many labelled regressions a rule finds, and its other alarms in these
    series.
    """
    found = others = 0
    regressed = [history for history in histories if history.change]
    for history in regressed:
        alarms = rule(history.values)
        near = [at for at in alarms if abs(at - history.change) <= NEAR]
        found += bool(near)
        others += len(alarms) - len(near)
    return f"{found}/{len(regressed)} (+{others})"


def told(rule: Rule, values: Floats) -> int:
    """Return how many alarms there are when every version is the newest once; one that
    moves a little is no other.
    """
    seen: list[int] = []
    for end in range(8, values.size + 1):
        seen += [
            at for at in rule(values[:end]) if all(abs(at - old) > 5 for old in seen)
        ]
    return len(seen)


def planted_delays(
    rule: Rule, histories: list[History], size: float
) -> list[int | None]:
    """Return after how many versions a planted slowdown is found in each series, None
    where it is not.
    """
    delays: list[int | None] = []
    for history in histories:
        if history.kind in PLANTED_IN:
            values, at = planted(history, size)
            ends = range(at + 1, min(at + WITHIN, values.size) + 1)
            found = (
                end - at
                for end in ends
                if any(abs(one - at) <= NEAR for one in rule(values[:end]))
            )
            delays.append(next(found, None))
    return delays


def _median(delays: list[int | None]) -> str:
    seen = [delay for delay in delays if delay is not None]
    return f"{np.median(seen):.0f}" if seen else "–"


if __name__ == "__main__":
    sys.exit(main())

"""The yardstick's answers as Markdown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from recordings import Cell, runs_of
from rule import differences_of
from trials import GAP_SHARE, P99_SHARE, SIZES, STORED_SIZES, Plan, Row

from perfgate.judging.gate.compare.rule import spread
from perfgate.stats.signed_rank import lower_bound, upper_bound

MUST_FIND = 0.95


def document(
    rows: Sequence[Row], rules: Sequence[str], cells: Sequence[Cell], plan: Plan
) -> str:
    """Return all tables that the rows can fill."""
    scenarios = {row.scenario for row in rows}
    parts = [_about(cells, plan)]
    if "unchanged" in scenarios:
        parts.append(_overview(rows, rules))
        parts.append(_cells(rows, rules[0]))
        parts.append(_best_by_cell(rows, rules))
    if "equal heads" in scenarios:
        parts.append(
            _equal_heads(rows, rules[0], [cell for cell in cells if cell.live], plan)
        )
    if "p99" in scenarios:
        parts.append(
            _two_sizes(
                rows,
                rules,
                "p99",
                f"The slowest 2 % of head's calls {P99_SHARE:.0%} slower, CPU time:",
            )
        )
    if "gap" in scenarios:
        title = f"{GAP_SHARE:.0%} of a call more time between calls, judged by the time between calls:"
        parts.append(_two_sizes(rows, rules, "gap", title))
    if "stored" in scenarios:
        parts.append(_stored(rows, rules))
    if "injected" in scenarios:
        parts.append(_injected(rows, rules[0]))
    return "\n\n".join(parts)


def wilson(hits: int, trials: int, z: float = 1.959964) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    share = hits / trials
    middle = (share + z**2 / (2 * trials)) / (1 + z**2 / trials)
    half = (
        z
        * np.sqrt(share * (1 - share) / trials + z**2 / (4 * trials**2))
        / (1 + z**2 / trials)
    )
    return max(0.0, float(middle - half)), min(1.0, float(middle + half))


def smallest_found(rows: Sequence[Row], quantile: float) -> float | None:
    """Return the smallest size from which on that share of the cells finds at least 95
    %; None where none does.
    """
    found = None
    for size in sorted({row.size for row in rows}, reverse=True):
        powers = [row.regressed / row.trials for row in rows if row.size == size]
        if np.quantile(powers, 1 - quantile, method="lower") < MUST_FIND:
            break
        found = size
    return found


def _about(cells: Sequence[Cell], plan: Plan) -> str:
    distinct = ", ".join(f"{cell.name} {len(cell.pairs)}" for cell in cells)
    mode = (
        "all pairs at once"
        if plan.at_once
        else "rules that may ask for more pairs are asked pair count by pair count"
    )
    return (
        f"Budget {plan.budget:g} s of measuring a gate, {plan.clock} time, seed {plan.seed}; {mode}.\n"
        f"Gates are drawn with replacement from few recorded pairs: {distinct}. Gates of one cell are therefore not\n"
        "independent, and the intervals below, which take them for independent, are too narrow. *as one*: labels of all\n"
        "pairs of a gate swapped together, which keeps what the cell's few pairs happen to differ by: an upper bound."
    )


def _overview(rows: Sequence[Row], rules: Sequence[str]) -> str:
    lines = [
        f"| rule | false alarms [95 %] (worst cell) | as one | {_sizes()}"
        " | ≥ 95 % in every cell (median cell) | ok at 0 % | in s | wrong ok at 2 % | undecided at 2 % |",
        "|---|---|--:|" + "--:|" * len(SIZES) + "---|--:|--:|--:|--:|",
    ]
    for rule in rules:
        unchanged, as_one, slower = (
            _of(rows, rule, name)
            for name in ("unchanged", "unchanged, as one", "slower")
        )
        at_two = [row for row in slower if row.size == 0.02]
        lines.append(
            f"| {rule} | {_share_with_interval(unchanged)} ({_worst(unchanged)}) | {_share(as_one, 'regressed')} | "
            + " | ".join(
                _share([row for row in slower if row.size == size], "regressed")
                for size in SIZES
            )
            + f" | {_size(smallest_found(slower, 1.0))} ({_size(smallest_found(slower, 0.5))})"
            + f" | {_share(unchanged, 'ok')} | {_seconds(unchanged)} | {_share(at_two, 'ok')}"
            + f" | {_share(at_two, 'undecided')} |"
        )
    return "\n".join(lines)


def _cells(rows: Sequence[Row], rule: str) -> str:
    lines = [
        f"By cell, {rule}:",
        "",
        f"| cell | false alarms | as one | {_sizes()} | ok at 0 % | in s | wrong ok at 2 % |",
        "|---|--:|--:|" + "--:|" * len(SIZES) + "--:|--:|--:|",
    ]
    for cell in _names(rows, rule, "unchanged"):
        unchanged, as_one, slower = (
            [row for row in _of(rows, rule, name) if row.cell == cell]
            for name in ("unchanged", "unchanged, as one", "slower")
        )
        lines.append(
            f"| {cell} | {_share(unchanged, 'regressed')} | {_share(as_one, 'regressed')} | "
            + " | ".join(
                _share([row for row in slower if row.size == size], "regressed")
                for size in SIZES
            )
            + f" | {_share(unchanged, 'ok')} | {_seconds(unchanged)}"
            + f" | {_share([row for row in slower if row.size == 0.02], 'ok')} |"
        )
    return "\n".join(lines)


def _best_by_cell(rows: Sequence[Row], rules: Sequence[str]) -> str:
    """The smallest slowdown each rule finds with 95 % power, cell by cell, where its
    false alarms are fair.
    """
    cells = _names(rows, rules[0], "unchanged")
    lines = [
        "Smallest slowdown found in 95 % of a cell's gates; in brackets where over 2 % of its unchanged gates alarmed:",
        "",
        "| rule | " + " | ".join(cells) + " |",
        "|---|" + "--:|" * len(cells),
    ]
    for rule in rules:
        shown = []
        for cell in cells:
            slower = [row for row in _of(rows, rule, "slower") if row.cell == cell]
            alarms = [row for row in _of(rows, rule, "unchanged") if row.cell == cell]
            size = _size(smallest_found(slower, 1.0))
            shown.append(f"({size})" if _ratio(alarms, "regressed") > 0.02 else size)
        lines.append(f"| {rule} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def _equal_heads(
    rows: Sequence[Row], rule: str, cells: Sequence[Cell], plan: Plan
) -> str:
    """Heads that differ in code and not in speed: what they seem slower by, over all
    pairs and the largest of one head.
    """
    lines = [
        f"Heads of other code and equal speed, {rule}. sd: 1.4826 x median absolute deviation of a pair's effect:",
        "",
        "| cell | pairs, servers | seconds a pair, blocks | sd | effect of all heads [95 %] | largest of one | alarms | ok |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for cell in cells:
        mine = [row for row in _of(rows, rule, "equal heads") if row.cell == cell.name]
        runs = [runs_of(pair, plan.clock) for pair in cell.pairs]
        effects = differences_of([base for base, _ in runs], [head for _, head in runs])
        heads = [
            effects[[pair.variant == one for pair in cell.pairs]]
            for one in sorted({p.variant for p in cell.pairs})
        ]
        low, high = (
            bound(effects.values, 0.025, effects.weights)
            for bound in (lower_bound, upper_bound)
        )
        largest = max((head.estimate for head in heads), key=abs)
        seconds = sum(pair.seconds for pair in cell.pairs)
        timed = sum(
            block.span for pair in cell.pairs for side in pair.sides for block in side
        )
        lines.append(
            f"| {cell.name} | {len(cell.pairs)}, {len({pair.number for pair in cell.pairs})}"
            f" | {seconds / len(cell.pairs):.2f}, {timed / seconds:.0%} | {spread(effects):.2%}"
            f" | {effects.estimate:+.2%} [{low:+.2%}, {high:+.2%}] | {largest:+.2%}"
            f" | {_share(mine, 'regressed')} | {_share(mine, 'ok')} |"
        )
    return "\n".join(lines)


def _two_sizes(
    rows: Sequence[Row], rules: Sequence[str], scenario: str, title: str
) -> str:
    lines = [
        title,
        "",
        "| rule | false alarms [95 %] (worst cell) | found | in the worst cell |",
        "|---|---|--:|--:|",
    ]
    for rule in rules:
        mine = _of(rows, rule, scenario)
        unchanged, slower = (
            [row for row in mine if (row.size > 0) is slow] for slow in (False, True)
        )
        found = min(row.regressed / row.trials for row in slower)
        lines.append(
            f"| {rule} | {_share_with_interval(unchanged)} ({_worst(unchanged)}) | {_share(slower, 'regressed')}"
            f" | {found:.0%} |"
        )
    return "\n".join(lines)


def _stored(rows: Sequence[Row], rules: Sequence[str]) -> str:
    lines = [
        "Base from one pass, head from another minutes away (nothing took turns): alarms",
        "",
        "| rule | "
        + " | ".join(
            f"{size:.0%} slower" if size else "unchanged" for size in STORED_SIZES
        )
        + " |",
        "|---|" + "--:|" * len(STORED_SIZES),
    ]
    for rule in rules:
        mine = _of(rows, rule, "stored")
        shares = [
            _share([row for row in mine if row.size == size], "regressed")
            for size in STORED_SIZES
        ]
        lines.append(f"| {rule} | " + " | ".join(shares) + " |")
    return "\n".join(lines)


def _injected(rows: Sequence[Row], rule: str) -> str:
    """Few distinct pairs each, so the effect is the news, not the share."""
    lines = [
        f"Injected into the recorded head, {rule} (few distinct pairs; a gap is judged by the time between calls):",
        "",
        "| workload/kind level | true share of a call | effect | found | ok |",
        "|---|--:|--:|--:|--:|",
    ]
    lines += [
        f"| {row.cell} | {row.size:.1%} | {row.effect:+.1%} | {_share([row], 'regressed')} | {_share([row], 'ok')} |"
        for row in _of(rows, rule, "injected")
    ]
    return "\n".join(lines)


def _sizes() -> str:
    return " | ".join(f"{size * 100:g} %" for size in SIZES)


def _of(rows: Sequence[Row], rule: str, scenario: str) -> list[Row]:
    return [row for row in rows if row.rule == rule and row.scenario == scenario]


def _names(rows: Sequence[Row], rule: str, scenario: str) -> list[str]:
    return sorted({row.cell for row in _of(rows, rule, scenario)})


def _ratio(rows: Iterable[Row], answer: str) -> float:
    chosen = list(rows)
    return float(
        sum(getattr(row, answer) for row in chosen)
        / max(1, sum(row.trials for row in chosen))
    )


def _share(rows: Iterable[Row], answer: str) -> str:
    share = _ratio(rows, answer)
    return f"{share:.1%}" if 0 < share < 0.1 else f"{share:.0%}"


def _share_with_interval(rows: Sequence[Row]) -> str:
    hits, trials = sum(row.regressed for row in rows), sum(row.trials for row in rows)
    low, high = wilson(hits, trials)
    return f"{hits / max(1, trials):.1%} [{low:.1%}, {high:.1%}] of {trials}"


def _worst(rows: Sequence[Row]) -> str:
    return f"{max((row.regressed / row.trials for row in rows), default=0.0):.1%}"


def _seconds(rows: Sequence[Row]) -> str:
    """Return the median over the cells of the median seconds to an "ok"; a dash where
    none was given.
    """
    known = [row.seconds_to_ok for row in rows if row.seconds_to_ok is not None]
    return f"{np.median(known):.0f}" if known else "–"


def _size(size: float | None) -> str:
    return "none" if size is None else f"{size * 100:g} %"

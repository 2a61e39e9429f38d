"""Count the work of torch.compile in the calls of a workload: graph breaks, and
compilations in steady calls.

It never imports torch's compiler: unless the workload has loaded it, no graph was
compiled.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from perfgate.document.run import CounterSet
from perfgate.measuring.counting.counters import (
    WARM_UP_CALLS,
    counter_sites,
    with_counts,
)
from perfgate.measuring.counting.tally import Site, SourceLines
from perfgate.measuring.workload.bound import POOL_SIZE, BoundWorkload

GRAPH_BREAKS = "counters.graph_breaks"
RECOMPILES = "counters.recompiles"
# Rounds of steady calls over all shapes, each on another input.
ROUNDS = 3
# torch gives up compiling a function after eight compilations, so one that compiles on
# every call would reach that limit before the steady calls begin.
RECOMPILE_LIMIT = 1000
_MAX_REASON = 160
# Reasons without a failed guard: a function compiled for the first time, and one that
# torch does not explain.
NEW_INPUT, COMPILED_AGAIN = "graph.new-input", "graph.compiled-again"
# A failed guard as torch words it: "0/5: x.n == 33 # x.n += 1 # ath/model.py:12 in
# forward (HINT: ...)".
_GUARD = re.compile(
    r"^(?:\d+/\d+: )?(?P<guard>.*?)(?:\s+#.*# (?P<file>\S+):(?P<line>\d+) in .*)?$",
    re.DOTALL,
)


class Compilations(NamedTuple):
    """The compiler's work for each shape.

    ``breaks`` are the places of graph breaks. ``adapting`` are recompilations during
    the first calls of every shape; ``steady`` are those in later calls.
    """

    breaks: dict[str, set[Site]]
    adapting: dict[str, Counter[Site]]
    steady: dict[str, Counter[Site]]


def with_compilations(
    workload: BoundWorkload, counters: list[CounterSet]
) -> list[CounterSet]:
    """Add graph breaks and recompiles to the counters of the workload's shapes, if it
    compiles.
    """
    if not has_compiled():
        return [
            msgspec.structs.replace(counted, not_applicable=[GRAPH_BREAKS, RECOMPILES])
            for counted in counters
        ]
    result = compilations(workload, [counted.shape for counted in counters])
    completed = []
    for counted in counters:
        breaks, recompiles = result.breaks[counted.shape], result.steady[counted.shape]
        sites = counter_sites(
            [*Counter(breaks).items(), *recompiles.items()], workload.root
        )
        completed.append(
            with_counts(
                counted,
                {GRAPH_BREAKS: len(breaks), RECOMPILES: recompiles.total()},
                {},
                sites,
            )
        )
    return completed


def has_compiled() -> bool:
    """Whether torch's compiler was at work in this process since its counters were
    cleared.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"].get("total"))


def compilations(workload: BoundWorkload, shapes: Sequence[str]) -> Compilations:
    """Make calls of every shape and return the compiler's work during them.

    Everything is compiled anew, so that the numbers do not depend on earlier work of
    this process; the compiler's own caches on disk make that cheap. Every shape is
    called until it is compiled, then all shapes in turn. The calls are made as a user
    makes them, without a dispatch mode, which would prevent all compiling.
    """
    from torch._dynamo import config, reset

    reset()
    lines = SourceLines(workload.root)
    result = Compilations({}, {}, {shape: Counter() for shape in shapes})
    with config.patch(
        recompile_limit=RECOMPILE_LIMIT, accumulated_recompile_limit=RECOMPILE_LIMIT
    ):
        for shape in shapes:
            compiled = _compiled_during(workload, shape, range(WARM_UP_CALLS), lines)
            result.adapting[shape] = Counter()
            for site, count in compiled.items():
                if site.name not in (NEW_INPUT, COMPILED_AGAIN):
                    result.adapting[shape][site] = count
            # A later shape also runs through code compiled for an earlier one.
            result.breaks[shape] = _graph_breaks(lines)
        for index in range(WARM_UP_CALLS, WARM_UP_CALLS + ROUNDS):
            for shape, sites in result.steady.items():
                sites.update(
                    _compiled_during(workload, shape, range(index, index + 1), lines)
                )
    return result


def _graph_breaks(lines: SourceLines) -> set[Site]:
    """Every place and reason that the compiler has recorded since it was reset.

    It records a break again each time its function is compiled for another shape, still
    at the same place. The line of a break is the innermost of the project, in the
    compiled function or a callee.
    """
    from torch._dynamo.utils import graph_break_reasons

    sites = set()
    for graph_break in graph_break_reasons:
        line = lines.innermost(
            (frame.filename, frame.lineno) for frame in graph_break.user_stack
        )
        sites.add(Site(GRAPH_BREAKS, _first_line(graph_break.reason), line))
    return sites


def _compiled_during(
    workload: BoundWorkload, shape: str, indices: range, lines: SourceLines
) -> Counter[Site]:
    """Make calls and return the compilations during them, by line and reason."""
    from torch._dynamo.utils import (
        clear_compilation_metrics,
        counters,
        get_compilation_metrics,
    )

    # The compiler keeps a bounded list of them.
    clear_compilation_metrics()
    before = counters["frames"]["total"]
    pool = workload.pool(shape)
    for index in indices:
        workload.invoke(pool[index % POOL_SIZE])
    sites = Counter(
        _recompile_site(compiled, lines) for compiled in get_compilation_metrics()
    )
    unexplained = counters["frames"]["total"] - before - sites.total()
    if unexplained > 0:
        sites[Site(RECOMPILES, COMPILED_AGAIN, None)] += unexplained
    return sites


def _recompile_site(compiled: Any, lines: SourceLines) -> Site:
    """The guard that failed, at its own line if torch names it, else at the line of the
    compiled function.
    """
    file, number = compiled.co_filename or "", compiled.co_firstlineno
    if not compiled.recompile_reason:
        return Site(RECOMPILES, NEW_INPUT, lines.at(file, number))
    words = ""
    guard = _GUARD.match(_first_line(compiled.recompile_reason))
    if guard:
        words = guard["guard"]
        # torch shows the end of the path only.
        if guard["file"] and file.endswith(guard["file"]):
            number = int(guard["line"])
    # Numbers change from call to call; the guard is the same.
    reason = re.sub(r"\d+", "N", words)[:_MAX_REASON]
    return Site(RECOMPILES, reason, lines.at(file, number))


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]

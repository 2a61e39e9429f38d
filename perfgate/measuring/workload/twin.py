"""A twin of the base: the same code after functions that nobody calls, which put its objects where another head's would be.

Two processes of exactly the same code spread less than base and a head that differs in code but not in speed, so they would
flatter the noise floor; a twin spreads at least as much on every workload tried (benchmarks/gate/FINDINGS.md, section 4).
"""

from __future__ import annotations

import random
import sys
from types import ModuleType

MODULE = "_perfgate_twin"
_MOST_LINES = 12


def define_dead_functions(count: int, *, seed: int) -> None:
    """Define ``count`` functions of different lengths that nobody calls, kept alive by a module of their own."""
    lot = random.Random(seed)
    module = ModuleType(MODULE)
    source = "\n".join(_function(lot, number) for number in range(count))
    exec(compile(source, MODULE, "exec"), module.__dict__)  # noqa: S102 - the source is ours
    sys.modules[MODULE] = module


def _function(lot: random.Random, number: int) -> str:
    lines = [
        f"    name_{line} = [{lot.random():.6f}, 'text {lot.random()}']"
        for line in range(lot.randrange(1, _MOST_LINES))
    ]
    return "\n".join([f"def unused_{number}(argument=None):", *lines, f"    return {lot.random():.6f}\n"])

"""The list of traps: each test says what it is a trap of, what catches it and under which name; docs/traps.md is made from it.

A test of a trap returns the names it found (see ``naming.py``); one that is caught must find its own, and one that cannot be
caught must find none that fails, so that both lists stay true.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[2] / "docs" / "traps.md"
_HEAD = """# Traps

How can a gate be fooled, on purpose or by accident, and what does perfgate do about it? Every row is a test in
[tests/traps](../tests/traps), and this page is made from the tests (`make pages`). A row without a test, a test without a row,
or a trap that is caught under another name than its row says fails the test suite.

The column *named as* says what perfgate reports:

| name | meaning |
|---|---|
| `latency.low: regressed` | the outcome of a comparison; with `unchanged`, the trap must not move it |
| `invalid …` | the times of this shape prove nothing; verdict INCONCLUSIVE, exit code 4 |
| `error …` | a worker failed |
| `finding …` | a rule of the checklist |
| `harness …` | a change of the workload file |
| `refused …` | the document is not judged at all |
"""
_NOT_CAUGHT = """
## Not caught

Measured code shares its process with the clock that times it. An author who wants to lie and has read this page can do so.
perfgate protects against mistakes, accidents and the usual tricks. Against strangers it protects the conductor, the token and
the verdicts of other runs: their code cannot reach them. Each of these rows has a test that shows the trap working, so that the
list is true.
"""


class Trap(NamedTuple):
    """One row: the trap, how it would fool a gate, what catches it, the name it is caught under, and its test."""

    title: str
    fools: str
    caught_by: str
    named: str | None
    test: str

    @property
    def module(self) -> str:
        """Return the test's file within tests/traps."""
        return self.test.partition("::")[0]


TRAPS: list[Trap] = []


def caught(title: str, *, fools: str, by: str, named: str) -> Callable[[Callable[..., set[str]]], Callable[..., None]]:
    """Register a test of a trap that is caught; the names the test returns must hold ``named``."""
    return _registered(title, fools, by, named)


def not_caught(title: str, *, fools: str, because: str) -> Callable[[Callable[..., set[str]]], Callable[..., None]]:
    """Register a test that shows a trap working; the names it returns must hold nothing that warns or fails."""
    return _registered(title, fools, because, None)


def _registered(
    title: str, fools: str, by: str, named: str | None
) -> Callable[[Callable[..., set[str]]], Callable[..., None]]:
    def register(test: Callable[..., set[str]]) -> Callable[..., None]:
        @functools.wraps(test)
        def checked(*arguments: Any, **fixtures: Any) -> None:
            found = test(*arguments, **fixtures)
            if named is None:
                alarms = {name for name in found if is_alarm(name)}
                assert not alarms, f"listed as not caught, and yet it is: {sorted(alarms)}"
            else:
                assert named in found, f"{named!r} is not among {sorted(found)}"

        TRAPS.append(Trap(title, fools, by, named, f"{test.__module__.rpartition('.')[2]}.py::{test.__name__}"))
        return checked

    return register


def is_alarm(name: str) -> bool:
    """Return whether a name says that something is wrong."""
    return name.endswith(": regressed") or name.startswith(
        ("verdict FAIL", "verdict WARN", "verdict INCONCLUSIVE", "invalid ", "error ", "harness ", "refused ")
    )


def page() -> str:
    # By file, and within it in the order of the tests: which file was imported first is chance.
    traps = sorted(TRAPS, key=lambda trap: trap.module)
    caught_rows = [trap for trap in traps if trap.named is not None]
    missed_rows = [trap for trap in traps if trap.named is None]
    lines = [_HEAD, f"## Caught ({len(caught_rows)})", ""]
    lines += ["| trap | how it would fool a gate | what catches it | named as | test |", "|---|---|---|---|---|"]
    lines += [
        f"| {trap.title} | {trap.fools} | {trap.caught_by} | `{trap.named}` | {_link(trap)} |" for trap in caught_rows
    ]
    lines += [_NOT_CAUGHT, "| trap | how it fools the gate | why it is not caught | test |", "|---|---|---|---|"]
    lines += [f"| {trap.title} | {trap.fools} | {trap.caught_by} | {_link(trap)} |" for trap in missed_rows]
    return "\n".join(lines) + "\n"


def _link(trap: Trap) -> str:
    return f"[{trap.test.partition('::')[2]}](../tests/traps/{trap.module})"

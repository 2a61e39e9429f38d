"""The list of traps: each test says what it is a trap of, what catches it and under which name; TRAPS.md is made from it.

A test of a trap returns the names it found (see ``naming.py``); one that is caught must find its own, and one that cannot be
caught must find none that fails, so that both lists stay true.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

PAGE = Path(__file__).parents[2] / "TRAPS.md"
_HEAD = """# Traps

How one could fool a gate, knowingly or not, and what perfgate does about it. Every row is a test in
[tests/traps](tests/traps), and the page is made from them (`python -m tests.traps`): a row without its test, a test without its
row, or a trap that is caught under another name than the row says fails the suite.

A name with an outcome (`latency.low: regressed`) is a comparison of the decision, `invalid` stands before what makes the
times of a shape prove nothing (verdict INCONCLUSIVE, exit code 4), `error` before how a worker failed, `finding` before a rule
of the checklist, `harness` before a change of the workload file, `refused` before a document that is not even judged. Where a
trap is one that must not move the verdict at all, the name is the answer that it must leave as it is.
"""
_NOT_CAUGHT = """
## Not caught

Code that is measured shares its process with what times it. Whoever sets out to lie, and knows this page, can; perfgate
protects against mistakes, accidents and the usual tricks, and against strangers only in that their code cannot reach the
conductor, the token or the verdict of another run. Each of these has a test that shows it passing, so that the list is true.
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
    """Return TRAPS.md."""
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
    return f"[{trap.test.partition('::')[2]}](tests/traps/{trap.module})"

"""What a comment may ask of perfgate: the words of its first line, read as data and never as code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from perfgate.errors import ForgeError, UsageError
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.forge.forge import Forge

CALL = "/perfgate"
MAX_LINE = 1_000
_SEPARATOR = ","
# Of a cause in perfgate's comment; no metric is called so.
_NUMBER = re.compile(r"[0-9]{1,3}")
# The names of workloads that perfgate.toml takes, as far as they are ASCII: this one goes on to a shell of CI.
_WORKLOAD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class CommentEvent:
    """A comment on a change request that the CI job runs for: who wrote what where. Nothing of it is believed.

    ``bot`` is what the forge says of the author, ``edited`` whether the text is not the one that was first written.
    """

    number: int
    body: str
    author: str
    bot: bool
    edited: bool


@dataclass(frozen=True)
class RunOrder:
    """Measure the change again, or one workload of it; ``head`` is the commit its writer has looked at."""

    head: str | None = None
    workload: str | None = None


@dataclass(frozen=True)
class AcceptOrder:
    """Regressions of these metrics are meant; ``head`` is the commit its writer has looked at.

    ``blocks`` stand for metrics: the numbers of causes in perfgate's own comment.
    """

    metrics: tuple[str, ...]
    reason: str
    head: str | None = None
    blocks: tuple[int, ...] = ()


Order = RunOrder | AcceptOrder


@dataclass(frozen=True)
class OrderedChange:
    """What the forge says of a change request that an order is about; ``author`` is None for an account that is gone."""

    number: int
    head_sha: str
    base_sha: str
    is_open: bool
    from_fork: bool
    author: str | None


@runtime_checkable
class OrderForge(Protocol):
    """What a forge must do besides, to take orders. Every method raises ForgeError when the forge refuses."""

    def ordered_change(self, number: int) -> OrderedChange: ...

    def may_push(self, login: str) -> bool:
        """Whether somebody may push to the repository: a role, and not what a comment says of its author."""
        ...


def takes_orders(forge: Forge) -> OrderForge:
    if isinstance(forge, OrderForge):
        return forge
    raise ForgeError(
        "perfgate reads orders in comments on GitHub only; use `perfgate baseline accept`, or run the pipeline again, "
        "on this forge"
    )


class OrderError(UsageError):
    """The first line calls perfgate and asks for nothing that there is."""


def read_order(body: str) -> Order | None:
    """What the first line of a comment asks for; None where it does not call perfgate.

    Raises OrderError for a call that cannot be understood.
    """
    line = body.partition("\n")[0].rstrip("\r")
    words = line.split()
    if not words or words[0] != CALL or not line.startswith(CALL):
        return None
    if len(line) > MAX_LINE or not line.isprintable():
        raise OrderError("the line is too long, or has characters that cannot be seen")
    verb, rest = (words[1], words[2:]) if len(words) > 1 else ("", [])
    head = rest.pop(0) if rest and COMMIT_ID.fullmatch(rest[0]) else None
    if verb == "run" and len(rest) <= 1:
        if rest and not _WORKLOAD.fullmatch(rest[0]):
            raise OrderError("no workload can have this name")
        return RunOrder(head, rest[0] if rest else None)
    if verb == "accept" and len(rest) >= 2:
        named, reason = tuple(filter(None, rest[0].split(_SEPARATOR))), " ".join(rest[1:])
        if numbers := cause_numbers(named):
            return AcceptOrder((), reason, head, numbers)
        if named:
            return AcceptOrder(named, reason, head)
    raise OrderError("it is neither `run [WORKLOAD]` nor `accept NUMBER REASON` nor `accept METRIC[,METRIC] REASON`")


def cause_numbers(named: Sequence[str]) -> tuple[int, ...]:
    """The numbers of causes that these words are; none where they are metrics."""
    return tuple(map(int, named)) if all(map(_NUMBER.fullmatch, named)) else ()


def numbered_order(number: int, commit: str | None) -> str:
    """The first line of a comment that accepts what one cause of perfgate's comment regressed.

    It need not name the commit where only who may push can change the head: the comment knows which one it is about.
    """
    return " ".join(filter(None, (CALL, "accept", commit, str(number), "REASON")))


def accept_order(commit: str, metrics: Sequence[str]) -> str | None:
    """The first line of a comment that accepts these metrics of this commit; None where such a line cannot say them.

    It names the commit, so that it accepts no other one that is pushed meanwhile, and is obeyed for a fork too.
    """
    line = f"{CALL} accept {commit} {_SEPARATOR.join(metrics)} REASON"
    try:
        return line if read_order(line) == AcceptOrder(tuple(metrics), "REASON", commit) else None
    except OrderError:
        return None

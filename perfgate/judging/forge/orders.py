"""Orders in comments: the first line of a comment, parsed as data and never as code."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Protocol, runtime_checkable

from perfgate.errors import ForgeError, UsageError
from perfgate.git.commands import COMMIT_ID
from perfgate.judging.forge.forge import Forge

CALL = "/perfgate"
MAX_LINE = 1_000
_SEPARATOR = ","
# The number of a cause in perfgate's comment; never the name of a metric.
_NUMBER = re.compile(r"[0-9]{1,3}")
# A day as in "until 2027-01-31"; `date.fromisoformat` of Python 3.11 reads other forms
# too.
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
# The ASCII subset of the workload names perfgate.toml allows: this one is passed on to
# a CI shell.
_WORKLOAD = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
# Two commits of main, as the weekly report names them.
_RANGE = re.compile(r"([0-9a-f]{7,40})\.\.([0-9a-f]{7,40})")
# A metric or pattern, with a place; passed on like a workload. It cannot begin like an
# option.
_METRIC = re.compile(r"[A-Za-z0-9_*?\[][A-Za-z0-9_.:*?!\[\]@/-]{0,199}")


@dataclass(frozen=True)
class CommentEvent:
    """The comment on a change request, or on an issue, that the CI job runs for.

    None of it is trusted.

    ``bot`` is the forge's classification of the author; ``edited`` is true if the text
    is not the original one.
    """

    number: int
    body: str
    author: str
    bot: bool
    edited: bool
    on_issue: bool = False


@dataclass(frozen=True)
class CommentPlace:
    """The place of a comment on a change request; the rest comes from the forge, as
    webhooks are not trusted.
    """

    number: int
    comment_id: int


@dataclass(frozen=True)
class RunOrder:
    """Measure the change again, or one workload of it; ``head`` is the commit that the
    author reviewed.
    """

    head: str | None = None
    workload: str | None = None


@dataclass(frozen=True)
class AcceptOrder:
    """Accept regressions of these metrics as intended; ``head`` is the commit that the
    author reviewed.

    ``blocks`` replace the metrics: the numbers of causes in perfgate's own comment.
    ``until`` is the last day on which the acceptance counts.
    """

    metrics: tuple[str, ...]
    reason: str
    head: str | None = None
    blocks: tuple[int, ...] = ()
    until: date | None = None


@dataclass(frozen=True)
class BisectOrder:
    """Find the commit that makes the change slower, by ``metric`` or any; ``head`` is
    the commit that the author reviewed.

    ``between`` are a good and a bad commit of main instead, which may be shortened.
    """

    head: str | None = None
    metric: str | None = None
    between: tuple[str, str] | None = None


Order = RunOrder | AcceptOrder | BisectOrder


@dataclass(frozen=True)
class OrderedChange:
    """The forge's data about the change request of an order; ``author`` is None if the
    account is deleted.

    ``ref`` is the git reference of its head in the target repository, and ``branch``
    the source branch, which is in another repository if the change is from a fork. Both
    are None where they are not needed.
    """

    number: int
    head_sha: str
    base_sha: str
    is_open: bool
    from_fork: bool
    author: str | None
    ref: str | None = None
    branch: str | None = None


@runtime_checkable
class OrderForge(Protocol):
    """The additional operations of a forge that takes orders.

    Every method raises ForgeError if the forge refuses.
    """

    def ordered_change(self, number: int) -> OrderedChange: ...

    def may_push(self, login: str) -> bool:
        """Whether an account may push to the repository, by its role and not by the
        comment's author association.
        """
        ...


@runtime_checkable
class CommentForge(Protocol):
    """The additional operation of a forge with jobs that know only the place of a
    comment.
    """

    def ordered_comment(self, place: CommentPlace) -> CommentEvent | None:
        """The comment as it is now; None if it was deleted."""
        ...


@runtime_checkable
class PipelineForge(Protocol):
    """The additional operation of a forge that must not measure in the job of a
    comment, which has the main branch's rights.
    """

    def start_pipeline(self, branch: str, variables: Mapping[str, str]) -> str:
        """Start a pipeline of a branch with these variables, and return its page.
        Raises ForgeError if the forge refuses.
        """
        ...


def takes_orders(forge: Forge) -> OrderForge:
    if isinstance(forge, OrderForge):
        return forge
    raise ForgeError(
        "perfgate reads no orders in comments on this forge; use `perfgate baseline accept`, or run the pipeline again"
    )


class OrderError(UsageError):
    """The first line calls perfgate with an unknown order."""


class OrderDateError(OrderError):
    """An acceptance ends on an invalid day; ``named`` is the text in its place."""

    def __init__(self, english: str, *, named: str) -> None:
        super().__init__(english)
        self.named = named


def read_order(body: str) -> Order | None:
    """The order in the first line of a comment; None if it does not call perfgate.

    Raises OrderError for a malformed call.
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
    if verb == "bisect" and len(rest) <= 2:
        return _bisect_order(head, rest)
    if verb == "accept":
        rest, until = _without_end(rest)
        if len(rest) >= 2:
            metrics = tuple(filter(None, rest[0].split(_SEPARATOR)))
            reason = " ".join(rest[1:])
            if numbers := cause_numbers(metrics):
                return AcceptOrder((), reason, head, numbers, until)
            if metrics:
                return AcceptOrder(metrics, reason, head, until=until)
    raise OrderError(
        "it is neither `run [WORKLOAD]` nor `bisect [METRIC]` nor `accept NUMBER REASON [until DATE]` nor "
        "`accept METRIC[,METRIC] REASON [until DATE]`"
    )


def _bisect_order(head: str | None, rest: Sequence[str]) -> BisectOrder:
    match = None
    if rest:
        match = _RANGE.fullmatch(rest[-1])
    metrics = rest[:-1] if match else rest
    if (
        len(metrics) > 1
        or (metrics and not _METRIC.fullmatch(metrics[0]))
        or (match and head)
    ):
        raise OrderError(
            "it is not `bisect [METRIC]`, with `GOOD..BAD` at its end for two commits of main"
        )
    return BisectOrder(
        head, metrics[0] if metrics else None, (match[1], match[2]) if match else None
    )


def _without_end(words: list[str]) -> tuple[list[str], date | None]:
    """The words of an acceptance without ``until DATE`` at their end, and the date.

    Raises OrderDateError for another word there: "until Friday" means no acceptance for
    ever.
    """
    if len(words) < 2 or words[-2].lower() != "until":
        return words, None
    try:
        if not _DAY.fullmatch(words[-1]):
            raise ValueError
        return words[:-2], date.fromisoformat(words[-1])
    except ValueError:
        raise OrderDateError(
            "after `until` there must be a day such as 2027-01-31", named=words[-1]
        ) from None


def cause_numbers(names: Sequence[str]) -> tuple[int, ...]:
    """The words as numbers of causes; empty if they are metrics."""
    if all(map(_NUMBER.fullmatch, names)):
        return tuple(map(int, names))
    return ()


def numbered_order(number: int, commit: str | None) -> str:
    """The first line of a comment that accepts the regressions of one cause of
    perfgate's comment.

    The commit may be omitted if only accounts with push rights can change the head:
    perfgate's comment stores its commit.
    """
    return " ".join(filter(None, (CALL, "accept", commit, str(number), "REASON")))


def accept_order(commit: str, metrics: Sequence[str]) -> str | None:
    """The first line of a comment that accepts these metrics of this commit; None if
    they do not fit the syntax.

    It names the commit, so that it accepts no commit pushed in the meantime and is also
    valid for a fork.
    """
    line = f"{CALL} accept {commit} {_SEPARATOR.join(metrics)} REASON"
    try:
        order = read_order(line)
    except OrderError:
        return None
    if order == AcceptOrder(tuple(metrics), "REASON", commit):
        return line
    return None

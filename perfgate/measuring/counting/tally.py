"""The counters of one running call, with the lines of the project they come from."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, TypeVar

from perfgate.catalogue.names import (
    AUTOGRAD_BEGINS,
    AUTOGRAD_OPS,
    BLOCKING_TRANSFERS,
    COPIES,
    DEFERRED_OPS,
    FLOPS,
    FRAMEWORK_OPS,
    LOADERS_IN_PROCESS,
    LOW_PRECISION_OPS,
    NO_GRAD_OPS,
    SYNCS,
    TRAINING_MODULES,
)
from perfgate.document.run import OpCount
from perfgate.system.folders import PACKAGE
from perfgate.trace.model.spans import COLLECTIVES

_INSTALLED = frozenset({"site-packages", "dist-packages"})
# Somebody's home may be a repository, and Python installed in it.
_STANDARD_LIBRARY = Path(os.__file__).resolve().parent
COPY_BYTES = "counters.copy_bytes"
NONCONTIGUOUS_COPIES = "counters.noncontiguous_copies"
DOUBLE_OPS = "counters.double_ops"
# Counters of every call; memory and others are present only if they can be counted.
_DISPATCHED = (
    FRAMEWORK_OPS,
    COPIES,
    COPY_BYTES,
    NONCONTIGUOUS_COPIES,
    SYNCS,
    LOW_PRECISION_OPS,
    COLLECTIVES,
    FLOPS,
    DEFERRED_OPS,
    DOUBLE_OPS,
    AUTOGRAD_OPS,
    TRAINING_MODULES,
    LOADERS_IN_PROCESS,
    BLOCKING_TRANSFERS,
)


_Key = TypeVar("_Key")


class Site(NamedTuple):
    """A contribution to a counter: an operator, or another named cause, called from a
    line of the project.
    """

    metric: str
    name: str
    line: str | None


class AllocatedBlock(NamedTuple):
    """Memory an operator of the call made: a weak reference to it, the operator, and
    the line that called it.

    ``tensor`` is the form of the result in it (``float32[8,96]``), empty unless
    requested.
    """

    storage: Any
    op: str
    line: str | None
    size: int = 0
    tensor: str = ""


# With more blocks alive than this, the peak is known to a 256th of its bytes: to ask
# every block after every operator whether it is still there takes seconds in the
# backward pass of a large model.
_ASKED_EACH_TIME = 256


class LiveBlocks:
    """The blocks of one call that are alive, and those that were when they held most
    bytes.

    Memory that an operator takes and frees while it runs is not included.
    """

    def __init__(self) -> None:
        self.at_peak: list[AllocatedBlock] = []
        self._alive: list[AllocatedBlock] = []
        self._held = self._peak = 0

    def add(self, block: AllocatedBlock) -> None:
        """Note a new block.

        Older blocks are checked for life only if this may be a new peak.
        """
        self._alive.append(block)
        self._held += block.size
        slack = self._peak // 256 if len(self._alive) > _ASKED_EACH_TIME else 0
        if self._held <= self._peak + slack:
            return
        self._alive = [alive for alive in self._alive if not alive.storage.expired()]
        self._held = sum(alive.size for alive in self._alive)
        if self._held > self._peak:
            self._peak = self._held
            self.at_peak = list(self._alive)


class Dispatched(NamedTuple):
    """One operator of a call.

    ``inputs`` are the dtypes, shapes and layouts of its tensors. ``flops`` come from
    torch's own formulas, which know matrix products, convolutions and attention; None
    for all others. ``moved_bytes`` are the bytes of its tensors, read or written once
    each: no kernel can move less. A ``view`` only describes memory anew and moves none.
    """

    op: str
    line: str | None
    inputs: str
    flops: int | None
    moved_bytes: int
    view: bool


@dataclass
class CallTally:
    """One call, operator by operator, in order of first use.

    ``ops`` is how often each ran: 0 for functions that make the host wait but are not
    operators (``Tensor.tolist``). ``views`` only describe memory anew (transpose,
    slice): they launch no kernels. ``lines`` is how often an operator came from a line,
    ``amounts`` what it added to the counters there. ``order`` has every single dispatch
    in order, if requested.
    """

    ops: Counter[str] = field(default_factory=Counter)
    views: set[str] = field(default_factory=set)
    lines: Counter[tuple[str, str]] = field(default_factory=Counter)
    amounts: Counter[Site] = field(default_factory=Counter)
    memory: dict[str, int] = field(default_factory=dict)
    blocks: list[AllocatedBlock] = field(default_factory=list)
    live: LiveBlocks = field(default_factory=LiveBlocks)
    order: list[Dispatched] | None = None
    _has_graph: bool = False

    def see(self, name: str, line: str | None, *, calls: int = 1, view: bool) -> None:
        if view and name not in self.ops:
            self.views.add(name)
        self.ops[name] += calls
        if line is not None:
            self.lines[name, line] += 1

    def add(self, metric: str, name: str, line: str | None, amount: int = 1) -> None:
        if amount:
            self.amounts[Site(metric, name, line)] += amount

    def record(
        self, name: str, line: str | None, *, recorded: bool, records: bool
    ) -> None:
        """Note whether autograd ``records`` here at all, and this operator; the first
        one begins the graph.
        """
        self.add(AUTOGRAD_OPS, name, line, recorded)
        self.add(NO_GRAD_OPS, name, line, not records)
        if recorded and not self._has_graph:
            self._has_graph = True
            self.add(AUTOGRAD_BEGINS, name, line)

    def values(self) -> dict[str, int]:
        totals = Counter(dict.fromkeys(_DISPATCHED, 0))
        for site, amount in self.amounts.items():
            if site.metric in totals:  # others only explain
                totals[site.metric] += amount
        return {**totals, **self.memory}

    def include(self, other: CallTally, *, deferred: bool) -> None:
        """Add the dispatches of another thread of the call; ``deferred`` if it was
        still running when the call returned.

        Its operators have no place in the order of the calling thread.
        """
        if deferred:
            for site, amount in other.sites(FRAMEWORK_OPS).items():
                other.amounts[site._replace(metric=DEFERRED_OPS)] = amount
        self.views |= other.views - self.ops.keys()
        self.ops.update(other.ops)
        self.lines.update(other.lines)
        self.amounts.update(other.amounts)
        self.blocks += other.blocks

    def lasting_blocks(self) -> list[AllocatedBlock]:
        """The blocks that outlive the call."""
        return [block for block in self.blocks if not block.storage.expired()]

    def counts(self) -> dict[str, int]:
        return {f"ops.count:{name}": count for name, count in self.ops.items()}

    def op_counts(self) -> list[OpCount]:
        """The operators that ran, the most frequent first, each with the line it most
        often comes from.

        Of equally frequent lines the first to dispatch it counts.
        """
        lines = {}
        most: Counter[str] = Counter()
        for (name, line), count in self.lines.items():
            if count > most[name]:
                most[name] = count
                lines[name] = line
        counts = []
        for name, count in sorted(
            self.ops.items(), key=lambda item: (-item[1], item[0])
        ):
            if count:
                counts.append(
                    OpCount(
                        op=name,
                        count=count,
                        view=name in self.views,
                        line=lines.get(name),
                    )
                )
        return counts

    def sites(self, metric: str) -> Counter[Site]:
        return Counter(
            {
                site: amount
                for site, amount in self.amounts.items()
                if site.metric == metric
            }
        )


def differing(repeats: Iterable[Mapping[_Key, int]]) -> dict[_Key, tuple[int, int]]:
    """The least and the most of every count that is not the same in all repeats, sorted
    by the text of its name.

    A count missing from a repeat is 0 there. There may be too many repeats to hold all
    at once.
    """
    repeats = iter(repeats)
    first = next(repeats, {})
    ranges = {name: (count, count) for name, count in first.items()}
    for counts in repeats:
        for name in ranges.keys() | counts.keys():
            least, most = ranges.get(name, (0, 0))
            count = counts.get(name, 0)
            ranges[name] = min(least, count), max(most, count)
    return {
        name: ranges[name]
        for name in sorted(ranges, key=str)
        if ranges[name][0] != ranges[name][1]
    }


class SourceLines:
    """Find the innermost line of the project on the Python stack.

    The project is the code in the checkout around ``root`` outside installed packages
    and perfgate itself: in a repository of several projects a change may lie in code
    that they share. Files are named relative to ``root``. An operator of the backward
    pass has no line: it is charged to the line that started the pass.
    """

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()
        self._top = _top_of_checkout(self._root)
        self._files: dict[str, str | None] = {}

    def of(self, frame: FrameType | None) -> str | None:
        """``file:line`` relative to the root, None if no frame is the project's."""
        while frame is not None:
            line = self.at(frame.f_code.co_filename, frame.f_lineno)
            if line is not None:
                return line
            frame = frame.f_back
        return None

    def innermost(self, frames: Iterable[tuple[str, int | None]]) -> str | None:
        """``file:line`` of the innermost of these files and lines that is the
        project's, which come outermost first.
        """
        for name, number in reversed(list(frames)):
            line = self.at(name, number)
            if line is not None:
                return line
        return None

    def at(self, name: str, number: int | None) -> str | None:
        """``file:line`` of a line of a file, None if the file is not the project's."""
        if name not in self._files:
            self._files[name] = self._file(name)
        file = self._files[name]
        return None if file is None else f"{file}:{number}"

    def _file(self, name: str) -> str | None:
        """The file relative to the root, None if it is not the project's."""
        if name.startswith("<"):
            return None
        path = Path(name).resolve()
        if self._top not in path.parents or _INSTALLED.intersection(path.parts):
            return None
        if PACKAGE in path.parents or _STANDARD_LIBRARY in path.parents:
            return None
        return Path(os.path.relpath(path, self._root)).as_posix()


def _top_of_checkout(root: Path) -> Path:
    """The folder of the checkout around a project's root; the root itself outside git."""
    for folder in (root, *root.parents):
        if (folder / ".git").exists():
            return folder
    return root

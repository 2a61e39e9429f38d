"""Find out whether the workloads run the changed code, and read the changed text, in
calls that are not timed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from perfgate.conductor.code.changed_statements import (
    ChangedStatement,
    names_of_functions,
)
from perfgate.conductor.code.code_changes import PACKAGE_FOLDERS, reads_code
from perfgate.conductor.code.executed_lines import collected_lines
from perfgate.conductor.workers.bench import Bench
from perfgate.conductor.workers.checkout import Checkout
from perfgate.conductor.workers.loading import LineWatch
from perfgate.config import WorkloadReference
from perfgate.document.coverage import ChangedFunction, Coverage, Executed
from perfgate.document.message import Message
from perfgate.document.run import Side
from perfgate.flows.check.changed_files import ChangedFiles
from perfgate.flows.check.nearest import nearest_users
from perfgate.protocol import LOADED, MANY_CALLS, Tried, Watched, Watching

# How long calls are watched for the lines that they run; the first and last may take
# longer on a busy machine.
WATCHING_SECONDS, GLANCE_SECONDS = 5.0, 1.0
# Methods that a library calls by itself on an object that it is given.
_CALLED_BY_LIBRARIES = frozenset({"forward", "backward"})

# The checkouts that a side runs code of, each with the side of its content: base has
# the head's workload file.
_TREES: Mapping[Side, Mapping[str, Side]] = {
    "base": {"base": "base", "harness": "head"},
    "head": {"head": "head"},
}
# The first state that any part of a function has is the function's.
_STATES: tuple[Executed, ...] = ("yes", "unknown", "definition", "no")

ListReads = Callable[[], list[str]]


class _WatchedFile(NamedTuple):
    """A file in a checkout; ``side`` names the side with its content there."""

    tree: str
    side: Side
    file: str


@dataclass
class _Sightings:
    """What the trials of a side have seen so far."""

    calls: list[int] = field(default_factory=list)
    entered: set[str] = field(default_factory=set)
    names: set[str] = field(default_factory=set)
    sources: set[str] = field(default_factory=set)
    # Whether every trial made enough calls to show all their code paths.
    has_all_ways: bool = True

    def add(self, watching: Watching) -> None:
        self.calls.append(watching.calls)
        self.entered.update(watching.entered)
        self.names.update(watching.names)
        self.sources.update(watching.sources)
        self.has_all_ways &= watching.calls >= MANY_CALLS and watching.has_all_sizes


@dataclass
class CodeWatch:
    """Watches the changed files in the trials of both sides.

    ``trees`` are the checkouts by name, including the harness.

    ``python_path`` are the folders that each side puts on Python's path, from the top
    of its checkout.
    """

    changed: ChangedFiles
    trees: Mapping[str, Path]
    reading: Mapping[str, ListReads | None]
    python_path: Mapping[Side, Sequence[str]]
    has_jobs: bool
    is_measured_anyway: bool = False
    _hits: dict[tuple[Side, str], dict[str, set[int]]] = field(default_factory=dict)
    _seen: dict[Side, _Sightings] = field(
        default_factory=lambda: {"base": _Sightings(), "head": _Sightings()}
    )
    _read_code: dict[tuple[Side, str], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _unseen: set[str] = field(default_factory=set)
    _read: set[str] = field(default_factory=set)

    def files_read(self) -> dict[str, list[str]]:
        """The files that were read so far of each checkout for which this is known."""
        return {
            name: list_reads()
            for name, list_reads in self.reading.items()
            if list_reads
        }

    @property
    def is_on(self) -> bool:
        statements = self.changed.statements
        has_code = any(statements["base"].values()) or any(statements["head"].values())
        return bool(self.changed.every) and (has_code or self.changed.can_be_seen)

    @property
    def seconds(self) -> float:
        """How long a trial looks for lines that run: longer if what it sees settles
        whether anything is measured.
        """
        return WATCHING_SECONDS if self._settles else GLANCE_SECONDS

    def needs_base(self) -> bool:
        """Whether the base's own lines are open: it lost code, or no line of head has
        run so far and that may settle it.
        """
        if any(self.changed.statements["base"].values()):
            return True
        for (side, file), workloads in self._hits.items():
            hits = set().union(*workloads.values())
            for statement in self.changed.statements[side].get(file, []):
                if not statement.lines.isdisjoint(hits):
                    return False
        return self._settles

    @property
    def _settles(self) -> bool:
        """Whether the check ends if the change does not run in a trial."""
        return (
            self.changed.can_be_seen
            and not self.has_jobs
            and not self.is_measured_anyway
        )

    def try_workload(
        self, bench: Bench, checkout: Checkout, reference: WorkloadReference, side: Side
    ) -> Tried:
        """Try a workload of a side, and note the lines that it runs."""
        if not self.is_on:
            return bench.try_workload(checkout, reference)
        # The changed files in the checkouts of the side.
        watched: list[_WatchedFile] = []
        for tree, content in _TREES[side].items():
            for file in (*self.changed.statements["head"], *self.changed.documents):
                if (self.trees[tree] / file).is_file():
                    watched.append(_WatchedFile(tree, content, file))
        request = self._request(side, watched)
        with collected_lines() as (reports, lines):
            watch = LineWatch(request, reports, self.seconds)
            tried = bench.try_workload(checkout, reference, watch=watch)
        for index, line in lines:
            if index < len(watched):
                _, content, file = watched[index]
                by_workload = self._hits.setdefault((content, file), {})
                by_workload.setdefault(reference.name, set()).add(line)
        if tried.watching is None:
            self._unseen.add("coverage.trial")
        else:
            self._note(side, watched, tried.watching)
        return tried

    def _request(self, side: Side, watched: Sequence[_WatchedFile]) -> Watched:
        """The request to a trial of a side: what it reports."""
        files: list[str] = []
        tails: set[str] = set()
        groups: list[list[tuple[int, int]]] = []
        for index, (tree, content, file) in enumerate(watched):
            files.append(str(self.trees[tree] / file))
            tails.update(self._tails(file, side))
            for statement in self.changed.statements[content].get(file, []):
                if statement.lines:
                    groups.append([(index, line) for line in statement.lines])
        folders: set[str] = set()
        for document in self.changed.documents:
            if document in self.changed.one_sided:
                folders.add(str(self.trees[side] / PurePosixPath(document).parent))
        return Watched(
            files=files,
            roots=[str(self.trees[tree]) for tree in _TREES[side]],
            tails=sorted(tails),
            folders=sorted(folders),
            groups=groups,
        )

    def _tails(self, file: str, side: Side) -> Iterator[str]:
        """The paths below a folder of a side's import path by which an installed copy
        of a Python file would be known.
        """
        path = PurePosixPath(file)
        if path.suffix != ".py":
            return
        tails: set[PurePosixPath] = set()
        for folder in (*PACKAGE_FOLDERS, *self.python_path[side]):
            if path.is_relative_to(folder):
                tails.add(path.relative_to(folder))
        for inside in tails or {path}:
            # A single module has no folder that tells it from another one.
            if len(inside.parts) == 1:
                yield f"site-packages/{inside}"
            else:
                yield str(inside)

    def result(self, references: Sequence[WorkloadReference]) -> Coverage | None:
        """The results of the trials; None if they did not watch the change."""
        if not self.is_on:
            return None
        doubts: list[Message] = []
        for file in self.changed.others[:1]:
            doubts.append(Message("coverage.changed", {"file": file}))
        for file in sorted(self._read)[:1]:
            doubts.append(Message("coverage.read", {"file": file}))
        doubts += map(Message, sorted(self._unseen))
        if self.has_jobs:
            doubts.append(Message("coverage.jobs"))
        base, head = self._seen["base"], self._seen["head"]
        if not doubts and len(base.calls) == len(head.calls):
            # Unchanged files that ran other functions on the two sides: something that
            # was not seen has told them apart.
            changed = self.changed.statements["head"]
            for place in base.entered ^ head.entered:
                if place.rpartition(":")[0] not in changed:
                    doubts.append(Message("coverage.ways"))
                    break
        functions = self._functions()
        nearest: list[str] = []
        if not doubts and all(function.executed == "no" for function in functions):
            nearest = nearest_users(self.trees["head"], functions, references)
        return Coverage(
            files=self.changed.every,
            functions=functions,
            doubts=doubts,
            calls=min([*base.calls, *head.calls], default=0),
            nearest=nearest,
        )

    # --- one trial

    def _note(
        self, side: Side, watched: Sequence[_WatchedFile], watching: Watching
    ) -> None:
        """Note what the trial read, ran and loaded, as far as this can be known."""
        self._seen[side].add(watching)
        self._unseen.update(watching.doubts)
        for index in watching.read_files:
            self._read.add(watched[index].file)
        for index, first, last in watching.read_code:
            _, content, file = watched[index]
            self._read_code[content, file].append((first, last))
        # Without access times no library or process shows what it reads.
        lists = [self.reading.get(tree) for tree in _TREES[side]]
        are_known = None not in lists
        reads: set[str] = set()
        if are_known:
            for list_reads in filter(None, lists):
                reads.update(list_reads())
        for _, content, file in watched:
            is_document = file in self.changed.documents
            is_loaded = bool(self._hits.get((content, file)))
            if not are_known and is_document:
                self._unseen.add("coverage.no-access-times")
            elif file in reads and (is_document or not is_loaded):
                self._read.add(file)
            elif watching.began_processes and (file in reads or not are_known):
                self._unseen.add("coverage.processes")

    # --- both sides

    def _functions(self) -> list[ChangedFunction]:
        sources = self._seen["base"].sources | self._seen["head"].sources
        reads_definitions = any(
            reads_code(_bytes_of(source).decode(errors="replace")) for source in sources
        )
        reachable = {
            side: self._reachable(sightings) for side, sightings in self._seen.items()
        }
        grouped: dict[tuple[str, str], list[tuple[Side, ChangedStatement]]] = {}
        sides: tuple[Side, Side] = ("head", "base")
        for side in sides:
            for file, statements in self.changed.statements[side].items():
                for statement in statements:
                    grouped.setdefault((file, statement.function), []).append(
                        (side, statement)
                    )
        functions: list[ChangedFunction] = []
        for (file, name), places in grouped.items():
            states: set[Executed] = set()
            workloads: set[str] = set()
            for side, statement in places:
                hits = self._hits.get((side, file), {})
                ran = {
                    workload
                    for workload, lines in hits.items()
                    if not statement.lines.isdisjoint(lines)
                }
                if ran:
                    workloads |= ran
                    states.add("yes")
                    continue
                every = set().union(*hits.values())
                if not statement.definition.isdisjoint(every) and reads_definitions:
                    states.add("definition")
                is_open = (
                    self._unseen
                    or self.has_jobs
                    or self._is_open(side, file, statement, every, reachable[side])
                )
                states.add("unknown" if is_open else "no")
            side, first = places[0]
            is_only_there = all(statement.lines == {LOADED} for _, statement in places)
            if (
                is_only_there
                and states == {"no"}
                and any(path == file and inner for path, inner in grouped)
            ):
                continue  # its functions are listed
            function = ChangedFunction(
                line=f"{file}:{first.line}",
                function=name,
                side=side,
                executed=min(states, key=_STATES.index),
                workloads=sorted(workloads),
            )
            functions.append(function)
        return functions

    def _is_open(
        self,
        side: Side,
        file: str,
        statement: ChangedStatement,
        hits: set[int],
        reachable: set[str] | None,
    ) -> bool:
        """Whether a statement that was not seen running may run all the same: its code
        was read, or in one of more calls.
        """
        if any(
            first <= statement.line <= last
            for first, last in self._read_code[side, file]
        ):
            return True
        if reachable is None:
            return False
        if not statement.around.isdisjoint(hits):
            return True
        if not hits:
            return PurePosixPath(file).stem in reachable
        owner, _, name = statement.function.rpartition(".")
        called_alone = name in _CALLED_BY_LIBRARIES or name.startswith("__")
        return name in reachable or (
            called_alone and owner.rpartition(".")[2] in reachable
        )

    def _reachable(self, sightings: _Sightings) -> set[str] | None:
        """The names that executed functions use, directly or through others; None if
        many calls have shown their ways.
        """
        if sightings.has_all_ways:
            return None
        used = defaultdict[str, set[str]](set)
        for source in sightings.sources:
            if any(Path(source).is_relative_to(tree) for tree in self.trees.values()):
                for name, names in names_of_functions(_bytes_of(source)).items():
                    used[name].update(names)
        reached: set[str] = set()
        for name in sightings.names:
            reached.update((name, *name.split(".")))
        waiting = sorted(reached)
        while waiting:
            fresh = used[waiting.pop()] - reached
            reached |= fresh
            waiting += fresh
        return reached


def _bytes_of(source: str) -> bytes:
    try:
        return Path(source).read_bytes()
    except OSError:
        return b""

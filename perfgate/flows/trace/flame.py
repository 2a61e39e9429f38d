"""Flame graphs: of any recording, of two of them side by side, and the page of a run or check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfgate.document.flame import FlameTree
from perfgate.document.message import Message
from perfgate.errors import UsageError
from perfgate.flows.shared.labels import label_of
from perfgate.flows.shared.trees import pair_trees, tree_of
from perfgate.flows.trace.choice import Choice
from perfgate.flows.trace.job import ChosenTimeline, choose, notes_of


def trace_flame(path: Path, head: Path | None, choice: Choice, *, note: Callable[[Message], None]) -> list[FlameTree]:
    """A tree for every chosen timeline; with ``head``, each is beside the same timeline of the other recording.

    ``note`` receives the notes on unreadable parts of the recordings.

    The folder of a check holds both sides. Raises UsageError if the recordings have nothing to draw.
    """
    check = path if head is None and path.is_dir() and (path / "head" / "run.json").is_file() else None
    if check is not None:
        path, head = path / "base", path / "head"
    chosen = choose(path, choice)
    trees = _labelled(chosen)
    if head is not None:
        beside = choose(head, choice)
        chosen, trees = [*chosen, *beside], pair_trees(trees, _labelled(beside))
    for message in notes_of(chosen):
        note(message)
    if check is not None and (check / "decision.json").is_file():
        # A decision is judged with scipy, which takes as long to import as a large recording to draw.
        from perfgate.document.files import read_decision, read_run
        from perfgate.flows.shared.flame import with_decision

        decision, run = read_decision(check / "decision.json"), read_run(check / "head" / "run.json")
        trees = with_decision(trees, decision, run)
    drawable = [tree for tree in trees if tree.parent]
    if not drawable:
        raise UsageError(
            "{path}: no timeline with events was recorded; tables of kernels alone have no stacks", path=path
        )
    return drawable


def _labelled(chosen: Sequence[ChosenTimeline]) -> list[FlameTree]:
    several = len({pick.recording.path for pick in chosen}) > 1
    return [
        tree_of(pick.timeline, label_of(pick.recording.path.name, pick.timeline, several))
        if several or pick.timeline.label == "all"
        else tree_of(pick.timeline, pick.timeline.label)
        for pick in chosen
    ]

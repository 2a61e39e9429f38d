"""Flame graphs: of any recording, of two of them side by side, and the page of a run or
check.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from perfgate.document.flame import FlameTree
from perfgate.document.message import Message
from perfgate.errors import UsageError
from perfgate.flows.shared.trees import label_of, pair_trees, tree_of
from perfgate.flows.trace.trace import (
    Choice,
    ChosenTimeline,
    choose,
    notes_of,
    numbered,
    several_recordings,
)


def trace_flame(
    path: Path, head: Path | None, choice: Choice, *, note: Callable[[Message], None]
) -> list[FlameTree]:
    """A tree for every chosen timeline; with ``head``, each has the same timeline of
    the other recording as its second side.

    ``note`` receives the notes on unreadable parts of the recordings. The folder of a
    check holds both sides. Raises UsageError if the recordings have no stacks to draw.
    """
    check: Path | None = None
    if head is None and (path / "head" / "run.json").is_file():
        check = path
        path, head = check / "base", check / "head"
    chosen = choose(path, choice)
    trees = _labelled(chosen)
    if head is not None:
        of_head = choose(head, choice)
        trees = pair_trees(trees, _labelled(of_head))
        chosen += of_head
    for message in notes_of(chosen):
        note(message)
    if check is not None and (check / "decision.json").is_file():
        # A decision is judged with scipy, which takes as long to import as a large
        # recording to draw.
        from perfgate.document.files import read_decision, read_run
        from perfgate.flows.shared.flame import with_decision

        decision = read_decision(check / "decision.json")
        run = read_run(check / "head" / "run.json")
        trees = with_decision(trees, decision, run)
    drawable = [tree for tree in trees if tree.parent]
    if not drawable:
        raise UsageError(
            "{path}: no timeline with events was recorded; tables of kernels alone have no stacks",
            path=path,
        )
    return drawable


def _labelled(chosen: Sequence[ChosenTimeline]) -> list[FlameTree]:
    several = several_recordings(chosen)
    labels = []
    for pick in chosen:
        label = pick.timeline.label
        if several or label == "all":
            label = label_of(pick.recording.path.name, pick.timeline, several)
        labels.append(label)
    return [
        tree_of(pick.timeline, label) for pick, label in zip(chosen, numbered(labels))
    ]

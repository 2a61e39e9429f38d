"""The trees of recordings: what drawing one takes without a decision about it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from perfgate.document.flame import FlameTree, side_by_side
from perfgate.errors import UsageError
from perfgate.trace.analysis.flame import flame_tree
from perfgate.trace.analysis.stacks import stacks_of
from perfgate.trace.model.recording import Timeline


def pair_trees(base: Sequence[FlameTree], head: Sequence[FlameTree]) -> list[FlameTree]:
    """The trees of both sides, paired by label; if each side has only one, they are
    paired regardless of labels.
    """
    if len(base) == len(head) == 1:
        return [side_by_side(base[0], head[0])]
    before = {tree.label: tree for tree in base}
    pairs: list[FlameTree] = []
    for tree in head:
        partner = before.get(tree.label)
        pairs.append(side_by_side(partner, tree) if partner else tree)
    labels = {tree.label for tree in head}
    for tree in base:
        if tree.label not in labels:
            pairs.append(msgspec.structs.replace(tree, base=tree.head, head=None))
    return pairs


def tree_of(timeline: Timeline, label: str) -> FlameTree:
    return flame_tree(stacks_of(timeline.events), label)


def artifact_path(document: Path, name: str) -> Path:
    """The path of a run's artifact.

    A foreign document must not make us read files outside its folder.
    """
    folder = document.parent.resolve()
    path = document.parent / name
    if folder not in path.resolve().parents:
        raise UsageError(
            "{document}: its trace {name!r} lies outside the run's folder; name the file itself",
            document=document,
            name=name,
        )
    return path


def label_of(path: str, timeline: Timeline, several: bool) -> str:
    """E.g. ``minilm-short`` for trace-minilm-short.json.gz, with rank and device if
    they add information.
    """
    name = (
        Path(path)
        .name.partition(".json")[0]
        .removesuffix(".zip")
        .removeprefix("trace-")
    )
    if several and timeline.label != "all":
        return f"{name}, {timeline.label}"
    return name

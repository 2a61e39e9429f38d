"""Flame graphs of the stored traces of a run or a check, and their page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from perfgate import trace
from perfgate.document.decision import DecisionDocument
from perfgate.document.files import write_text_atomically
from perfgate.document.flame import FlameTree
from perfgate.document.message import Message, reason_of
from perfgate.document.run import RunDocument
from perfgate.document.shape import ShapePlace
from perfgate.errors import DocumentError
from perfgate.flows.shared.session import FLAME_PAGE, artifact_of
from perfgate.flows.shared.trees import artifact_path, label_of, pair_trees, tree_of
from perfgate.judging.gate.explain.flame import with_pairs
from perfgate.judging.report.render.flame import render_flame
from perfgate.locale import Language, sentence
from perfgate.measuring.counting.collect import trace_name

# Base and head of each shape of a workload, over all traced pairs; a job has the shape
# "".
PairFlames = Mapping[ShapePlace, FlameTree]


def with_flame_graph(
    run: RunDocument, folder: Path, *, say: Callable[[str], None], language: Language
) -> RunDocument:
    """Write the flame graph of the traces that a run kept in its folder, and return its
    document with the page listed.

    It is a by-product: an unreadable trace costs only the page, not the run.
    """
    if not run.traces:
        return run
    say(sentence("drawing the flame graph"))
    try:
        trees = _trees_of_run(run, folder)
    except DocumentError as error:
        return _without_page(run, error)
    return _with_page(run, folder, trees, language)


def with_pair_flames(
    base: RunDocument,
    head: RunDocument,
    flames: PairFlames,
    decision: DecisionDocument,
    out: Path,
    language: Language,
) -> RunDocument:
    """Write the flame graphs of a check, with its decision, into head's folder; return
    head's document with the page listed.

    If no pair was traced in this job, they are drawn from the stored recordings.
    """
    try:
        trees = [with_pairs(tree, decision, *place) for place, tree in flames.items()]
        if not trees:
            recorded = pair_trees(
                _trees_of_run(base, out / "base"), _trees_of_run(head, out / "head")
            )
            trees = with_decision(recorded, decision, head)
    except DocumentError as error:
        return _without_page(head, error)
    if trees:
        return _with_page(head, out / "head", trees, language)
    return head


def with_decision(
    trees: Sequence[FlameTree], decision: DecisionDocument, head: RunDocument
) -> list[FlameTree]:
    places: dict[str, tuple[str, str]] = {}
    for workload in head.workloads:
        for shape in workload.shapes:
            label = trace_name(workload.name, shape).removeprefix("trace-")
            places[label] = (workload.name, shape)
    if len(trees) == len(places) == 1:
        (place,) = places.values()
        return [with_pairs(trees[0], decision, *place)]
    placed = list(trees)
    for position, tree in enumerate(trees):
        if tree.label in places:
            placed[position] = with_pairs(tree, decision, *places[tree.label])
    return placed


def _without_page(run: RunDocument, error: DocumentError) -> RunDocument:
    note = Message("notes.no-flame-graph", {"error": reason_of(error)})
    return replace(run, warnings=[*run.warnings, note])


def _with_page(
    run: RunDocument, folder: Path, trees: Sequence[FlameTree], language: Language
) -> RunDocument:
    # The page opens with the first tree, so put one with a cause from the decision
    # there.
    def has_no_cause(tree: FlameTree) -> bool:
        return tree.result is None or not any(mark.named for mark in tree.result.marks)

    ordered = sorted(trees, key=has_no_cause)
    page = render_flame([tree for tree in ordered if tree.parent], language)
    write_text_atomically(folder / FLAME_PAGE, page)
    artifact = artifact_of(folder / FLAME_PAGE, page.encode(), "flamegraph")
    artifacts = [entry for entry in run.artifacts if entry.path != artifact.path]
    return replace(run, artifacts=[*artifacts, artifact])


def _trees_of_run(run: RunDocument, folder: Path) -> list[FlameTree]:
    trees: list[FlameTree] = []
    for artifact in run.traces:
        path = artifact_path(folder / "run.json", artifact.path)
        timelines = trace.read(path).timelines
        for timeline in timelines:
            label = label_of(artifact.path, timeline, several=len(timelines) > 1)
            trees.append(tree_of(timeline, label))
    return trees

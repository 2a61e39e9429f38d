"""The questions of ``perfgate trace``: a kept answer if there is one, which needs neither numpy nor a reader, else a new one.

Raises what the flow raises that works the answer out, which is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from perfgate.document.trace import (
    AnswerDocument,
    DiffDocument,
    DiffKey,
    GapDocument,
    StepDocument,
    TopDocument,
    TopKey,
)
from perfgate.flows.trace.choice import Choice
from perfgate.trace.cache.answers import kept_answer

if TYPE_CHECKING:
    from perfgate.document.flame import FlameTree
    from perfgate.document.message import Message
    from perfgate.document.timeline import DrawnTimeline


def ask_show(path: Path, choice: Choice, *, base: Path | None) -> AnswerDocument:
    def work_out() -> AnswerDocument:
        from perfgate.flows.trace.answer import trace_answer

        return trace_answer(path, choice, base=base)

    return kept_answer([path, *([base] if base else [])], ("show", *choice), AnswerDocument, work_out)


def ask_top(path: Path, choice: Choice, *, by: TopKey, host: bool, longer: float | None) -> TopDocument:
    def work_out() -> TopDocument:
        from perfgate.flows.trace.job import trace_top

        return trace_top(path, choice, by=by, host=host, longer=longer)

    return kept_answer([path], ("top", by, host, longer, *choice), TopDocument, work_out)


def ask_gaps(path: Path, choice: Choice, *, exposed: bool, shortest: float) -> GapDocument:
    def work_out() -> GapDocument:
        from perfgate.flows.trace.job import trace_gaps

        return trace_gaps(path, choice, exposed=exposed, shortest=shortest)

    return kept_answer([path], ("gaps", exposed, shortest, *choice), GapDocument, work_out)


def ask_steps(path: Path, choice: Choice, *, step_by: str | None) -> StepDocument:
    def work_out() -> StepDocument:
        from perfgate.flows.trace.job import trace_steps

        return trace_steps(path, choice, step_by=step_by)

    return kept_answer([path], ("steps", step_by, *choice), StepDocument, work_out)


def ask_diff(
    bases: Sequence[Path], heads: Sequence[Path], choice: Choice, *, tolerance: float | None, by: DiffKey
) -> DiffDocument:
    """By default times are the same if they differ by no more than ``TOLERANCE`` of ``perfgate.flows.trace.diff``."""

    def work_out() -> DiffDocument:
        from perfgate.flows.trace.diff import TOLERANCE, trace_diff

        return trace_diff(bases, heads, choice, tolerance=TOLERANCE if tolerance is None else tolerance, by=by)

    details = ("diff", len(bases), tolerance, by, *choice)
    return kept_answer([*bases, *heads], details, DiffDocument, work_out)


def ask_flame(path: Path, head: Path | None, choice: Choice, *, note: Callable[[Message], None]) -> list[FlameTree]:
    """``note`` receives the notes on unreadable parts of the recordings."""
    from perfgate.document.flame import FlameGraph

    def work_out() -> FlameGraph:
        from perfgate.flows.trace.flame import trace_flame

        notes: list[Message] = []
        return FlameGraph(trace_flame(path, head, choice, note=notes.append), notes)

    paths = [path, *([head] if head else [])]
    graph = kept_answer(paths, ("flame", *choice), FlameGraph, work_out)
    for message in graph.notes:
        note(message)
    return graph.trees


def ask_timeline(path: Path, choice: Choice) -> list[DrawnTimeline]:
    from perfgate.document.timeline import DrawnTimeline

    def work_out() -> list[DrawnTimeline]:
        from perfgate.flows.trace.timeline import trace_timeline

        return trace_timeline(path, choice)

    return kept_answer([path], ("timeline", *choice), list[DrawnTimeline], work_out)

"""Pages of ``perfgate serve``, drawn in separate processes: a page takes seconds and
much memory.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

from perfgate.document.timeline import DrawnTimeline
from perfgate.errors import PerfgateError, UsageError
from perfgate.flows.shared.trees import label_of, tree_of
from perfgate.flows.trace.flame import trace_flame
from perfgate.flows.trace.gathering import Place
from perfgate.flows.trace.ranks import trace_ranks
from perfgate.flows.trace.ranks_page import drawn_ranks
from perfgate.flows.trace.trace import Choice, choose
from perfgate.judging.report.render.flame import render_flame
from perfgate.judging.report.render.timeline import render_ranks_page, render_timeline
from perfgate.locale import Language
from perfgate.service.helper_process import begin_helper
from perfgate.service.library import within
from perfgate.trace.pages.timeline import drawn_timeline

_MOST_PROCESSES = 4


class Drawers:
    """Processes that draw pages, started with the first page."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def draw(self, name: str, page: Callable[[], str]) -> str:
        """The page of a recording. Raises the errors of reading and drawing, and
        PerfgateError if the process was killed.
        """
        pool = self._pool = self._pool or _pool()
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, within, page)
        except BrokenProcessPool as error:
            if self._pool is pool:
                self._pool = None
            raise PerfgateError(
                "{name}: the process that drew it was killed; it may need more memory",
                name=name,
            ) from error

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)


def _pool() -> ProcessPoolExecutor:
    # A child forked from a process with threads may inherit a lock that is never
    # released.
    context = multiprocessing.get_context("forkserver")
    processes = min(os.cpu_count() or 1, _MOST_PROCESSES)
    return ProcessPoolExecutor(processes, mp_context=context, initializer=begin_helper)


def flame_page(path: Path, name: str, language: Language, head: Path | None) -> str:
    """The flame graph of the recording at ``path``, shown as ``name``; or of two, if it
    is compared with ``head``.
    """
    if head is not None:
        return render_flame(
            trace_flame(path, head, Choice(), note=lambda _: None), language
        )
    chosen = choose(path, Choice())
    trees = [
        tree_of(pick.timeline, label_of(name, pick.timeline, several=True))
        for pick in chosen
    ]
    trees = [tree for tree in trees if tree.parent]
    if not trees:
        raise _without_events(name)
    return render_flame(trees, language)


def timeline_page(path: Path, name: str, language: Language) -> str:
    timelines: list[DrawnTimeline] = []
    for recording, timeline in choose(path, Choice()):
        if len(timeline.events):
            label = label_of(name, timeline, several=True)
            timelines.append(
                drawn_timeline(
                    timeline.events, label, recording.notes, timeline.readings
                )
            )
    if not timelines:
        raise _without_events(name)
    return render_timeline(timelines, language)


def ranks_page(folder: Path, language: Language) -> str:
    # One process: other pages need the CPUs too.
    ranks = trace_ranks([Place(folder)], workers=1, say=lambda _: None)
    return render_ranks_page(drawn_ranks(ranks, ()), language)


def _without_events(name: str) -> UsageError:
    return UsageError(
        "{name} has no timeline with events; tables of steps or totals alone have none",
        name=name,
    )
